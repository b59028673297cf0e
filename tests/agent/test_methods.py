"""agent/methods: shapes, names, marks, the table, and the answer to an unknown name."""

from __future__ import annotations

import functools
import types
from typing import Any

import msgspec
import pytest

from hermes_peer.agent.methods import Method, Methods, Shape, check_name, collect, method, shape_of, unknown_method
from hermes_peer.errors import CallError, Code, MethodNotFound, UsageError

REQUEST = object()


async def coroutine(text: str) -> dict[str, str]:
    """Says it louder.

    At length.
    """
    return {"text": text.upper()}


async def stream(text: str):
    yield text


def plain(text: str) -> str:
    return text


def plain_stream(text: str):
    yield text


class Both:
    async def coroutine(self, n: int) -> int:
        return n

    async def __call__(self, n: int) -> int:
        """Called."""
        return n


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **keywords: Any) -> Any:
        return function(*args, **keywords)

    return wrapper


@pytest.mark.parametrize(
    ("handler", "shape"),
    [
        (coroutine, Shape.CALL),
        (stream, Shape.STREAM),
        (plain, Shape.THREAD),
        (plain_stream, Shape.THREAD_STREAM),
        (Both().coroutine, Shape.CALL),
        (Both(), Shape.CALL),
        (functools.partial(coroutine, text="x"), Shape.CALL),
        (functools.partial(plain_stream), Shape.THREAD_STREAM),
        (logged(coroutine), Shape.CALL),
        (logged(stream), Shape.STREAM),
        (logged(plain), Shape.THREAD),
        (functools.partial(logged(stream)), Shape.STREAM),
        (lambda n: n, Shape.THREAD),
    ],
)
def test_shapes(handler: Any, shape: Shape) -> None:
    assert shape_of(handler) is shape
    assert shape.streams is (shape in (Shape.STREAM, Shape.THREAD_STREAM))


def test_a_method() -> None:
    shout = Method("text.shout", coroutine, min_ttl=2, public=True)
    assert shout.arguments(b'{"text":"hi"}', REQUEST) == (("hi",), {})
    assert (shout.kind, shout.shape, shout.contract, shout.default) == ("method", Shape.CALL, "", False)
    with pytest.raises(CallError, match="field `text`: expected str, got int"):
        shout.arguments(b'{"text":1}', REQUEST)
    assert repr(shout) == "<method text.shout call>"


def test_describe() -> None:
    assert Method("text.shout", coroutine, min_ttl=2, public=True).describe() == {
        "name": "text.shout",
        "kind": "method",
        "doc": "Says it louder.\n\nAt length.",
        "schema_in": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
            "additionalProperties": False,
        },
        "schema_out": {"type": "object", "additionalProperties": {"type": "string"}},
        "stream": False,
        "min_ttl": 2.0,
        "public": True,
        "contract": "",
        "default": False,
    }
    assert Method("s", plain_stream).describe()["stream"] is True
    for handler, doc in [(Both(), "Called."), (functools.partial(coroutine), "Says it louder."), (plain, "")]:
        described = Method("x", handler).describe()
        assert described["doc"].split("\n")[0] == doc
        msgspec.json.encode(described)  # it travels


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"contract": "often"}, 'contract= is "idempotent", "transactional" or left out'),
        ({"contract": ""}, "contract= is"),
        ({"min_ttl": 0}, "min_ttl= is a number of seconds above 0, not 0"),
        ({"min_ttl": "5"}, "min_ttl= is a number of seconds above 0, not '5'"),
        ({"min_ttl": float("nan")}, "min_ttl="),
        ({"min_ttl": float("inf")}, "min_ttl="),
        ({"kind": "event", "default": True}, "only a method can be the default"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as refused:
        Method("x", coroutine, **options)
    assert says in str(refused.value)


def test_handlers_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="an event has no items"):
        Method("x", stream, kind="event")
    with pytest.raises(UsageError, match="must be a function, not int"):
        Method("x", 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a", "text.shout", "a_1.b_2.c", "0", "_", "a" * 128])
def test_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "a.", ".a", "a..b", "A", "a-b", "a b", "ä", "a\n", "a/b", "٣", "a" * 129, "a.b\x00", None, 3]
)
def test_names_outside_the_grammar(name: Any) -> None:
    for use in (lambda: check_name(name), lambda: Method(name, coroutine), lambda: method(name)):
        with pytest.raises(UsageError, match=r"text\.shout"):
            use()


# -- marks --


@method("tools.alone", public=True)
async def alone(n: int) -> int:
    return n


@method("tools.old")
@method("tools.new", min_ttl=3)
def two_names(n: int) -> int:
    return n


class Stock:
    def __init__(self, count: int) -> None:
        self.count = count

    @method("stock.take", min_ttl=1)
    async def take(self, n: int, request: Any) -> int:
        self.count -= n
        return self.count

    def unmarked(self) -> None: ...

    @method("stock.name")
    @staticmethod
    def name() -> str:
        return "stock"

    @staticmethod
    @method("stock.size")
    def size() -> int:
        return 1

    @classmethod
    @method("stock.kind")
    def kind(cls) -> str:
        return cls.__name__

    @property
    def never_read(self) -> int:
        raise AssertionError("collecting must not run properties")


class Cellar(Stock):
    async def take(self, n: int, request: Any) -> int:  # an override keeps the name
        return -n

    size = None  # type: ignore[assignment]  # and this takes one away

    @method("cellar.light")
    async def light(self, on: bool) -> bool:
        return on


class StaticOnly:
    @staticmethod
    @method("static.one")
    def one() -> int:
        return 1


