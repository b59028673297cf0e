"""agent/schema: signatures times payloads. Every error names the field."""

from __future__ import annotations

import datetime
import enum
import functools
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Optional, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.agent.schema import Arguments, output_schema
from hermes_peer.agent.values import Final
from hermes_peer.errors import CallError, Code, UsageError

if TYPE_CHECKING:
    from nowhere import Request, Unknown  # never imported: the hint of `request` is not resolved

REQUEST = object()


class Line(msgspec.Struct, forbid_unknown_fields=True):
    sku: str
    count: Annotated[int, msgspec.Meta(ge=1)] = 1


class Order(msgspec.Struct):
    order_id: str
    lines: list[Line] = []
    kind: str = msgspec.field(name="type", default="plain")


@dataclass
class Parcel:
    weight: float
    tags: list[str] = field(default_factory=list)


class Place(TypedDict, total=False):
    city: str
    zip: int


class Item(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    sku: str
    count: int = 1
    day: datetime.date | None = None


class Basket(pydantic.BaseModel):
    items: list[Item]
    price: float = 0.0


class Create(msgspec.Struct, tag=True):
    name: str


class Delete(msgspec.Struct, tag=True):
    name: str


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Pair(NamedTuple):
    a: int
    b: int


# -- handlers: the table below calls them with what `bind` made of a payload --


def nothing(): ...
def seed(request):
    return request


def seed_keyword(*, request: Request):
    return request


def one(n: int):
    return n


def untyped(x):
    return x


def anything(x: object):
    return x


def two(text: str, n: int = 3):
    return text, n


def positional(a: int, /, b: int):
    return a, b


def keyword(a: int, *, b: int = 2, c: str):
    return a, b, c


def request_first(request: Request, a: int, b: int = 2):
    return request is REQUEST, a, b


def request_amid(a: int, request: Request, b: int):
    return a, request is REQUEST, b


def request_last(a: int, request: Request):
    return a, request is REQUEST


def request_keyword(a: int, *, b: int, request: Request):
    return a, b, request is REQUEST


def optional(n: Optional[int]):  # noqa: UP045
    return n


def none_default(n: int = None):  # noqa: RUF013
    return n


def lists(names: list[str], scores: dict[str, float] = {}):  # noqa: B006
    return names, scores


def filled(names: list[str] = ["a"]):  # noqa: B006
    names.append("b")
    return names


def odd_default(x: Any = Order):
    return x


def literal(size: Literal["s", "m"], n: int = 0):
    return size, n


def colour(colour: Colour):
    return colour


def bounded(
    n: Annotated[int, msgspec.Meta(gt=0, description="how many")], s: Annotated[str, msgspec.Meta(min_length=2)] = "ab"
):
    return n, s


def when(day: datetime.date):
    return day


def blob(data: bytes):
    return data


def pair(p: Pair):
    return p


def mapping(payload: dict):
    return payload


def extras(a: int, **more):
    return a, more


def extras_typed(a: int = 0, **more: list[int]):
    return a, more


def extras_only(**more):
    return more


def extras_request(request, **more):
    return request is REQUEST, more


def struct(order: Order):
    return order


def struct_request(order: Order, request):
    return order, request is REQUEST


def struct_keyword(*, order: Order):
    return order


def struct_annotated(order: Annotated[Order, "noted"]):
    return order


def struct_or_none(order: Order | None = None):
    return order


def struct_beside(order: Order, n: int = 1):
    return order, n


def union(change: Create | Delete):
    return change


def data(parcel: Parcel):
    return parcel


def typed_dict(place: Place):
    return place


def model(basket: Basket):
    return basket


def model_request(request, item: Item):
    return item, request is REQUEST


def model_beside(item: Item, n: int = 1):
    return item, n


def models(items: list[Item], first: Item | None = None):
    return items, first


def names_of_structs(__struct_fields__: int, f0: str, self: int, list: list[int]):
    return f0, self, list


WELL: list[tuple[Callable[..., Any], str, Any]] = [
    (nothing, "{}", None),
    (nothing, "", None),
    (seed, '{"any": 1}', REQUEST),
    (seed, "not even JSON: it is read lazily", REQUEST),
    (seed_keyword, "{}", REQUEST),
    (one, '{"n":30}', 30),
    (one, '{"n":-99999999999999999999999}', -99999999999999999999999),
    (untyped, '{"x":[1,{"a":null}]}', [1, {"a": None}]),
    (anything, '{"x":"y"}', "y"),
    (two, '{"text":"a"}', ("a", 3)),
    (two, ' {"n":1,\n"text":"\\u00e9"} ', ("é", 1)),
    (positional, '{"b":2,"a":1}', (1, 2)),
    (keyword, '{"c":"x","a":1}', (1, 2, "x")),
    (request_first, '{"a":1}', (True, 1, 2)),
    (request_amid, '{"b":2,"a":1}', (1, True, 2)),
    (request_last, '{"a":1}', (1, True)),
    (request_keyword, '{"b":2,"a":1}', (1, 2, True)),
    (optional, '{"n":null}', None),
    (none_default, "{}", None),
    (none_default, '{"n":null}', None),
    (none_default, "", None),
    (lists, '{"names":["a"]}', (["a"], {})),
    (lists, '{"names":[],"scores":{"x":1}}', ([], {"x": 1.0})),
    (odd_default, "{}", Order),
    (literal, '{"size":"m"}', ("m", 0)),
    (colour, '{"colour":"red"}', Colour.RED),
    (bounded, '{"n":1}', (1, "ab")),
    (when, '{"day":"2026-02-03"}', datetime.date(2026, 2, 3)),
    (blob, '{"data":"aGk="}', b"hi"),
    (pair, '{"p":[1,2]}', Pair(1, 2)),
    (mapping, '{"payload":{"a":1}}', {"a": 1}),
    (extras, '{"a":1,"b":2,"c":{}}', (1, {"b": 2, "c": {}})),
    (extras, '{"a":1}', (1, {})),
    (extras_typed, '{"x":[1],"y":[]}', (0, {"x": [1], "y": []})),
    (extras_only, '{"x":1}', {"x": 1}),
    (extras_only, "", {}),
    (extras_request, '{"x":1}', (True, {"x": 1})),
    (struct, '{"order_id":"o","lines":[{"sku":"a"}],"type":"big"}', Order("o", [Line("a")], "big")),
    (struct, '{"order_id":"o","later":1}', Order("o")),  # a type of one's own keeps its own rule (M16)
    (struct_request, '{"order_id":"o"}', (Order("o"), True)),
    (struct_keyword, '{"order_id":"o"}', Order("o")),
    (struct_annotated, '{"order_id":"o"}', Order("o")),
    (struct_or_none, "{}", None),  # with None in it, it is a field
    (struct_or_none, '{"order":{"order_id":"o"}}', Order("o")),
    (struct_beside, '{"order":{"order_id":"o"}}', (Order("o"), 1)),
    (union, '{"type":"Delete","name":"x"}', Delete("x")),
    (data, '{"weight":1}', Parcel(1.0)),
    (typed_dict, '{"city":"Ulm"}', {"city": "Ulm"}),
    (typed_dict, "", {}),
    (
        model,
        '{"items":[{"sku":"a","day":"2026-02-03"}],"price":1}',
        Basket(items=[Item(sku="a", day=datetime.date(2026, 2, 3))], price=1.0),
    ),
    (model_request, '{"sku":"a"}', (Item(sku="a"), True)),
    (model_beside, '{"item":{"sku":"a","day":"2026-02-03"}}', (Item(sku="a", day=datetime.date(2026, 2, 3)), 1)),
    (models, '{"items":[{"sku":"a"}]}', ([Item(sku="a")], None)),
    (models, '{"items":[],"first":{"sku":"b"}}', ([], Item(sku="b"))),
    (names_of_structs, '{"__struct_fields__":1,"f0":"a","self":2,"list":[3]}', ("a", 2, [3])),
    (functools.partial(two, n=7), '{"text":"a"}', ("a", 7)),
]


@pytest.mark.parametrize(("handler", "payload", "expected"), WELL)
def test_a_payload_that_fits(handler: Callable[..., Any], payload: str, expected: Any) -> None:
    args, keywords = Arguments(handler).bind(payload.encode(), REQUEST)
    assert isinstance(args, tuple)
    assert handler(*args, **keywords) == expected


ILL: list[tuple[Callable[..., Any], str, str, str]] = [
    # handler, payload, details["field"], message
    (one, '{"n":"30"}', "n", "field `n`: expected int, got str"),
    (one, '{"n":true}', "n", "field `n`: expected int, got bool"),
    (one, '{"n":1.0}', "n", "field `n`: expected int, got float"),
    (one, '{"n":null}', "n", "field `n`: expected int, got null"),
    (one, '{"n":1e999}', "n", "field `n`: a number is out of range"),
    (one, "{}", "n", "field `n`: missing, expected int"),
    (one, "", "n", "field `n`: missing, expected int"),
    (one, '{"N":1}', "N", "field `N`: unknown (did you mean `n`?); allowed: `n`"),
    (one, '{"n":1,"zebra":2}', "zebra", "field `zebra`: unknown; allowed: `n`"),
    (one, "[1]", "", "the payload must be an object, got array"),
    (one, "3", "", "the payload must be an object, got int"),
    (one, "null", "", "the payload must be an object, got null"),
    (one, '{"n":1', "", "the payload cannot be read: the JSON text is cut short"),
    (one, '{"n":NaN}', "", "the payload cannot be read: not JSON: invalid character (byte 5)"),
    (nothing, '{"x":1}', "x", "field `x`: unknown; allowed: none"),
    (nothing, "[]", "", "the payload must be an object, got array"),
    (two, '{"n":1}', "text", "field `text`: missing, expected str"),
    (two, '{"text":1}', "text", "field `text`: expected str, got int"),
    (two, '{"txt":"a"}', "txt", "field `txt`: unknown (did you mean `text`?); allowed: `text`, `n`"),
    (keyword, '{"a":1}', "c", "field `c`: missing, expected str"),
    (request_last, '{"a":1,"request":2}', "request", "field `request`: unknown; allowed: `a`"),
    (optional, '{"n":"x"}', "n", "field `n`: expected int | null, got str"),
    (none_default, '{"n":"x"}', "n", "field `n`: expected int | null, got str"),
    (lists, '{"names":["a",1]}', "names[1]", "field `names[1]`: expected str, got int"),
    (lists, '{"names":[],"scores":{"x":"1"}}', "scores[...]", "field `scores[...]`: expected float, got str"),
    (lists, '{"names":null}', "names", "field `names`: expected array, got null"),
    (literal, '{"size":"l"}', "size", "field `size`: expected one of 'm', 's', got 'l'"),
    (literal, '{"size":1}', "size", "field `size`: expected str, got int"),
    (colour, '{"colour":"green"}', "colour", "field `colour`: expected one of 'red', 'blue', got 'green'"),
    (bounded, '{"n":0}', "n", "field `n`: expected int >= 1"),
    (bounded, '{"n":1,"s":"a"}', "s", "field `s`: expected str of length >= 2"),
    (bounded, "{}", "n", "field `n`: missing, expected int"),
    (when, '{"day":"today"}', "day", "field `day`: invalid RFC3339 encoded date"),
    (blob, '{"data":"*"}', "data", "field `data`: invalid base64 encoded string"),
    (extras, '{"b":1}', "a", "field `a`: missing, expected int"),
    (extras_typed, '{"x":[1],"y":["1"]}', "y[0]", "field `y[0]`: expected int, got str"),
    (extras_typed, '{"y":1}', "y", "field `y`: expected array, got int"),
    (extras_request, '{"request":1}', "request", "field `request`: this name cannot be used"),
    (extras_only, "[]", "", "the payload must be an object, got array"),
    (struct, '{"lines":[]}', "order_id", "field `order_id`: missing, expected str"),
    (
        struct,
        '{"order_id":"o","lines":[{"sku":"a"},{"count":1}]}',
        "lines[1].sku",
        "field `lines[1].sku`: missing, expected str",
    ),
    (
        struct,
        '{"order_id":"o","lines":[{"sku":"a","cnt":1}]}',
        "lines[0].cnt",
        "field `lines[0].cnt`: unknown (did you mean `count`?); allowed: `sku`, `count`",
    ),
    (
        struct,
        '{"order_id":"o","lines":[{"sku":"a","count":0}]}',
        "lines[0].count",
        "field `lines[0].count`: expected int >= 1",
    ),
    (struct, '{"order_id":"o","type":1}', "type", "field `type`: expected str, got int"),
    (struct, "[]", "", "the payload must be an object, got array"),
    (struct_or_none, '{"order":{"lines":[]}}', "order.order_id", "field `order.order_id`: missing, expected str"),
    (union, '{"type":"Burn","name":"x"}', "type", "field `type`: invalid value 'Burn'"),
    (data, '{"weight":"1"}', "weight", "field `weight`: expected float, got str"),
    (data, "{}", "weight", "field `weight`: missing, expected float"),
    (typed_dict, '{"zip":"1"}', "zip", "field `zip`: expected int, got str"),
    (
        model,
        '{"items":[{"sku":"a","count":"2"}]}',
        "items[0].count",
        "field `items[0].count`: input should be a valid integer, got str",
    ),
    (
        model,
        '{"items":[{"sku":"a","count":true}]}',
        "items[0].count",
        "field `items[0].count`: input should be a valid integer, got bool",
    ),
    (model, '{"price":1}', "items", "field `items`: missing"),
    (model, '{"items":[],"price":NaN}', "", "the payload cannot be read: not JSON: invalid character (byte 20)"),
    (model, "[]", "", "the payload must be an object, got array"),
    (
        model_request,
        '{"sku":"a","cuont":1}',
        "cuont",
        "field `cuont`: unknown (did you mean `count`?); allowed: `sku`, `count`, `day`",
    ),
    (model_beside, '{"item":{"sku":1}}', "item.sku", "field `item.sku`: input should be a valid string, got int"),
    (
        model_beside,
        '{"item":{"sku":"a","count":"2"}}',
        "item.count",
        "field `item.count`: input should be a valid integer, got str",
    ),
    (
        models,
        '{"items":[{"sku":"a"},{"sku":null}]}',
        "items[1].sku",
        "field `items[1].sku`: input should be a valid string, got null",
    ),
    (
        models,
        '{"items":[{"q":1,"sku":"a"}]}',
        "items[0].q",
        "field `items[0].q`: unknown; allowed: `sku`, `count`, `day`",
    ),
]


@pytest.mark.parametrize(("handler", "payload", "name", "message"), ILL)
def test_a_payload_that_does_not_fit(handler: Any, payload: str, name: str, message: str) -> None:
    with pytest.raises(CallError) as refused:
        Arguments(handler).bind(payload.encode(), REQUEST)
    error = refused.value
    assert error.message == message
    assert error.details["field"] == name
    assert (error.code, error.reason) == (Code.ERROR_INVALID_REQUEST, "invalid_payload")
    assert error.__cause__ is None  # a decoder's own words are not for the caller
    json.dumps(error.details)  # it travels


def test_what_is_wrong_is_in_the_details() -> None:
    for payload, details in [
        (b'{"text":1}', {"field": "text", "expected": "str"}),
        (b'{"x":1}', {"field": "x", "allowed": ["text", "n"]}),
        (b"{}", {"field": "text", "expected": "str"}),
    ]:
        with pytest.raises(CallError) as refused:
            Arguments(two).bind(payload, REQUEST)
        assert refused.value.details == details


def test_a_long_name_from_the_caller_comes_back_short() -> None:
    with pytest.raises(CallError) as refused:
        Arguments(one).bind(json.dumps({"x" * 100_000: 1}).encode(), REQUEST)
    assert len(refused.value.message) < 200 and len(refused.value.details["field"]) < 100


def test_a_deep_payload_is_refused_and_not_raised_through() -> None:
    with pytest.raises(CallError, match="nests too deeply"):
        Arguments(untyped).bind(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", REQUEST)


def test_a_default_that_can_change_is_new_for_each_call() -> None:
    arguments = Arguments(filled)
    for _ in range(2):
        args, keywords = arguments.bind(b"{}", REQUEST)
        assert filled(*args, **keywords) == ["a", "b"]


class Shop:
    def __init__(self) -> None:
        self.stock = 5

    def take(self, n: int, request: Any) -> tuple[int, bool]:
        return self.stock - n, request is REQUEST

    def note(self, **more: Any) -> dict[str, Any]:
        return more

    def __call__(self, n: int) -> int:
        return self.stock + n


def test_bound_methods_and_callable_objects() -> None:
    shop = Shop()
    args, keywords = Arguments(shop.take).bind(b'{"n":2}', REQUEST)
    assert shop.take(*args, **keywords) == (3, True)
    args, keywords = Arguments(shop).bind(b'{"n":2}', REQUEST)
    assert shop(*args, **keywords) == 7


def test_a_field_cannot_meet_the_bound_self() -> None:
    with pytest.raises(CallError) as refused:
        Arguments(Shop().note).bind(b'{"self":1}', REQUEST)
    assert refused.value.details == {"field": "self"}


def test_a_wrapped_handler_is_read_through_its_wrapper() -> None:
    @functools.wraps(two)
    def wrapper(*args: Any, **keywords: Any) -> Any:
        return two(*args, **keywords)

    assert Arguments(wrapper).bind(b'{"text":"a"}', REQUEST) == (("a", 3), {})


def test_hints_of_types_that_a_handler_closes_over() -> None:
    class Local(msgspec.Struct):
        n: int

    def closes_over(local: Local) -> Any:
        return Local, local

    assert Arguments(closes_over).bind(b'{"n":1}', REQUEST)[0][0].n == 1


def test_hints_without_the_future_import() -> None:
    space: dict[str, Any] = {"Order": Order}
    exec(compile("def f(order: Order, request: 'Gone'): ...", "<text>", "exec", dont_inherit=True), space)
    assert Arguments(space["f"]).bind(b'{"order_id":"o"}', REQUEST) == ((Order("o"), REQUEST), {})


# -- signatures that cannot be --


def unresolved(x: Unknown): ...
def no_type(x: 3): ...
def stars(*names): ...
def foreign(x: Shop): ...
def foreign_deep(x: dict[str, list[Shop | None]]): ...
def wrong_request(req: Arguments): ...
def ambiguous(x: Order | Line): ...
def callback(x: Callable[[int], int]): ...
def stream_in(x: AsyncIterator[int]): ...


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (unresolved, "unresolved: the hint `Unknown` of parameter `x` cannot be resolved"),
        (no_type, "no_type: Type '3' is not supported"),
        (stars, "stars: *names has no meaning"),
        (foreign, "foreign: no payload can become a Shop"),
        (foreign_deep, "foreign_deep: no payload can become a Shop"),
        (wrong_request, "the request goes to `request`"),
        (ambiguous, "ambiguous: "),
        (callback, "callback: no payload can become a Callable"),
        (stream_in, "stream_in: no payload can become a AsyncIterator"),
    ],
)
def test_a_signature_that_no_payload_can_fill(handler: Any, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        Arguments(handler)
    assert says in str(refused.value)


# -- schemas --


def result(x: int) -> dict[str, int]: ...
def result_struct(x: int) -> Order: ...
def result_none(x: int) -> None: ...
def result_gone(x: int) -> Unknown: ...
def result_any(x: int) -> Any: ...
async def items(x: int) -> AsyncIterator[str]:
    yield ""


async def items_final(x: int) -> AsyncIterator[str | Final]:
    yield ""


async def items_bare(x: int):
    yield ""


def test_the_schema_of_fields() -> None:
    assert Arguments(bounded).schema() == {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "exclusiveMinimum": 0, "description": "how many"},
            "s": {"type": "string", "minLength": 2, "default": "ab"},
        },
        "required": ["n"],
        "additionalProperties": False,
    }
    assert Arguments(filled).schema()["properties"]["names"]["default"] == ["a"]
    assert Arguments(nothing).schema()["additionalProperties"] is False
    assert Arguments(seed).schema() == {"type": "object"}
    assert Arguments(extras).schema()["additionalProperties"] is True
    assert Arguments(extras_typed).schema()["additionalProperties"] == {"type": "array", "items": {"type": "integer"}}
    assert Arguments(odd_default).schema()["properties"] == {"x": {}}


