"""A two-way conversation: many tasks at once, asks back, items both ways, heartbeats.

Knows: which message belongs to which task, when the other side is dead. Refuses to know: frames, sockets, headers.
Called by: websocket, unix: each hands in how a message is written and how the line is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from hermes_peer import CallError, Code
from hermes_peer.agent.local import LocalCall
from hermes_peer.doors import answers
from hermes_peer.doors.desk import Desk
from hermes_peer.doors.posting import STALL_S, leave
from hermes_peer.wire import jsons
from hermes_peer.wire.invoke import BadMessage, Message, Meta, Type

TASKS_MAX = 128  # that one conversation may have running
DEAD = 4408  # close code: nothing was heard for too long
NOBODY = Meta(Type.HEARTBEAT)
_TASKS = (Type.TASK_REQUEST, Type.EVENT)
_HEARD = (Type.HEARTBEAT_ACK, Type.TASK_ACK, Type.ERROR)

Write = Callable[[Meta, dict[str, Any], bool], Awaitable[None]]
Close = Callable[[int, str], Awaitable[None]]


class Talk:
    """One conversation with one principal. `heard` is when the last byte came, in loop time."""

    def __init__(
        self, desk: Desk, principal: str, write: Write, close: Close, *, heartbeat_s: float, dead_s: float
    ) -> None:
        self.desk = desk
        self.principal = principal
        self.heartbeat_s = heartbeat_s
        self.dead_s = dead_s
        self.binary = False  # the form that the other side uses
        self.calls: dict[str, LocalCall] = {}
        self._write = write
        self._close = close
        self._loop = asyncio.get_running_loop()
        self.heard = self._said = self._loop.time()
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving = False
        self._ask = desk.asker(principal)

    # ------------------------------------------------------------------ what comes
    async def take(self, message: Message, binary: bool) -> None:
        """One message of the other side. Never raises for what it says."""
        self.binary = binary
        kind = message.meta.msg_type
        if kind in _HEARD:
            return
        try:
            if kind in _TASKS:
                await self._begin(message, binary)
            elif kind in (Type.STREAM_ITEM, Type.STREAM_END):
                self._item(message)
            elif kind == Type.GOODBYE:
                self._leaving = True
                await self._leave_if_done()
            else:
                short, payload = self.desk.short(self.principal, message)
                await self.say(self.desk.meta(short, message.meta), payload, binary)
        except CallError as error:
            await self.say(*self.desk.failure(error, message), binary)

    async def unread(self, error: BadMessage, binary: bool) -> None:
        """Something came that is no message: say so, and go on."""
        self.binary = binary
        await self.say(*self.desk.failure(error, None), binary)

    async def _begin(self, message: Message, binary: bool) -> None:
        if self._leaving:
            raise CallError("goodbye", "after a GOODBYE nothing is begun", code=Code.ERROR_INVALID_REQUEST)
        if len(self.calls) >= TASKS_MAX:
            raise CallError(
                "too_many_tasks",
                f"{TASKS_MAX} tasks run on this connection; wait for one of them, or open another connection",
                code=Code.ERROR_RESOURCE_EXHAUSTED,
                retryable=True,
                details={"resource": "tasks", "used": len(self.calls), "total": TASKS_MAX},
            )
        call = self.desk.begin(self.principal, message, self._ask)
        if call.done and not call.queue:
            return await self.say(*self.desk.result(call, message), binary)
        # Two requests of one id wait for one outcome; each has its own answer, items go to the first.
        key = call.message_id if call.message_id not in self.calls else f"{call.message_id}\0{id(call)}"
        self.calls[key] = call
        self._spawn(self._follow(key, call, message, binary))
        return None

    def _item(self, message: Message) -> None:
        call = self.calls.get(str(message.payload.get("task_id")))
        if call is None:
            said = "payload.task_id names no task that runs on this connection"
            raise CallError("unknown_task", said, code=Code.ERROR_INVALID_REQUEST)
        if message.meta.msg_type == Type.STREAM_END:
            call.feed_end()
        elif "item" in message.payload:
            call.feed(jsons.encode(message.payload["item"]))
        else:
            raise BadMessage("missing_field", "payload.item is missing", details={"field": "payload.item"})

    # ------------------------------------------------------------------ what goes
    async def say(self, meta: Meta, payload: dict[str, Any], binary: bool) -> None:
        """Write one message; a line that takes nothing for long is closed."""
        try:
            async with asyncio.timeout(STALL_S):
                await self._write(meta, payload, binary)
        except TimeoutError:
            await self._close(DEAD, "nothing was read for too long")
        self._said = self._loop.time()

    async def _follow(self, key: str, call: LocalCall, message: Message, binary: bool) -> None:
        desk, items = self.desk, 0
        try:
            while (said := await call.next_message()) is not None:
                kind, payload = answers.step(call, said)
                items += kind is Type.STREAM_ITEM
                await self.say(desk.meta(kind, message.meta, call.ttl_left, call.trace_id), payload, binary)
            if items and call.answer()[0]:
                end = {"task_id": call.message_id, "items": items}
                await self.say(desk.meta(Type.STREAM_END, message.meta, call.ttl_left, call.trace_id), end, binary)
            await self.say(*desk.result(call, message), binary)
        finally:
            del self.calls[key]
            if not call.done:
                leave(call)
        await self._leave_if_done()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the line is gone: whoever reads it says so

    # ------------------------------------------------------------------ life and end
    async def beat(self, check: Callable[[], bool] = lambda: True, heard: Callable[[], float] | None = None) -> None:
        """Ask for signs of life for as long as the conversation lasts. `check`: may this principal still be here?"""
        pause = min(self.heartbeat_s, self.dead_s) / 2
        while True:
            await asyncio.sleep(pause)
            now = self._loop.time()
            last = max(self.heard, heard()) if heard is not None else self.heard
            if now - last >= self.dead_s:
                return await self._close(DEAD, f"no sign of life for {self.dead_s:g} s")
            if not check():
                return await self._close(1008, "the token was revoked")
            if now - min(last, self._said) >= self.heartbeat_s:
                state = {"agent": self.desk.agent.name}
                await self.say(self.desk.meta(Type.HEARTBEAT, NOBODY, self.dead_s), state, self.binary)

    async def goodbye(self, reason: str) -> None:
        """Our side ends: say so and close."""
        self._leaving = True
        await self.say(self.desk.meta(Type.GOODBYE, NOBODY), {"reason": reason}, self.binary)
        await self._close(1001, reason)

    async def _leave_if_done(self) -> None:
        if self._leaving and not self.calls:
            await self.say(self.desk.meta(Type.GOODBYE, NOBODY), {}, self.binary)
            await self._close(1000, "goodbye")

    async def over(self) -> None:
        """The line is gone: what it had asked for ends, unless it said `detach`."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