def names(methods: list[Method]) -> list[str]:
    return [found.name for found in methods]


def test_collect_a_function() -> None:
    (found,) = collect(alone)
    assert (found.name, found.handler, found.public) == ("tools.alone", alone, True)
    assert [(found.name, found.min_ttl) for found in collect(two_names)] == [("tools.old", None), ("tools.new", 3.0)]


def test_a_marked_function_stays_as_it_is() -> None:
    assert two_names(3) == 3


def test_collect_an_object() -> None:
    stock = Stock(5)
    take, *others = collect(stock)
    assert names([take, *others]) == ["stock.take", "stock.name", "stock.size", "stock.kind"]
    assert take.min_ttl == 1.0
    args, keywords = take.arguments(b'{"n":2}', REQUEST)
    with pytest.raises(StopIteration) as ended:
        take.handler(*args, **keywords).send(None)
    assert ended.value.value == 3 == stock.count
    assert [other.handler() for other in others] == ["stock", 1, "Stock"]


def test_collect_one_bound_method() -> None:
    stock = Stock(5)
    assert names(collect(stock.take)) == ["stock.take"]
    assert collect(stock.take)[0].handler.__self__ is stock


def test_collect_an_heir() -> None:
    cellar = Cellar(5)
    found = collect(cellar)
    assert names(found) == ["stock.take", "stock.name", "stock.kind", "cellar.light"]
    assert found[0].handler.__func__ is Cellar.take


def test_collect_a_module() -> None:
    module = types.ModuleType("tools")
    vars(module).update(alone=alone, again=alone, two_names=two_names, plain=plain, Stock=Stock, number=3)
    assert names(collect(module)) == ["tools.alone", "tools.old", "tools.new"]


def test_collect_a_class() -> None:
    with pytest.raises(UsageError, match=r"include an object, not the class: agent.include\(Stock\(…\)\)"):
        collect(Stock)
    assert names(collect(StaticOnly)) == ["static.one"]


class Nosy:
    def __getattr__(self, name: str) -> Any:
        return lambda: name


@pytest.mark.parametrize("obj", [plain, Both(), types.ModuleType("empty"), 3, "text", Nosy()])
def test_nothing_marked(obj: Any) -> None:
    with pytest.raises(UsageError, match="is marked with @method"):
        collect(obj)


def test_marks_that_cannot_be() -> None:
    def often() -> None: ...

    marked = method("x", contract="often")(often)
    with pytest.raises(UsageError, match="contract= is"):
        collect(marked)
    with pytest.raises(UsageError, match=r'a method needs a name: @method\("text.shout"\)'):
        method(plain)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="marks functions, not a property"):
        method("x")(property(lambda self: 1))


# -- the table --


def test_the_table() -> None:
    table = Methods()
    first, second = Method("b", coroutine), Method("a", stream, default=True)
    assert (table.version, table.default, table.get("b"), len(table)) == (0, None, None, 0)
    assert table.add(first) is first
    table.add(second)
    assert (table.version, table.default, table.get("b"), len(table)) == (2, second, first, 2)
    assert list(table) == [first, second] and "a" in table and "c" not in table
    assert table.get("c") is None  # the default is the caller's decision
    assert table.remove("a") is second
    assert (table.version, table.default, list(table)) == (3, None, [first])
    table.add(Method("a", plain, default=True))
    assert table.version == 4


def test_what_the_table_refuses_changes_nothing() -> None:
    table = Methods()
    table.add(Method("a", coroutine, default=True))
    for refused, says in [
        (lambda: table.add(Method("a", plain)), "a is registered already"),
        (lambda: table.add(Method("b", plain, default=True)), "b: a is the default method already"),
        (lambda: table.add(Method("hermes.status", plain)), "names under hermes are the product's own"),
        (lambda: table.add(Method("hermes", plain)), "names under hermes are the product's own"),
        (lambda: table.remove("c"), "c is not registered"),
    ]:
        with pytest.raises(UsageError, match=says):
            refused()
    assert (table.version, len(table)) == (1, 1)
    table.add(Method("hermes.status", plain), own=True)
    table.add(Method("hermesian.status", plain))


def test_the_table_may_change_while_it_is_listed() -> None:
    table = Methods()
    table.add(Method("a", plain))
    table.add(Method("b", plain))
    assert [table.remove(found.name).name for found in table] == ["a", "b"]


# -- an unknown name --


def test_an_unknown_name_with_a_near_one() -> None:
    error = unknown_method("text.shuot", ["text.words", "text.shout", "stock.take"])
    assert isinstance(error, MethodNotFound)
    assert (error.code, error.reason) == (Code.ERROR_TOOL_NOT_FOUND, "unknown_method")
    assert error.message == "there is no method `text.shuot`; did you mean `text.shout`?"
    assert error.details == {
        "method": "text.shuot",
        "nearest": ["text.shout"],
        "allowed": ["stock.take", "text.shout", "text.words"],
    }


def test_an_unknown_name_without_a_near_one() -> None:
    assert unknown_method("zzz", []).message == "there is no method `zzz`"
    assert unknown_method("zzz", ["b", "a"]).message == "there is no method `zzz`; you may call `a`, `b`"


def test_at_most_twenty_are_listed() -> None:
    error = unknown_method("zzz", (f"m{number:02}" for number in range(30)))
    assert error.message.endswith("`m04` and 25 more")
    assert error.details["allowed"] == [f"m{number:02}" for number in range(20)]
    assert error.details["more"] == 10


def test_a_long_unknown_name_comes_back_short() -> None:
    error = unknown_method("x" * 100_000, ["a"])
    assert len(error.message) < 250 and len(error.details["method"]) == 128