def test_the_schema_of_a_whole_payload() -> None:
    schema = Arguments(struct).schema()
    assert schema["required"] == ["order_id"]
    assert schema["properties"]["lines"]["items"] == {"$ref": "#/$defs/Line"}
    assert list(schema["$defs"]) == ["Line"]
    assert Arguments(model).schema()["properties"]["items"]["items"] == {"$ref": "#/$defs/Item"}


@pytest.mark.parametrize("handler", [struct, model, models, model_beside, union, data, typed_dict, struct_or_none])
def test_every_reference_in_a_schema_leads_somewhere(handler: Any) -> None:
    schema = Arguments(handler).schema()

    def references(part: Any) -> Any:
        if isinstance(part, dict):
            if isinstance(part.get("$ref"), str):
                yield part["$ref"]
            part = list(part.values())
        if isinstance(part, list):
            for child in part:
                yield from references(child)

    for reference in references(schema):
        assert reference.removeprefix("#/$defs/") in schema["$defs"]


@pytest.mark.parametrize(
    ("handler", "stream", "schema"),
    [
        (result, False, {"type": "object", "additionalProperties": {"type": "integer"}}),
        (result_none, False, {"type": "null"}),
        (result_gone, False, None),
        (result_any, False, None),
        (one, False, None),
        (items, True, {"type": "string"}),
        (items_final, True, {"type": "string"}),
        (items_bare, True, None),
    ],
)
def test_the_schema_of_results_and_items(handler: Any, stream: bool, schema: Any) -> None:
    assert output_schema(handler, stream=stream) == schema


