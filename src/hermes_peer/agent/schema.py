"""From a handler's signature to a decoder of its payload and a JSON Schema.

Knows: parameters, type hints, msgspec's and pydantic's complaints and how to name the field in them.
Refuses to know: methods, calls, the wire. Called by: methods, once per registration; `bind`, once per call.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import types
import typing
from collections import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args, get_origin

import msgspec

from hermes_peer.agent.hints import inspected, is_model, label, resolve, takes_whole
from hermes_peer.agent.refusals import explained, invalid
from hermes_peer.agent.values import Final
from hermes_peer.errors import UsageError
from hermes_peer.wire import jsons

Bound = tuple[tuple[Any, ...], dict[str, Any]]

_ABSENT = inspect.Parameter.empty
_NO_KEYWORDS: dict[str, Any] = {}  # shared by all calls: `handler(*args, **keywords)` copies it
_REFUSALS = (ValueError, msgspec.MsgspecError, RecursionError)
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter filled from the payload. `default` is `inspect.Parameter.empty` where there is none."""

    name: str
    hint: Any
    default: Any
    keyword_only: bool


class Arguments:
    """What a handler takes. `bind(payload, request)` gives `(args, keywords)` for it, or raises CallError.

    The forms (sdk: Handlers): parameters are payload fields; a lone Struct, dataclass, TypedDict or pydantic
    model takes the whole payload; `**more` takes the fields left over; a parameter named `request` gets the
    request, and with nothing beside it the payload is not touched.
    Raises UsageError for a signature that no payload can fill.
    """

    __slots__ = ("_info", "_values", "_whole", "bind", "extra", "form", "parameters")

    bind: Callable[[bytes, Any], Bound]

    def __init__(self, handler: Callable[..., Any]) -> None:
        self.extra: Any = _ABSENT
        self.parameters, request_at, request_keyword = self._parameters(handler)
        has_request = request_at is not None or request_keyword
        lone = len(self.parameters) == 1 and self.extra is _ABSENT
        self._whole = lone and takes_whole(self.parameters[0].hint)

        # `form` is the type that the whole payload is decoded into; None leaves it alone.
        self.form: Any
        if self._whole:
            self.form = self.parameters[0].hint
        elif not self.parameters and self.extra is _ABSENT and has_request:
            self.form = None
        else:
            self.form = self._struct(handler)
        self._info = None if self.form is None else inspected(handler, self.form)
        self._values = self._reader(handler, has_request)

        by_name = any(parameter.keyword_only for parameter in self.parameters)
        if by_name or request_keyword or self.extra is not _ABSENT:
            self.bind = self._bind_by_name(request_at, request_keyword)
        else:
            self.bind = self._bind_in_order(request_at)

    def _parameters(self, handler: Callable[..., Any]) -> tuple[tuple[Parameter, ...], int | None, bool]:
        """The payload's parameters, the position of `request` among them, and whether it is a keyword."""
        found: list[Parameter] = []
        request_at, request_keyword = None, False
        try:
            signature = inspect.signature(handler)
        except (TypeError, ValueError) as error:  # some functions written in C
            raise UsageError(f"{label(handler)}: {error}") from None
        for parameter in signature.parameters.values():
            keyword_only = parameter.kind is parameter.KEYWORD_ONLY
            if parameter.kind is parameter.VAR_POSITIONAL:
                raise UsageError(f"{label(handler)}: *{parameter.name} has no meaning, payload fields have names")
            if parameter.kind is parameter.VAR_KEYWORD:
                self.extra = resolve(handler, parameter.annotation, f"**{parameter.name}")
            elif parameter.name == "request":
                # Its hint is never resolved: it is often imported for type checkers only.
                request_at, request_keyword = (None, True) if keyword_only else (len(found), False)
            else:
                hint = resolve(handler, parameter.annotation, f"parameter `{parameter.name}`")
                if parameter.default is None and hint is not Any:
                    hint = typing.Optional[hint]  # noqa: UP045  `= None` says so; `|` refuses some hints
                found.append(Parameter(parameter.name, hint, parameter.default, keyword_only))
        return tuple(found), request_at, request_keyword

    def _struct(self, handler: Callable[..., Any]) -> type[msgspec.Struct]:
        # Inside they are f0, f1 … in the order of the call: no field can meet an attribute of the Struct.
        fields: list[Any] = []
        for index, parameter in enumerate(self.parameters):
            options = {"name": parameter.name, **_default(parameter.default)}
            fields.append((f"f{index}", parameter.hint, msgspec.field(**options)))
        closed = self.extra is _ABSENT
        return msgspec.defstruct(label(handler), fields, kw_only=True, forbid_unknown_fields=closed)

    # -- everything that can be known before a call is a variable of a closure --

    def _reader(self, handler: Callable[..., Any], has_request: bool) -> Callable[[bytes], tuple[Any, ...]]:
        """Payload to the values of `parameters`, in order; where there is `**more`, its dict comes last."""
        form, astuple = self.form, msgspec.structs.astuple
        if form is None:
            return lambda payload: ()
        decode = _decoder(handler, form)
        if self._whole:
            return lambda payload: (decode(payload),)
        if self.extra is _ABSENT:
            return lambda payload: astuple(decode(payload))

        known = {parameter.name for parameter in self.parameters}
        # A field that has the name of the bound `self`, or of `request`, would meet it in the call.
        taken = {"request"} if has_request else set()
        if inspect.ismethod(handler):
            taken.update(list(inspect.signature(handler.__func__).parameters)[:1])
        extra = self.extra

        def with_extras(payload: bytes) -> tuple[Any, ...]:
            values = astuple(decode(payload))
            more = {key: value for key, value in _decode_object(payload).items() if key not in known}
            for key in taken & more.keys():
                raise invalid(key, "this name cannot be used")
            if extra is not Any:
                more = {key: self._convert(key, value, extra) for key, value in more.items()}
            return (*values, more)

        return with_extras

    def _bind_in_order(self, at: int | None) -> Callable[[bytes, Any], Bound]:
        read, again = self._values, self._second_look
        if self.form is None:
            return lambda payload, request: ((request,), _NO_KEYWORDS)

        def without_request(payload: bytes, request: Any) -> Bound:
            try:
                return read(payload), _NO_KEYWORDS
            except _REFUSALS as error:
                return again(error, payload), _NO_KEYWORDS

        def with_request(payload: bytes, request: Any) -> Bound:
            try:
                values = read(payload)
            except _REFUSALS as error:
                values = again(error, payload)
            return (*values[:at], request, *values[at:]), _NO_KEYWORDS

        return without_request if at is None else with_request

    def _bind_by_name(self, at: int | None, request_keyword: bool) -> Callable[[bytes, Any], Bound]:
        read, again = self._values, self._second_look
        names = tuple(parameter.name for parameter in self.parameters if parameter.keyword_only)
        positional = len(self.parameters) - len(names)  # keyword-only ones always come last
        has_extra = self.extra is not _ABSENT

        def by_name(payload: bytes, request: Any) -> Bound:
            try:
                values = read(payload)
            except _REFUSALS as error:
                values = again(error, payload)
            args = values[:positional]
            if at is not None:
                args = (*args[:at], request, *args[at:])
            keywords = dict(zip(names, values[positional:], strict=False))
            if request_keyword:
                keywords["request"] = request
            if has_extra:
                keywords.update(values[-1])
            return args, keywords

        return by_name

    # -- errors --

    def _second_look(self, error: Exception, payload: bytes) -> tuple[Any, ...]:
        """What did not decode: an absent payload counts as `{}`, everything else is the caller's error."""
        if payload:
            raise explained(error, payload, self._info) from None
        try:
            return self._values(b"{}")
        except _REFUSALS as second:
            raise explained(second, b"{}", self._info) from None

    def _convert(self, key: str, value: Any, hint: Any) -> Any:
        try:
            return msgspec.convert(value, hint, dec_hook=_into_model)
        except _REFUSALS as error:
            raise explained(error, b"", None, under=key) from None

    # -- describing --

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the payload."""
        if self.form is None:
            return {"type": "object"}
        schema = json_schema(self.form)
        if self.extra is not _ABSENT:
            schema["additionalProperties"] = True if self.extra is Any else json_schema(self.extra)
        if not self._whole:
            schema.pop("title", None)  # ours, of no use to a reader
            for parameter in self.parameters:
                # A default that is copied for each call is a factory to msgspec, and factories are not shown.
                if isinstance(parameter.default, list | dict | set):
                    schema["properties"][parameter.name].setdefault("default", _plain(parameter.default))
        return schema


# -- decoding --


def _default(default: Any) -> dict[str, Any]:
    if default is _ABSENT:
        return {}
    if isinstance(default, str | int | float | bool | types.NoneType):
        return {"default": default}
    if isinstance(default, list | dict | set | bytearray):
        return {"default_factory": functools.partial(copy.deepcopy, default)}  # no call may change the next one's
    return {"default_factory": lambda: default}


def _into_model(kind: Any, value: Any) -> Any:
    """msgspec's hook for types that it does not know: they were checked when the method was registered."""
    if kind is object:
        return value
    # By way of JSON, since strict pydantic takes a date from JSON text but not from a str.
    return kind.model_validate_json(jsons.encode(value), strict=True)


