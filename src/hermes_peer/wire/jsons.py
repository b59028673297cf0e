"""JSON, both ways: fast on a link, strict at a door.

Knows: which values and which texts are refused, and how to say where. Refuses to know: what a text means.
Called by: everybody who turns a value into bytes or back.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, NoReturn

import msgspec

MAX_DIGITS = 4300  # what Python itself turns into an int without being told to (sys.set_int_max_str_digits)


def _extend(value: Any) -> Any:
    """What msgspec does not know itself: pydantic models and subclasses of the plain scalars."""
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json")
    for plain in (str, int, float):
        if isinstance(value, plain):
            return plain.__str__(value) if plain is str else plain(value)  # str() may be overridden
    raise TypeError(type(value).__qualname__)


_encode = msgspec.json.Encoder(enc_hook=_extend).encode
_decode = msgspec.json.Decoder().decode


def encode(value: Any, name: str = "payload") -> bytes:
    """`value` as JSON in UTF-8.

    Takes what msgspec takes, and pydantic models. Raises ValueError (not finite, a lone surrogate, an int of
    more than 4,300 digits, too deep) or TypeError (no JSON form), with the path: ``payload.x[2]: …``.
    """
    try:
        data = _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        _refuse(value, name, error)
    # msgspec writes NaN and the infinities as null, in silence (design-critique 15). Only an output that has the
    # four letters pays for a walk. `find`, since `in` first tries the needle as an int: three times the price.
    if data.find(b"null") >= 0:
        _require_finite(value, name)
    return data


def decode(data: bytes) -> Any:
    """The value of one JSON text, natively: of equal keys the last wins. Raises ValueError in plain words."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(explain(error, data)) from None


def explain(error: Exception, data: bytes = b"") -> str:
    """A decoder's complaint about a text (not about its types) as a plain sentence."""
    if isinstance(error, RecursionError):
        return "the JSON text nests too deeply"
    said = str(error).removeprefix("JSON is malformed: ")
    if "truncated" in said:
        if not data.strip():
            return "the JSON text is empty"
        # msgspec says "truncated" of '"\ud800"' as well.
        half = " or holds half of a surrogate pair" if re.search(rb"\\u[dD][89abAB]", data) else ""
        return f"the JSON text is cut short{half}"
    if "out of range" in said:
        return f"a number is out of range{said.partition('out of range')[2]}"
    if "Invalid UTF-8" in said or isinstance(error, UnicodeError):
        return "the JSON text is not UTF-8"
    return f"not JSON: {said}"


# -- refusing to send --


def _laid_open(value: Any) -> Any:
    # pydantic's JSON mode has made null of NaN already.
    dump = getattr(value, "model_dump", None)
    return _extend(value) if dump is None else dump()


# Cheaper than a walk: in MessagePack a float shows its eight bytes, and one that is not finite has all bits of the
# exponent set. Other bytes may look like that; then the walk tells.
_pack = msgspec.msgpack.Encoder(enc_hook=_laid_open).encode
_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]").search


def _require_finite(value: Any, name: str) -> None:
    try:
        if not _NOT_FINITE(_pack(value)):
            return
    except (TypeError, ValueError, OverflowError):
        pass  # JSON has room for more, such as large integers
    # to_builtins makes plain containers of Structs, dataclasses, sets and models and leaves floats alone.
    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_laid_open)
    except (TypeError, ValueError):  # a model that holds what only its own JSON form can show
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_extend)
    todo = [plain]
    while todo:
        part = todo.pop()
        kind = type(part)
        if kind is dict:
            todo.extend(part.values())
        elif kind is list or kind is tuple:
            todo.extend(part)
        elif kind is float and not math.isfinite(part):
            break
    else:
        return
    for path, leaf in _walk(plain):  # once more, for the path
        if type(leaf) is float and not math.isfinite(leaf):
            raise ValueError(f"{_path(path, name)}: {leaf} is not a finite number, JSON has no form for it")


def _refuse(value: Any, name: str, error: Exception) -> NoReturn:
    """Raise for a value that did not encode: go down to the smallest part that does not."""
    if isinstance(error, RecursionError):
        raise ValueError(f"{name}: nests too deeply, or contains itself") from None
    path = name
    while (step := _failing_child(value)) is not None:
        key, value, error = step
        path = _join(path, key)
    if isinstance(error, UnicodeEncodeError):
        raise ValueError(f"{path}: the text holds a lone surrogate, which has no UTF-8 form") from None
    if isinstance(error, TypeError):
        if isinstance(value, dict):
            raise TypeError(f"{path}: the keys of an object must be text") from None
        raise TypeError(
            f"{path}: {type(value).__qualname__} has no JSON form; send dict, list, str, int, float, bool, "
            "None, a dataclass, a msgspec Struct or a pydantic model"
        ) from None
    if isinstance(value, int):
        raise ValueError(f"{path}: an int of more than {MAX_DIGITS} digits") from None
    raise ValueError(f"{path}: {error}") from None


def _failing_child(value: Any) -> tuple[str | int, Any, Exception] | None:
    for key, child in _children(value):
        try:
            _encode(child)
        except (TypeError, ValueError) as error:
            return key, child, error
    return None


