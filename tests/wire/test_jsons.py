"""wire/jsons: what is sent, what is read, and what is refused with which words."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.wire import jsons

NAN, INF = float("nan"), float("inf")


class Point(msgspec.Struct):
    x: Any
    y: Any = None


@dataclass
class Box:
    inside: Any
    note: Any = None


class Model(pydantic.BaseModel):
    n: Any
    more: Any = None


class Odd(pydantic.BaseModel):
    at: dict[tuple[int, int], int]  # its keys are text in its JSON form only
    n: Any


class Colour(StrEnum):
    RED = "red"


class Shout(str):
    def __str__(self) -> str:
        return "overridden"


class Score(float):
    pass


# -- sending --


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"i": 1, "text": "hello"}, b'{"i":1,"text":"hello"}'),
        (None, b"null"),
        ({"a": None, "b": [1.5, None]}, b'{"a":null,"b":[1.5,null]}'),
        ("the word null is text", b'"the word null is text"'),
        (Point(1), b'{"x":1,"y":null}'),
        (Box([Point(2, 3)]), b'{"inside":[{"x":2,"y":3}],"note":null}'),
        (Model(n=1), b'{"n":1,"more":null}'),
        ({"deep": [Model(n=Model(n=2))]}, b'{"deep":[{"n":{"n":2,"more":null},"more":null}]}'),
        (Colour.RED, b'"red"'),
        (Shout("quiet"), b'"quiet"'),
        ([Score(1.5), None], b"[1.5,null]"),
        ((1, 2), b"[1,2]"),
        ("é😀", '"é😀"'.encode()),
        (10**40, b"1" + b"0" * 40),
    ],
)
def test_encode(value: Any, data: bytes) -> None:
    assert jsons.encode(value) == data


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (NAN, "payload"),
        ({"x": [1, 2, NAN]}, "payload.x[2]"),
        ({"x": {"y": INF}}, "payload.x.y"),
        ({"x": (0, -INF)}, "payload.x[1]"),
        ({"two words": NAN}, 'payload["two words"]'),
        (Point(1, [None, NAN]), "payload.y[1]"),
        (Box(Point({"k": INF})), "payload.inside.x.k"),
        ({"m": Model(n=[NAN])}, "payload.m.n[0]"),
        ({"m": Odd(at={(1, 2): 3}, n=None), "x": NAN}, "payload.x"),
        ([Score("nan")], "payload[0]"),
        ({"none": None, "nan": NAN}, "payload.nan"),
    ],
)
def test_a_number_that_is_not_finite_is_refused_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(ValueError) as refused:
        jsons.encode(value)
    assert str(refused.value).startswith(f"{path}: ")
    assert "finite" in str(refused.value)


def test_the_path_begins_with_the_given_name() -> None:
    with pytest.raises(ValueError, match=r"^result\.x: "):
        jsons.encode({"x": NAN}, "result")


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        ({"a": [object()]}, TypeError, "payload.a[0]: object has no JSON form"),
        (Point(1, {"f": print}), TypeError, "payload.y.f: builtin_function_or_method has no JSON form"),
        (Box({"c": 1j}), TypeError, "payload.inside.c: complex has no JSON form"),
        ({"a": {(1, 2): 3}}, TypeError, "payload.a: the keys of an object must be text"),
        ({"a": Model}, TypeError, "payload.a: ModelMetaclass has no JSON form"),
        ({"a": ["x", "\ud800"]}, ValueError, "payload.a[1]: the text holds a lone surrogate"),
        ({"n": [10**5000]}, ValueError, "payload.n[0]: an int of more than 4300 digits"),
    ],
)
def test_what_has_no_json_form(value: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as refused:
        jsons.encode(value)
    assert str(refused.value).startswith(says)


def test_a_value_that_contains_itself() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(ValueError, match="contains itself"):
        jsons.encode(ring)


def test_a_deep_value_with_null_in_it_is_walked_without_recursion() -> None:
    deep: Any = None
    for _ in range(400):
        deep = [deep]
    assert jsons.decode(jsons.encode(deep)) == deep


# -- reading natively --


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "the JSON text is empty"),
        (b'{"a":1', "the JSON text is cut short"),
        (b'{"a":1} x', "not JSON: trailing characters"),
        (b'"\xff"', "the JSON text is not UTF-8"),
        (b"[1e999]", "a number is out of range"),
        (b"NaN", "not JSON: invalid character (byte 0)"),
        (b'"\\ud800"', "the JSON text is cut short or holds half of a surrogate pair"),
        (b'"\\ud800 etc."', "not JSON: "),
        (b"[" * 100_000 + b"]" * 100_000, "the JSON text nests too deeply"),
        (b"1" * 5000, "a number is out of range"),
        (b"\xef\xbb\xbf{}", "not JSON: "),
    ],
)
def test_decode_refuses_in_plain_words(data: bytes, says: str) -> None:
    with pytest.raises(ValueError) as refused:
        jsons.decode(data)
    assert str(refused.value).startswith(says)
    assert not isinstance(refused.value, msgspec.MsgspecError)


# Signatures cover bytes, so natively the last of equal keys wins (design-critique 15).
def test_decode_takes_the_last_of_equal_keys() -> None:
    assert jsons.decode(b'{"a":1,"a":2}') == {"a": 2}


ESCAPES = [
    (b'"\\u00e9"', '"é"'),
    (b'"\\u4f60\\u597d"', '"你好"'),
    (b'"\\ud83d\\ude00"', '"😀"'),
    (b'"\\uD83D\\uDE00!"', '"😀!"'),
    (b'{"\\u00fc":"\\u0041"}', '{"ü":"A"}'),
    (b'"\\u0000\\u001f"', '"\\u0000\\u001f"'),
    (b'"\\u2028\\/\\b"', '"\u2028/\\b"'),
    (b'"\\ufeff"', '"\ufeff"'),
]


@pytest.mark.parametrize(("escaped", "raw"), ESCAPES)
def test_escapes_and_raw_utf8_mean_the_same(escaped: bytes, raw: str) -> None:  # mission I16
    for read in (jsons.decode, jsons.strict_decode):
        assert read(escaped) == read(raw.encode()) == json.loads(raw)
    assert jsons.encode(jsons.decode(escaped)) == jsons.encode(jsons.decode(raw.encode()))


# -- reading strictly --


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b" [ ] \r\n",
        b'{"a":{"b":[1,2.5,-0,"x",true,false,null]}}',
        b'{"[{":"]}"}',
        b'"\\"[[[[\\\\"',
        b"1E5",
        b"9" * 4300,
        b"-" + b"9" * 4299,
        b"[[],{}]",
    ],
)
def test_strict_decode_takes(data: bytes) -> None:
    assert jsons.strict_decode(data) == json.loads(data)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "the JSON text is empty"),
        (b" \n", "the JSON text is empty"),
        (b"\xef\xbb\xbf{}", "not JSON: a byte order mark at byte 0"),
        (b'{"a":"\xc3"}', "the JSON text is not UTF-8 at byte 6"),
        (b'"\xed\xa0\x80"', "the JSON text is not UTF-8 at byte 1"),
        (b"\xff\xfe{\x00}\x00", "the JSON text is not UTF-8 at byte 0"),
        (b'{"a":1,"b":2,"a":3}', 'the top: the key "a" appears twice'),
        (b'{"x":[0,{"a":1,"\\u0061":2}]}', 'x[1]: the key "a" appears twice'),
        (b'{"y":{"k":{"a":{"q":1,"q":2}}}}', 'y.k.a: the key "q" appears twice'),
        (b'{"k":{"a":1,"a":2},"k":3}', "the top: "),
        (b'{"x":[1,NaN]}', "x[1]: NaN is not JSON"),
        (b'{"x":{"y":Infinity}}', "x.y: Infinity is not JSON"),
        (b"-Infinity", "the top: -Infinity is not JSON"),
        (b'{"x":1e999}', 'x: the number "1e999" is out of range'),
        (b'{"x":-1e999}', 'x: the number "-1e999" is out of range'),
        (b'{"x":"\\ud800"}', "x: a lone surrogate in the text"),
        (b'{"x":["\\uDC00abc"]}', "x[0]: a lone surrogate in the text"),
        (b'{"x":"\\ude00\\ud83d"}', "x: a lone surrogate in the text"),
        (b'{"x":{"\\ud800":1}}', 'x: a lone surrogate in the key "\\ud800"'),
        (b'{"n":' + b"1" * 4301 + b"}", "n: an integer of 4301 digits; at most 4300 are read"),
        (b"{} {}", "not JSON: something follows the value at line 1 column 4 (character 3)"),
        (b"{}\x00", "not JSON: something follows the value"),
        (b'{"a":1,}', "not JSON: "),
        (b"{'a':1}", "not JSON: "),
        (b"[1,\n2", "not JSON: "),
        (b"01", "not JSON: something follows the value"),
        (b"\xc2\xa0{}", "not JSON: "),
        (b'"\x01"', "not JSON: invalid control character at"),
        (b"[" * 65 + b"]" * 65, "the JSON text nests deeper than 64 levels"),
        (b'{"a":' * 64 + b"{ }" + b"}" * 64, "the JSON text nests deeper than 64 levels"),
        (b"[" * 1_000_000, "the JSON text nests deeper than 64 levels"),
        (b"[" + b"0," * 100_000 + b"0]", "the JSON text holds more than 100000 values"),
        (b"[" + b"[]," * 100_000 + b"0]", "the JSON text holds more than 100000 values"),
    ],
)
def test_strict_decode_refuses(data: bytes, says: str) -> None:
    with pytest.raises(ValueError) as refused:
        jsons.strict_decode(data)
    assert str(refused.value).startswith(says), str(refused.value)


def test_the_limits_are_exact() -> None:
    assert jsons.strict_decode(b"[" * 64 + b"]" * 64)
    assert jsons.strict_decode(b"[[1]]", max_depth=2) == [[1]]
    with pytest.raises(ValueError, match="deeper than 1 levels"):
        jsons.strict_decode(b"[[]]", max_depth=1)
    assert jsons.strict_decode(b'{"a":[1,2],"b":{}}', max_values=5)  # the object, a, 1, 2, b
    with pytest.raises(ValueError, match="more than 4 values"):
        jsons.strict_decode(b'{"a":[1,2],"b":{}}', max_values=4)


def test_brackets_and_commas_in_text_do_not_count() -> None:
    assert jsons.strict_decode(json.dumps(["[" * 500 + "," * 500 + '"' * 3 + "\\"]).encode(), max_values=2)


def test_a_key_in_an_error_is_short_and_harmless() -> None:
    with pytest.raises(ValueError) as refused:
        jsons.strict_decode(b'{"\\u001b[31m' + b"k" * 9000 + b'":NaN}')
    assert "\x1b" not in str(refused.value) and len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "data",
    [
        b'"' + b'\\"' * 500_000,
        b'"' * 999_999,
        b"\\" * 1_000_000,
        b"[" + b" " * 1_000_000,
        b"[ " * 500_000,
        b"{" + b" \n" * 500_000 + b"x",
    ],
)
def test_hostile_texts_cost_no_more_than_their_length(data: bytes) -> None:
    begun = time.perf_counter()
    with pytest.raises(ValueError):
        jsons.strict_decode(data)
    assert time.perf_counter() - begun < 2  # quadratic ones take minutes


# -- over any value --

texts = st.text(st.characters(exclude_categories=("Cs",)))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=30,
)


@given(st.dictionaries(texts, values))
def test_what_is_encoded_decodes_to_itself(value: dict[str, Any]) -> None:
    data = jsons.encode(value)
    assert jsons.decode(data) == value
    assert jsons.strict_decode(data) == value
    assert jsons.decode(json.dumps(value).encode()) == value  # every character escaped


def _of_json_loads(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return _REFUSED


_REFUSED = object()
pieces = st.sampled_from(
    ['{"a":', "{", "}", "[", "]", ",", "1", "-0.5", "1e999", "NaN", '"a"', ":", '"\\ud800"', "true", " ", "null"]
)


@given(st.lists(pieces, max_size=12).map("".join) | values.map(json.dumps))
def test_strict_decode_agrees_with_json_loads(text: str) -> None:
    data = text.encode()
    theirs = _of_json_loads(data)
    try:
        ours = jsons.strict_decode(data)
    except ValueError:
        return  # whether rightly is asked above
    assert theirs is not _REFUSED
    assert ours == theirs


@given(values)
def test_strict_decode_takes_all_that_json_dumps_writes(value: Any) -> None:
    assert jsons.strict_decode(json.dumps(value).encode()) == value


@given(st.recursive(st.floats() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(texts, inner)))
def test_encode_refuses_exactly_what_is_not_finite(value: Any) -> None:
    def finite(part: Any) -> bool:
        if isinstance(part, float):
            return math.isfinite(part)
        inner = part.values() if isinstance(part, dict) else part or []
        return all(finite(child) for child in inner)

    if finite(value):
        assert jsons.decode(jsons.encode(value)) == value
    else:
        with pytest.raises(ValueError, match="not a finite number"):
            jsons.encode(value)