def _decoder(handler: Any, form: Any) -> Callable[[bytes], Any]:
    if is_model(form):
        validate = form.model_validate_json

        def model(payload: bytes) -> Any:
            _decode_object(payload)  # pydantic's own reader lets NaN pass
            return validate(payload, strict=True)

        return model
    try:
        return msgspec.json.Decoder(form, dec_hook=_into_model).decode
    except (TypeError, NameError) as error:
        raise UsageError(f"{label(handler)}: {error}") from None


# -- schemas --


def json_schema(form: Any) -> dict[str, Any]:
    """The JSON Schema of a type: its root written out, all others under `$defs`; `{}` where it has none."""
    definitions: dict[str, Any] = {}

    def foreign(kind: Any) -> dict[str, Any]:
        if not is_model(kind):
            return {}
        schema: dict[str, Any] = kind.model_json_schema()
        definitions.update(schema.pop("$defs", {}))
        return schema

    try:
        (root,), named = msgspec.json.schema_components([form], schema_hook=foreign)
    except (TypeError, ValueError, NameError):
        return {}
    definitions.update(named)
    top = root.get("$ref", "").removeprefix("#/$defs/")
    if top in definitions:
        root = definitions[top]
        if f'"#/$defs/{top}"' not in json.dumps(definitions, default=str):
            del definitions[top]
    return {**root, "$defs": definitions} if definitions else dict(root)


_STREAMS = (
    abc.AsyncIterator,
    abc.AsyncGenerator,
    abc.AsyncIterable,
    abc.Iterator,
    abc.Generator,
    abc.Iterable,
)


def output_schema(handler: Callable[..., Any], *, stream: bool) -> dict[str, Any] | None:
    """The JSON Schema of the result, or of one item of a stream; None where the handler does not say."""
    try:
        hint = resolve(handler, inspect.signature(handler).return_annotation, "the result")
    except UsageError:
        return None  # a hint for type checkers only; nothing is decoded by it
    if hint is Any:
        return None
    if stream:
        if get_origin(hint) not in _STREAMS:
            return None
        hint = get_args(hint)[0]
    if get_origin(hint) in (typing.Union, types.UnionType):
        items = tuple(member for member in get_args(hint) if member is not Final)  # it ends a stream, it is no item
        hint = typing.Union[items]  # noqa: UP007
    return json_schema(hint) or None


def _plain(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError):
        return None
