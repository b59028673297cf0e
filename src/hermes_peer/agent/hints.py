"""Type hints of a handler, as types that a payload can become, or a UsageError in plain words.

Knows: how annotations are written and resolved, and which types JSON can fill. Refuses to know: payloads, calls.
Called by: schema, when a method is registered.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec import inspect as shapes

from hermes_peer.errors import UsageError


def label(handler: Any) -> str:
    """The name of a handler in a sentence."""
    named = inspect.unwrap(handler.func if isinstance(handler, functools.partial) else handler)
    return str(getattr(named, "__qualname__", type(named).__qualname__)).replace("<locals>.", "")


def resolve(handler: Any, hint: Any, what: str) -> Any:
    """One annotation of `handler` as a type; text is evaluated where the handler was written, none is Any."""
    if hint is inspect.Signature.empty:
        return Any
    written = handler.func if isinstance(handler, functools.partial) else handler
    if not inspect.isroutine(written) and not isinstance(written, type):
        written = type(written).__call__
    written = inspect.unwrap(written)
    written = getattr(written, "__func__", written)
    closure = _closure(written) if inspect.isfunction(written) else {}
    space = types.SimpleNamespace(__annotations__={"hint": hint})
    try:
        found = typing.get_type_hints(space, getattr(written, "__globals__", {}), closure, include_extras=True)["hint"]
    except NameError as error:
        raise UsageError(
            f"{label(handler)}: the hint `{hint}` of {what} cannot be resolved ({error}); "
            "define the type at the top of the module, and import it for more than type checking"
        ) from None
    except (TypeError, SyntaxError, AttributeError) as error:
        raise UsageError(f"{label(handler)}: the hint `{hint}` of {what} is no type: {error}") from None
    return Any if found is object else found


def _closure(function: types.FunctionType) -> dict[str, Any]:
    """What the function closes over; a cell is empty while the function that names itself is being decorated."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def takes_whole(hint: Any) -> bool:
    """Whether a lone parameter of this type stands for the whole payload."""
    if get_origin(hint) is Annotated:
        return takes_whole(get_args(hint)[0])
    if get_origin(hint) in (typing.Union, types.UnionType):
        return all(takes_whole(member) for member in get_args(hint))
    kind = get_origin(hint) or hint
    if not isinstance(kind, type):
        return False
    if issubclass(kind, msgspec.Struct):
        return not kind.__struct_config__.array_like
    return is_dataclass(kind) or typing.is_typeddict(kind) or hasattr(kind, "__attrs_attrs__") or is_model(kind)


def is_model(kind: Any) -> bool:
    """Whether this is a class of pydantic's models, told by its shape."""
    return isinstance(kind, type) and hasattr(kind, "model_validate_json")


def inspected(handler: Any, form: Any) -> shapes.Type:
    """msgspec's own view of a type; refuses types that no JSON value can become."""
    try:
        info = shapes.type_info(form)
    except (TypeError, NameError) as error:
        raise UsageError(f"{label(handler)}: {error}") from None
    for kind in _foreign(info, set()):
        if kind is not object and not is_model(kind):
            raise UsageError(
                f"{label(handler)}: no payload can become a {kind.__qualname__}; payload fields are "
                "JSON types, dataclasses, msgspec Structs or pydantic models; the request goes to `request`"
            )
    return info


def _foreign(info: Any, seen: set[int]) -> Iterator[type]:
    if id(info) in seen:
        return
    seen.add(id(info))
    if isinstance(info, shapes.CustomType):
        yield info.cls
    elif isinstance(info, tuple):
        for part in info:
            yield from _foreign(part, seen)
    elif isinstance(info, shapes.Type | shapes.Field):
        for name in info.__struct_fields__:
            yield from _foreign(getattr(info, name), seen)
