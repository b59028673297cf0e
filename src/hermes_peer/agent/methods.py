"""Methods: what an agent answers to, by name.

Knows: handlers, their shapes and contracts, the names in use. Refuses to know: links, policy, who calls.
Called by: agent (registration), calls (one `get` and one `arguments` per call), introspection (`describe`).
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypeVar

from hermes_peer.agent import schema
from hermes_peer.agent.refusals import MOST_NAMED
from hermes_peer.errors import MethodNotFound, UsageError

Kind = Literal["method", "event", "task"]
Handler = TypeVar("Handler")

CONTRACTS = (None, "idempotent", "transactional")

_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
_LONGEST_NAME = 128
_MARK = "__hermes_methods__"


class Shape(Enum):
    """How a handler is run."""

    CALL = "call"  # a coroutine
    STREAM = "stream"  # an async generator
    THREAD = "thread"  # a plain function: in a thread, since it may block
    THREAD_STREAM = "thread_stream"  # a plain generator, in a thread

    @property
    def streams(self) -> bool:
        return self in (Shape.STREAM, Shape.THREAD_STREAM)


def shape_of(handler: Callable[..., Any]) -> Shape:
    """The shape of a function, a bound method, a partial or an object that can be called."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    written: Any = handler if inspect.isroutine(handler) else type(handler).__call__
    # A plain wrapper (functools.wraps) of a coroutine function hands on the coroutine: what is inside counts.
    for candidate in (written, inspect.unwrap(written)):
        if inspect.isasyncgenfunction(candidate):
            return Shape.STREAM
        if inspect.iscoroutinefunction(candidate):
            return Shape.CALL
        if inspect.isgeneratorfunction(candidate):
            return Shape.THREAD_STREAM
    return Shape.THREAD


class Method:
    """One name and its handler; immutable by agreement.

    `arguments(payload, request)` gives `(args, keywords)` for the handler, or raises CallError (invalid_payload)
    that names the field. `min_ttl`: seconds a caller must have left, else the call is refused at once (M21).
    Raises UsageError for a name outside the grammar, or a handler that no payload can fill.
    """

    __slots__ = (
        "_takes",
        "arguments",
        "contract",
        "default",
        "doc",
        "handler",
        "kind",
        "min_ttl",
        "name",
        "public",
        "shape",
    )

    def __init__(
        self,
        name: str,
        handler: Callable[..., Any],
        *,
        min_ttl: float | None = None,
        public: bool = False,
        default: bool = False,
        contract: str | None = None,
        kind: Kind = "method",
        doc: str | None = None,
    ) -> None:
        check_name(name)
        if not callable(handler):
            raise UsageError(f"{name}: the handler must be a function, not {type(handler).__name__}")
        if contract not in CONTRACTS:
            raise UsageError(f'{name}: contract= is "idempotent", "transactional" or left out, not {contract!r}')
        if min_ttl is not None and not (isinstance(min_ttl, int | float) and 0 < min_ttl < float("inf")):
            raise UsageError(f"{name}: min_ttl= is a number of seconds above 0, not {min_ttl!r}")
        if default and kind != "method":
            raise UsageError(f"{name}: only a method can be the default, not a {kind}")
        self.name = name
        self.handler = handler
        self.shape = shape_of(handler)
        if kind == "event" and self.shape.streams:
            raise UsageError(f"{name}: an event has no items to stream; use return in place of yield")
        self.min_ttl = None if min_ttl is None else float(min_ttl)
        self.public = public
        self.default = default
        self.contract = contract or ""  # what it promises about being run again (spec: durable, section 3)
        self.kind: Kind = kind
        self.doc = inspect.cleandoc(doc if doc is not None else doc_of(handler))
        self._takes = schema.Arguments(handler)
        # The bound closure itself, not a method around it: this is called once per call.
        self.arguments: Callable[[bytes, Any], schema.Bound] = self._takes.bind

    def describe(self) -> dict[str, Any]:
        """What a caller may know of it (`hermes.describe`): `schema_out` is of the result, or of one item."""
        stream = self.shape.streams
        return {
            "name": self.name,
            "kind": self.kind,
            "doc": self.doc,
            "schema_in": self._takes.schema(),
            "schema_out": schema.output_schema(self.handler, stream=stream),
            "stream": stream,
            "min_ttl": self.min_ttl,
            "public": self.public,
            "contract": self.contract,
            "default": self.default,
        }

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name} {self.shape.value}>"


def check_name(name: Any) -> None:
    """Raise UsageError unless `name` is words of a-z, 0-9 and _, joined by dots, at most 128 long."""
    if not isinstance(name, str):
        raise UsageError(f'a method needs a name: @method("text.shout"), not {type(name).__name__}')
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:_LONGEST_NAME]!r} is no method name: words of a-z, 0-9 and _, joined by dots, "
            f"at most {_LONGEST_NAME} characters, like text.shout"
        )


def doc_of(handler: Any) -> str:
    """The docstring of a handler; a callable object's or a partial's own would be that of its class."""
    if inspect.isroutine(handler):
        return handler.__doc__ or ""
    call = getattr(handler, "func", None) or type(handler).__call__
    return call.__doc__ or ""


# -- marking without an agent --