def _children(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return [(str(key), child) for key, child in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return enumerate(value)
    if isinstance(value, msgspec.Struct):
        return [(name, getattr(value, name)) for name in value.__struct_fields__]
    if is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in fields(value)]
    return ()


# -- the strict reader --

# The end of a string is optional, so that an unclosed one is swallowed in one go and never searched again.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_SHAPE = re.compile(r"\[\s*+\]|\{\s*+\}|[\[\]{},]")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class _Fault:
    """Stands in the decoded tree where something was refused, so that the walk can tell its path."""

    __slots__ = ("says",)

    def __init__(self, says: str) -> None:
        self.says = says


def strict_decode(data: bytes, *, max_depth: int = 64, max_values: int = 100_000) -> Any:
    """The value of one JSON text, checked in full: for doors and the command line.

    Refuses: what is not UTF-8, a byte order mark, equal keys, NaN, Infinity, numbers out of range, lone
    surrogates, depth over `max_depth`, more than `max_values` values (keys not counted), bytes behind the end.
    Raises ValueError with the position or the path (protocol 5).
    """
    if data.startswith(b"\xef\xbb\xbf"):
        raise ValueError("not JSON: a byte order mark at byte 0; send plain UTF-8")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"the JSON text is not UTF-8 at byte {error.start}") from None
    if not text.strip(" \t\r\n"):
        raise ValueError("the JSON text is empty")
    _check_size(text, max_depth, max_values)

    faults: list[_Fault] = []

    def fault(says: str) -> _Fault:
        faults.append(_Fault(says))
        return faults[-1]

    def pairs(items: list[tuple[str, Any]]) -> Any:
        found = dict(items)
        if len(found) == len(items):
            return found
        counts = Counter(key for key, _ in items)
        return fault(f"the key {_shown(counts.most_common(1)[0][0])} appears twice")

    def real(digits: str) -> Any:
        number = float(digits)
        return number if math.isfinite(number) else fault(f"the number {_shown(digits)} is out of range")

    def whole(digits: str) -> Any:
        if len(digits) <= MAX_DIGITS:
            return int(digits)
        return fault(f"an integer of {len(digits.lstrip('-'))} digits; at most {MAX_DIGITS} are read")

    def constant(word: str) -> Any:
        return fault(f"{word} is not JSON")

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_float=real, parse_int=whole, parse_constant=constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno} (character {error.pos})"
        said = "something follows the value" if error.msg == "Extra data" else error.msg.partition(":")[0].lower()
        raise ValueError(f"not JSON: {said} at {where}") from None
    if faults or _SURROGATE.search(text):
        _raise_first_fault(value, faults)
    return value


def _check_size(text: str, max_depth: int, max_values: int) -> None:
    """Count brackets and commas outside of strings before anything recursive sees the text."""
    bare = _STRING.sub("", text)
    depth, values = 0, 1
    for match in _SHAPE.finditer(bare):
        mark = match.group()
        if mark == ",":
            values += 1
        elif mark in "[{":
            depth += 1
            values += 1
            if depth > max_depth:
                raise ValueError(f"the JSON text nests deeper than {max_depth} levels")
        elif mark in "]}":
            depth -= 1
        elif depth >= max_depth:  # an empty container: a level, but no value inside
            raise ValueError(f"the JSON text nests deeper than {max_depth} levels")
        if values > max_values:
            raise ValueError(f"the JSON text holds more than {max_values} values")


def _raise_first_fault(value: Any, faults: list[_Fault]) -> None:
    for path, leaf in _walk(value):
        if isinstance(leaf, _Fault):
            raise ValueError(f"{_path(path)}: {leaf.says}")
        if type(leaf) is str and not leaf.isascii() and _has_surrogate(leaf):
            raise ValueError(f"{_path(path)}: a lone surrogate in the text")
        if type(leaf) is dict:
            for key in leaf:
                if not key.isascii() and _has_surrogate(key):
                    raise ValueError(f"{_path(path)}: a lone surrogate in the key {_shown(key)}")
    if faults:  # inside an object that was itself refused or overwritten
        raise ValueError(faults[0].says)


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


# -- paths --

_Place = tuple[Any, str | int] | None  # linked from the leaf up: built for nothing unless somebody asks


def _walk(value: Any) -> Iterator[tuple[_Place, Any]]:
    """Every part of a plain tree, containers first, without recursion."""
    todo: list[tuple[_Place, Any]] = [(None, value)]
    while todo:
        place, part = todo.pop()
        yield place, part
        if type(part) is dict:
            todo.extend([((place, key), child) for key, child in part.items()][::-1])
        elif type(part) is list or type(part) is tuple:
            todo.extend([((place, index), child) for index, child in enumerate(part)][::-1])


def _path(place: _Place, name: str = "") -> str:
    steps: list[str | int] = []
    while place is not None:
        place, step = place
        steps.append(step)
    path = name
    for step in reversed(steps):
        path = _join(path, step)
    return path or "the top"


def _join(path: str, step: str | int) -> str:
    if isinstance(step, int):
        return f"{path}[{step}]"
    if not step.isidentifier():
        return f"{path}[{_shown(step)}]"
    return f"{path}.{step}" if path else step


def _shown(text: str) -> str:
    """A peer's own text within an error: short, and free of control characters and surrogates."""
    return json.dumps(text if len(text) <= 64 else text[:64] + "…", ensure_ascii=True)