def test_the_schema_of_a_struct_as_result() -> None:
    found = output_schema(result_struct, stream=False)
    assert found is not None and found["title"] == "Order"


# -- over any payload --

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def taken(handler: Any, payload: bytes) -> Any:
    try:
        return Arguments(handler).bind(payload, REQUEST)
    except CallError as error:
        return None if error.reason == "invalid_payload" else pytest.fail(repr(error))


HANDLERS = [nothing, one, two, keyword, lists, extras, extras_typed, struct, data, typed_dict, model, models, union]


@given(
    st.sampled_from(HANDLERS), json_values | st.dictionaries(st.sampled_from(["n", "text", "a", "items"]), json_values)
)
def test_any_payload_is_taken_or_refused_as_a_call_error(handler: Any, payload: Any) -> None:
    bound = taken(handler, json.dumps(payload).encode())
    if bound is not None:
        handler(*bound[0], **bound[1])


@given(st.sampled_from(HANDLERS), st.binary(max_size=40))
def test_any_bytes_are_taken_or_refused_as_a_call_error(handler: Any, payload: bytes) -> None:
    taken(handler, payload)


def test_a_handler_may_name_itself_in_its_own_body() -> None:
    def decorated() -> Any:
        def fib(n: int) -> int:
            return n if n < 2 else fib(n - 1) + fib(n - 2)

        return Arguments(fib).bind(b'{"n":7}', None), fib

    def early() -> Any:
        def decorate(function: Any) -> Any:
            return Arguments(function)

        @decorate
        def again(n: int) -> Any:
            return again

        return again.bind(b'{"n":7}', None)

    assert decorated()[0] == ((7,), {})
    assert early() == ((7,), {})
