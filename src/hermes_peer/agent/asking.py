"""Questions of workers to their planner: which task asks, and who answers.

Knows: task ids and their callbacks. Refuses to know: links. Called by: agent (task), the method task.request_info.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_peer.agent.context import new_id
from hermes_peer.agent.methods import Method
from hermes_peer.agent.tasks import REQUEST_INFO, RequestInfo, TaskEnvelope
from hermes_peer.errors import CallError, Code

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent

Answer = Callable[[RequestInfo], Any]


class Asking:
    """The callbacks of the tasks that this agent has started and not finished."""

    def __init__(self) -> None:
        self._answers: dict[str, Answer | None] = {}

    def named(self, agent: HermesAgent, envelope: TaskEnvelope) -> TaskEnvelope:
        """The envelope with its task id."""
        if REQUEST_INFO not in agent.methods:
            agent.methods.add(Method(REQUEST_INFO, self.ask))
        return msgspec.structs.replace(envelope, task_id=envelope.task_id or new_id())

    def expect(self, task_id: str, answer: Answer | None) -> Callable[[], None]:
        """From now on `answer` answers the task's questions; returns what to call once the task is over."""
        self._answers[task_id] = answer
        return lambda: self._answers.pop(task_id, None) and None

    async def ask(self, info: RequestInfo) -> Any:
        """The method `task.request_info`: the callback of that very task answers."""
        if info.task_id not in self._answers:
            raise CallError(
                "unknown_task",
                f"no task {info.task_id or '(without an id)'} of this planner is running",
                code=Code.ERROR_INVALID_REQUEST,
            )
        answer = self._answers[info.task_id]
        if answer is None:
            raise CallError("no_answer", "this planner answers no questions: it gave no on_request_info=")
        value = answer(info)
        return await value if inspect.isawaitable(value) else value
