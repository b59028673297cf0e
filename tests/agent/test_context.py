"""agent/context: ids and what calls inherit."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from hermes_peer import Request
from hermes_peer.agent import context
from hermes_peer.wire import messages
from tests.agent.durable.rig import sent
from tests.agent.rig import two


def test_ids_are_of_one_shape_and_never_twice() -> None:
    ids = {context.new_id() for _ in range(1000)}
    assert len(ids) == 1000 and all(len(id) <= 40 and id.isascii() for id in ids)
    assert all(len(trace) == 32 and int(trace, 16) for trace in {context.new_trace() for _ in range(100)})
    assert len(context.new_span()) == 16


def test_a_forked_child_has_ids_of_its_own() -> None:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, context.new_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(read, 100).decode()
    os.close(read)
    os.close(write)
    assert theirs.partition("-")[0] != context.new_id().partition("-")[0]


async def test_the_current_trace(home: Path) -> None:
    async with two(home) as (served, me):

        @served.method("trace")
        async def trace(request: Request) -> list[str]:
            return [context.current_trace(), request.trace_id]

        assert await me.call("worker", "trace", trace_id="t") == ["t", "t"]
        assert context.current_trace() == ""


async def test_a_nested_call_names_the_span_that_makes_it(home: Path) -> None:
    """Mission L19: the calls of a trace are a tree, whose edges anybody can draw."""
    async with two(home) as (served, me):

        @served.method("leaf")
        async def leaf(request: Request) -> list[str]:
            return [request.span_id, request._inbound.envelope.parent_id]

        @served.method("branch")
        async def branch(request: Request) -> list[list[str]]:
            mine = [request.span_id, request._inbound.envelope.parent_id]
            other = await served.call("planner", "leaf", trace_id="another")
            await served.submit("nobody", "leaf")
            return [mine, await request.ask("leaf"), other]

        me.add_method("leaf", leaf)
        root, below, other = await me.call("worker", "branch")
        assert root[0] and root[1] == ""
        assert below[0] not in ("", root[0]) and below[1] == root[0]
        (submitted,) = await sent(served)
        assert messages.Envelope(**msgspec.json.decode(submitted.envelope)).parent_id == root[0]
        assert other[1] == ""  # a trace of its own