@dataclass(frozen=True, slots=True)
class _Mark:
    name: str
    options: dict[str, Any]


def method(
    name: str,
    *,
    min_ttl: float | None = None,
    public: bool = False,
    default: bool = False,
    contract: str | None = None,
) -> Callable[[Handler], Handler]:
    """Mark a function, or a method of a class, for `agent.include(…)`; the function stays as it is (M26).

    Raises UsageError for a name outside the grammar.
    """
    check_name(name)
    mark = _Mark(name, {"min_ttl": min_ttl, "public": public, "default": default, "contract": contract})

    def mark_it(function: Handler) -> Handler:
        target: Any = function
        if isinstance(target, staticmethod | classmethod):
            target = target.__func__
        if not callable(target):
            raise UsageError(f"@method({name!r}) marks functions, not a {type(function).__name__}")
        setattr(target, _MARK, (mark, *getattr(target, _MARK, ())))
        return function

    return mark_it


def collect(obj: Any) -> list[Method]:
    """The marked functions of a function, a module or an object, as methods; bound to the object.

    Raises UsageError where nothing is marked, or a class stands where an object of it is needed.
    """
    if isinstance(obj, types.ModuleType):
        found = [value for value in vars(obj).values() if inspect.isroutine(value) and _marks(value)]
        functions = [(function, _marks(function)) for function in {id(value): value for value in found}.values()]
    elif marks := _marks(obj):
        functions = [(obj, marks)]
    else:
        functions = list(_marked_members(obj))
    methods = [Method(mark.name, function, **mark.options) for function, marks in functions for mark in marks]
    if not methods:
        raise UsageError(f"nothing in {_shown(obj)} is marked with @method(…)")
    return methods


def _marks(function: Any) -> tuple[_Mark, ...]:
    if isinstance(function, staticmethod | classmethod):
        function = function.__func__
    marks = getattr(function, _MARK, ()) if not isinstance(function, type) else ()
    return marks if isinstance(marks, tuple) else ()


def _marked_members(obj: Any) -> Iterator[tuple[Any, tuple[_Mark, ...]]]:
    kind = obj if isinstance(obj, type) else type(obj)
    marked: dict[str, tuple[_Mark, ...]] = {}
    for base in reversed(kind.__mro__):  # as written, parents first; an override keeps the mark of its parent
        for name, value in vars(base).items():
            if marks := _marks(value):
                marked[name] = marks
    for name, marks in marked.items():
        value = inspect.getattr_static(kind, name)
        if isinstance(obj, type) and not isinstance(value, staticmethod | classmethod):
            raise UsageError(f"include an object, not the class: agent.include({obj.__name__}(…))")
        member = getattr(obj, name)
        if callable(member):  # an override by something else, None for one, takes the method away
            yield member, marks


def _shown(obj: Any) -> str:
    return str(getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None) or type(obj).__qualname__)


# -- the table --


class Methods:
    """The methods of one agent, by name, in the order of registration.

    `version` rises with each change, so that peers can be told (mission I15).
    """

    def __init__(self) -> None:
        self._by_name: dict[str, Method] = {}
        self.default: Method | None = None
        self.version = 0

    def add(self, method: Method, *, own: bool = False) -> Method:
        """Raises UsageError for a name in use, a second default, or `hermes.*` unless `own` (the product's)."""
        name = method.name
        if (name == "hermes" or name.startswith("hermes.")) and not own:
            raise UsageError(f"{name}: names under hermes are the product's own")
        if name in self._by_name:
            raise UsageError(f"{name} is registered already; remove it first, or take another name")
        if method.default and self.default is not None:
            raise UsageError(f"{name}: {self.default.name} is the default method already")
        self._by_name[name] = method
        if method.default:
            self.default = method
        self.version += 1
        return method

    def remove(self, name: str) -> Method:
        """Take a method away; calls that run go on. Raises UsageError if there is none of that name."""
        method = self._by_name.pop(name, None)
        if method is None:
            raise UsageError(f"{name} is not registered")
        if self.default is method:
            self.default = None
        self.version += 1
        return method

    def get(self, name: str) -> Method | None:
        """The method of that very name, or None: who calls decides about the default."""
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[Method]:
        return iter(list(self._by_name.values()))  # a copy: methods come and go while somebody lists them

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name


def unknown_method(name: str, allowed_names: Iterable[str]) -> MethodNotFound:
    """The answer to a call of no method. `allowed_names`: the ones that this caller may know of (I7)."""
    allowed = sorted(allowed_names)
    shown = name[:_LONGEST_NAME]
    near = difflib.get_close_matches(shown, allowed, n=3, cutoff=0.7)
    message = f"there is no method `{shown}`"
    if near:
        message += f"; did you mean {' or '.join(f'`{other}`' for other in near)}?"
    elif allowed:
        message += f"; you may call {', '.join(f'`{other}`' for other in allowed[:5])}"
        message += f" and {len(allowed) - 5} more" if len(allowed) > 5 else ""
    details: dict[str, Any] = {"method": shown, "nearest": near, "allowed": allowed[:MOST_NAMED]}
    if len(allowed) > MOST_NAMED:
        details["more"] = len(allowed) - MOST_NAMED
    return MethodNotFound("unknown_method", message, details=details)
