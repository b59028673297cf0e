"""A decoder's complaint as the CallError that names the field.

Knows: the sentences of msgspec and pydantic, msgspec's view of a type. Refuses to know: signatures, calls.
Called by: schema, when a payload does not fit; methods and tasks for errors of their own.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import inspect as shapes

from hermes_peer.errors import CallError, Code
from hermes_peer.wire import jsons

MOST_NAMED = 20  # names listed in one error
_LONGEST_NAME = 64

_SAID = re.compile(r"(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(?:\d+|\.\.\.)\]")
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_TYPE = re.compile(r"Expected (.*?)(?:, got `(.*)`)?", re.DOTALL)


def invalid(field: str, problem: str, **details: Any) -> CallError:
    """The error for one field: message "field `n`: expected int, got str", details `{field, …}`."""
    return CallError(
        "invalid_payload",
        f"field `{field}`: {problem}" if field else f"the payload {problem}",
        details={"field": field, **details},
        code=Code.ERROR_INVALID_REQUEST,
    )


def explained(error: Exception, payload: bytes, info: Any, under: str = "") -> CallError:
    """The CallError for what decoding `payload` raised. `info`: msgspec's view of the type, for what is allowed."""
    if isinstance(error, CallError):
        return error
    model_error = error if hasattr(error, "errors") else error.__cause__
    if isinstance(error, msgspec.ValidationError):
        said = _SAID.fullmatch(str(error))
        assert said is not None  # every part of the pattern is optional
        path = under + (said["path"] or "")
        if model_error is None or not hasattr(model_error, "errors"):
            if "out of range" in said["what"]:
                return invalid(_field(path), jsons.explain(error).partition(" - at")[0])
            return _of_msgspec(said["what"], path, _at(info, said["path"] or ""), of_key=bool(said["key"]))
    else:
        path = under
    if model_error is not None and hasattr(model_error, "errors"):
        return _of_pydantic(model_error, _field(path), _at(info, path))
    return invalid("", f"cannot be read: {jsons.explain(error, payload)}", expected="object")


def _of_msgspec(what: str, path: str, info: Any, *, of_key: bool) -> CallError:
    field = _field(path)
    if match := _MISSING.fullmatch(what):
        return _missing(_join(field, match[1]), expected(_member(info, match[1])))
    if match := _UNKNOWN.fullmatch(what):
        return _unknown(_join(field, match[1]), match[1], _names(info))
    if what.startswith("Invalid enum value"):
        return invalid(field, f"expected {expected(info)}, got {what[19:][:_LONGEST_NAME]}", expected=expected(info))
    if match := _TYPE.fullmatch(what):
        wanted, got = match[1].replace("`", ""), match[2]
        if not path and wanted == "object":
            return invalid("", f"must be an object, got {got}", expected="object")
        of = "a key of " if of_key else ""
        return invalid(field, f"expected {of}{wanted}" + (f", got {got}" if got else ""), expected=wanted)
    return invalid(field, what[:1].lower() + what[1:], expected=expected(info))


def _of_pydantic(error: Any, field: str, info: Any) -> CallError:
    first = error.errors(include_url=False, include_context=False, include_input=True)[0]
    for step in first["loc"]:
        field = f"{field}[{step}]" if isinstance(step, int) else _join(field, step)
    if first["type"] == "missing":
        return _missing(field, "")
    if first["type"] == "extra_forbidden":
        model = info.cls if isinstance(info, shapes.CustomType) and len(first["loc"]) == 1 else None
        fields = getattr(model, "model_fields", {})
        return _unknown(field, str(first["loc"][-1]), [known.alias or name for name, known in fields.items()])
    got = _JSON_NAMES.get(type(first["input"]), "")
    problem = first["msg"][:1].lower() + first["msg"][1:]
    return invalid(field, problem + (f", got {got}" if got else ""), expected=first["type"].removesuffix("_type"))


_JSON_NAMES = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    list: "array",
    dict: "object",
    type(None): "null",
}


def _missing(field: str, wanted: str) -> CallError:
    return invalid(field, "missing" + (f", expected {wanted}" if wanted else ""), expected=wanted)


def _unknown(field: str, name: str, allowed: list[str]) -> CallError:
    listed = ", ".join(f"`{known}`" for known in allowed[:MOST_NAMED]) or "none"
    by_lower = {known.lower(): known for known in allowed}
    near = [by_lower[match] for match in difflib.get_close_matches(name[:_LONGEST_NAME].lower(), by_lower, n=1)]
    hint = f" (did you mean `{near[0]}`?)" if near else ""
    return invalid(field, f"unknown{hint}; allowed: {listed}", allowed=allowed[:MOST_NAMED])


# -- paths: "$.lines[0].n" to "lines[0].n", and to the type that stands there --


def _field(path: str) -> str:
    return path.removeprefix(".")[: 4 * _LONGEST_NAME]


def _join(field: str, name: Any) -> str:
    short = str(name) if len(str(name)) <= _LONGEST_NAME else str(name)[:_LONGEST_NAME] + "…"
    return f"{field}.{short}" if field else short


def _at(info: Any, path: str) -> Any:
    for step in _STEP.finditer(path):
        info = _member(info, step[1])
    return info


def _member(info: Any, name: str | None) -> Any:
    """The type of a field (or, without a name, of an item); None where it cannot be told."""
    for choice in info.types if isinstance(info, shapes.UnionType) else (info,):
        if isinstance(choice, shapes.Metadata):
            choice = choice.type
        if name is None:
            found = getattr(choice, "item_type", None) or getattr(choice, "value_type", None)
        else:
            fields = getattr(choice, "fields", ())
            found = next((field.type for field in fields if field.encode_name == name), None)
        if found is not None:
            return found
    return None


def _names(info: Any) -> list[str]:
    choices: Iterable[Any] = info.types if isinstance(info, shapes.UnionType) else (info,)
    return [field.encode_name for choice in choices for field in getattr(choice, "fields", ())]


_WORDS = {
    "AnyType": "any value",
    "CustomType": "object",
    "DataclassType": "object",
    "DictType": "object",
    "FrozenSetType": "array",
    "ListType": "array",
    "NoneType": "null",
    "SetType": "array",
    "StructType": "object",
    "TupleType": "array",
    "TypedDictType": "object",
    "VarTupleType": "array",
}


def expected(info: Any) -> str:
    """A type in the words of an error: "int", "array", "one of 'a', 'b'"; "" where it is not known."""
    if info is None:
        return ""
    if isinstance(info, shapes.Metadata):
        return expected(info.type)
    if isinstance(info, shapes.UnionType):
        return " | ".join(expected(choice) for choice in info.types)
    if isinstance(info, shapes.LiteralType):
        return "one of " + ", ".join(repr(value) for value in info.values[:MOST_NAMED])
    if isinstance(info, shapes.EnumType):
        return "one of " + ", ".join(repr(member.value) for member in list(info.cls)[:MOST_NAMED])
    name = type(info).__name__
    return _WORDS.get(name) or name.removesuffix("Type").lower()
