"""What an agent offers: methods, events, tasks, and what runs beside them.

Knows: registration. Refuses to know: whether the agent runs, links, calls. Called by: users, through HermesAgent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from hermes_peer.agent.methods import Method, Methods, collect
from hermes_peer.agent.tasks import TaskEnvelope, TaskHandle, task_method
from hermes_peer.errors import UsageError
from hermes_peer.runtime.contact import Contact

Handler = TypeVar("Handler", bound=Callable[..., Any])


class Offer:
    """The registering half of HermesAgent."""

    def __init__(self) -> None:
        self.methods = Methods()
        self.periodic: list[tuple[float, Callable[[], Any]]] = []
        self.dead_watchers: list[Callable[[Any], Any]] = []
        self._watchers: list[Callable[[str, str, str, float], Any]] = []
        self._lifespan: Callable[[Any], Any] | None = None

    def method(self, name: str, **options: Any) -> Callable[[Handler], Handler]:
        """Register a handler: `@agent.method("text.shout")`. Options: min_ttl, public, default. Raises UsageError."""
        return self._register(lambda handler: Method(name, handler, **options))

    def event(self, name: str, **options: Any) -> Callable[[Handler], Handler]:
        """Register a handler of an event that others `emit`."""
        return self._register(lambda handler: Method(name, handler, kind="event", **options))

    @overload
    def task(self, target: str, **options: Any) -> Callable[[Handler], Handler]: ...
    @overload
    def task(self, target: str, name: str, envelope: TaskEnvelope, **options: Any) -> TaskHandle: ...
    def task(self, target: str, name: str = "", envelope: TaskEnvelope | None = None, **options: Any) -> Any:
        """`@agent.task("report")` registers a worker; `agent.task("worker", "report", TaskEnvelope(...))` starts one.

        The started task is a TaskHandle: iterate ProgressEvents, `await result()`. `on_request_info=` (a function or
        coroutine of one RequestInfo) answers the worker's questions; `ttl` defaults to the envelope's timeout.
        """
        if envelope is None:
            if name:
                raise UsageError("a task is started with a TaskEnvelope: task(target, name, TaskEnvelope(steps=[...]))")
            return self._register(lambda handler: task_method(target, handler, **options))
        return self._start_task(target, name, envelope, **options)

    def _start_task(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError

    def include(self, obj: Any) -> None:
        """Register everything that `@method(...)` marked in an object, a module or a function. Raises UsageError."""
        for method in collect(obj):
            self.add_method(method)

    def add_method(self, method: Method | str, handler: Callable[..., Any] | None = None, **options: Any) -> None:
        """Register at run time; peers and the registry hear of it without a restart (mission I15)."""
        if not isinstance(method, Method):
            if handler is None:
                raise UsageError("add_method takes a name and a handler")
            method = Method(method, handler, **options)
        self.methods.add(method)
        self._changed()

    def remove_method(self, name: str) -> None:
        """Take a method away at run time; calls that run go on. Raises UsageError."""
        self.methods.remove(name)
        self._changed()

    def _changed(self) -> None:
        """Methods came or went while the agent runs."""

    def lifespan(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Register an async generator function of the agent: runs to its `yield` at start, the rest at the end."""
        self._lifespan = function
        return function

    def on_link(self, function: Callable[[str, str, str, float], Any]) -> Callable[[str, str, str, float], Any]:
        """Hear of lines: `function(peer, "lost" | "back", reason, seconds_without)`. Calls do not need it."""
        self._watchers.append(function)
        return function

    def link_noticed(self, contact: Contact, what: str, text: str, seconds: float) -> None:
        for function in self._watchers:
            function(contact.name, what, text, seconds)

    def every(self, seconds: float) -> Callable[[Handler], Handler]:
        """Run a function every so many seconds while the agent runs: `@agent.every(60)`."""

        if not (isinstance(seconds, int | float) and 0 < seconds < float("inf")):
            raise UsageError(f"every() takes a number of seconds above 0, not {seconds!r}")

        def register(function: Handler) -> Handler:
            self.periodic.append((seconds, function))
            self._another_period(seconds, function)
            return function

        return register

    def _another_period(self, seconds: float, function: Callable[[], Any]) -> None:
        """A periodic function was added while the agent runs."""

    def on_dead_letter(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Hear of durable work that was given up: `function(row)`, row with message_id, target, method, why (L15)."""
        self.dead_watchers.append(function)
        return function

    def _register(self, make: Callable[[Any], Method]) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            self.add_method(make(handler))
            return handler

        return register
