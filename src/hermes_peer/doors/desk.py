"""From a message to the call that it means, and from the call to the messages that answer it.

Knows: what each type asks of the agent, the reserved members of a payload (spec: invoke, section 3). Refuses to know:
HTTP, WebSocket, sockets. Called by: posting, talk.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from hermes_peer import CallError, Code, HermesAgent, UsageError
from hermes_peer.agent import local
from hermes_peer.agent.local import LocalCall
from hermes_peer.doors import answers
from hermes_peer.wire import jsons
from hermes_peer.wire.invoke import BadMessage, Message, Meta, Type, is_uuid, stable_agent_id, whole_seconds

ORDERS = {"detach": bool, "durable": bool, "items": bool}  # members of `payload.hermes`
ID_MAX = 128
ANSWERS_TTL = 30
RUNNING_MAX = 4096  # tasks of one agent, whoever sent them
_encode = msgspec.json.encode

Ask = Callable[[LocalCall, str, bytes], Any]


class Desk:
    """One agent, as its doors see it. `uuid` is its id in meta: I8 of name, HERMES_PEER_ENV (prod) and host."""

    def __init__(self, agent: HermesAgent, spend: Callable[[str], None] = lambda principal: None) -> None:
        self.agent = agent
        self.uuid = stable_agent_id(agent.name, os.environ.get("HERMES_PEER_ENV", "prod"), socket.gethostname())
        self._spend = spend
        self.questions: dict[tuple[str, str], asyncio.Future[Any]] = {}  # asked back: (principal, info_id)
        self._asked = 0

    # ------------------------------------------------------------------ what comes in
    def begin(self, principal: str, message: Message, on_ask: Ask | None = None) -> LocalCall:
        """Start the task of a TASK_REQUEST, or the handler of an EVENT.

        Raises BadMessage for a payload that cannot be one, CallError for what is refused before the agent hears of it.
        """
        meta, payload = message.meta, dict(message.payload)
        self.check_receiver(meta)
        tool, task_id = _text(payload, "tool"), task_id_of(payload)
        order = _order(payload.pop("hermes", None))
        self._spend(principal)
        running = local.load_of(self.agent) if self.agent.running else 0
        if running >= RUNNING_MAX:
            raise CallError(
                "too_many_tasks",
                f"{running} tasks run here; send it again when some of them have ended",
                code=Code.ERROR_RESOURCE_EXHAUSTED,
                retryable=True,
                details={"resource": "tasks", "used": running, "total": RUNNING_MAX},
            )
        try:
            data = jsons.encode(payload)
        except (TypeError, ValueError) as error:
            raise BadMessage("invalid_payload", str(error)) from None
        try:
            return self.agent.serve(
                principal,
                tool,
                data,
                ttl=meta.ttl,
                trace_id=meta.trace_id,
                message_id=task_id,
                event=meta.msg_type == Type.EVENT,
                on_ask=on_ask,
                **order,
            )
        except UsageError:
            raise stopped() from None

    def check_receiver(self, meta: Meta) -> None:
        """A UUID means one agent and no other; words are a label. Raises CallError."""
        if meta.receiver_id and meta.receiver_id != self.uuid and is_uuid(meta.receiver_id):
            raise CallError(
                "wrong_agent",
                f"this is {self.agent.name}, whose id is {self.uuid}; the message is for {meta.receiver_id}",
                code=Code.ERROR_AGENT_UNAVAILABLE,
                details={"agent": self.agent.name, "agent_id": self.uuid},
            )

    def short(self, principal: str, message: Message) -> tuple[Type, dict[str, Any]]:
        """The answer to what needs no task: heartbeats, queries, cancels, answers to questions. Raises CallError."""
        kind, payload = message.meta.msg_type, dict(message.payload)
        if kind == Type.HEARTBEAT:
            return Type.HEARTBEAT_ACK, {"agent": self.agent.name, "state": local.state_of(self.agent)}
        if kind == Type.GOODBYE:
            return Type.GOODBYE, {}
        self.check_receiver(message.meta)
        if kind == Type.CAPABILITY_QUERY:
            return Type.CAPABILITY_RESULT, self.description(principal)
        if kind == Type.TASK_CANCEL:
            return Type.TASK_ACK, self._cancel(principal, task_id_of(payload))
        if kind == Type.INFO_RESULT:
            return Type.TASK_ACK, self._informed(principal, payload)
        name = Type(kind).name
        raise BadMessage(
            "unexpected_type",
            f"{name} ({kind}) is not for a door: send TASK_REQUEST (1), TASK_CANCEL (4), INFO_RESULT (7), "
            "HEARTBEAT (8), CAPABILITY_QUERY (10), EVENT (14) or GOODBYE (16)",
            details={"expected": [1, 4, 7, 8, 10, 14, 16]},
        )

    def description(self, principal: str) -> dict[str, Any]:
        """What this principal may call. Raises CallError where the agent does not run."""
        try:
            return {**local.describe(self.agent, principal), "agent_id": self.uuid, "principal": principal}
        except UsageError:
            raise stopped() from None

    def _cancel(self, principal: str, task_id: str) -> dict[str, Any]:
        if not task_id:
            raise BadMessage("missing_field", "payload.task_id is missing: which task?", details={"field": "task_id"})
        if not local.cancel(self.agent, principal, task_id):
            said = f"no task {task_id} of {principal} is running"
            raise CallError("unknown_task", said, code=Code.ERROR_INVALID_REQUEST, details={"task_id": task_id})
        return {"task_id": task_id, "status": "success"}

    # ------------------------------------------------------------------ asking back
    def asker(self, principal: str) -> Ask:
        """What a call asks through: the question stands among its messages, an INFO_RESULT answers it."""

        async def ask(call: LocalCall, method: str, payload: bytes) -> Any:
            self._asked += 1
            info_id = f"q{self._asked:x}-{os.urandom(4).hex()}"
            future = self.questions[principal, info_id] = asyncio.get_running_loop().create_future()
            try:
                body = {"task_id": call.message_id, "info_id": info_id, "tool": method, "payload": msgspec.Raw(payload)}
                call.send(None, bytes([local.QUESTION]) + _encode(body))
                return await future
            finally:
                del self.questions[principal, info_id]

        return ask

    def _informed(self, principal: str, payload: dict[str, Any]) -> dict[str, Any]:
        info_id = payload.get("info_id")
        future = self.questions.get((principal, info_id)) if isinstance(info_id, str) else None
        if future is None or future.done():
            said = "no question with this info_id waits for an answer of this caller"
            raise CallError("unknown_question", said, code=Code.ERROR_INVALID_REQUEST, details={"info_id": info_id})
        if payload.get("status", "success") == "error":
            code = payload.get("error_code")
            known = Code(code) if code in Code._value2member_map_ and code else Code.ERROR_APPLICATION
            reason, said = str(payload.get("reason") or "no_answer"), str(payload.get("detail") or "")
            future.set_exception(CallError(reason, said, code=known, details=payload.get("details")))
        else:
            future.set_result(payload.get("result"))
        return {"info_id": info_id, "status": "success"}

    # ------------------------------------------------------------------ what goes out
    def meta(self, kind: Type, to: Meta, left: float | None = None, trace_id: str = "") -> Meta:
        """The meta of an answer: sender and receiver swapped, the trace kept, the seconds that are left."""
        ttl = whole_seconds(left) if left is not None else ANSWERS_TTL
        return Meta(kind, self.uuid, to.sender_id or None, ttl, trace_id or to.trace_id)

    def result(self, call: LocalCall, message: Message, items: list[Any] | None = None) -> tuple[Meta, dict[str, Any]]:
        """The last message of a task; that of an EVENT is its TASK_ACK."""
        payload = answers.result_payload(call, message.meta.ttl, items)
        kind = Type.TASK_RESULT
        if message.meta.msg_type == Type.EVENT and payload["status"] == "success":
            kind, payload = Type.TASK_ACK, {"task_id": call.message_id, "status": "success"}
        return self.meta(kind, message.meta, call.ttl_left, call.trace_id), payload

    def failure(self, error: CallError, message: Message | None) -> tuple[Meta, dict[str, Any]]:
        """The answer to a message that became no call. What could not be read is no task: type ERROR."""
        if message is None or isinstance(error, BadMessage):
            sender = getattr(error, "sender_id", "")
            to = message.meta if message is not None else Meta(Type.ERROR, sender, trace_id=error.trace_id)
            return self.meta(Type.ERROR, to), answers.error_payload(error)
        task = message.payload.get("task_id") or ""
        kind = Type.TASK_RESULT if message.meta.msg_type in (Type.TASK_REQUEST, Type.EVENT) else Type.ERROR
        return self.meta(kind, message.meta), answers.error_payload(error, str(task), message.meta.ttl)


def stopped() -> CallError:
    """The agent behind this door does not run."""
    return CallError("stopped", "this agent is not running now", code=Code.ERROR_AGENT_UNAVAILABLE, retryable=True)


def task_id_of(payload: dict[str, Any]) -> str:
    """Takes `task_id` out of a payload; empty if there is none. Raises BadMessage."""
    task_id = payload.pop("task_id", None)
    if task_id is None:
        return ""
    if not (isinstance(task_id, str) and 0 < len(task_id) <= ID_MAX and task_id.isascii() and task_id.isprintable()):
        said = f"payload.task_id must be 1 to {ID_MAX} printable ASCII characters"
        raise BadMessage("invalid_id", said, details={"field": "payload.task_id", "expected": "string"})
    return task_id


def _text(payload: dict[str, Any], name: str) -> str:
    value = payload.pop(name, "")
    if not isinstance(value, str):
        said = f"payload.{name} must be the name of a method, as a text"
        raise BadMessage("invalid_tool", said, details={"field": f"payload.{name}", "expected": "string"})
    return value


def _order(raw: Any) -> dict[str, Any]:
    """The members of `payload.hermes`, which are the door's and not the method's. Raises BadMessage."""
    if raw is None:
        return {}
    if not isinstance(raw, dict) or any(key not in ORDERS or type(value) is not bool for key, value in raw.items()):
        said = f"payload.hermes holds orders for the door: {', '.join(ORDERS)}, each true or false"
        raise BadMessage("invalid_order", said, details={"field": "payload.hermes", "allowed": list(ORDERS)})
    return raw
