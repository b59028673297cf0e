"""a2a-sdk over uvicorn and httpx, mTLS, tracing off, the agent card at hand.

HTTP/1.1 does not multiplex: up to 64 connections do here what one does elsewhere. A request is SendMessage, a token
stream is SendStreamingMessage with an artifact update per token.
"""

from __future__ import annotations

import asyncio
import functools
import os
import ssl
import uuid
from collections.abc import AsyncIterator
from typing import Any

os.environ.setdefault("OTEL_INSTRUMENTATION_A2A_SDK_ENABLED", "false")  # read at import

import httpx
import uvicorn
from a2a.client import ClientConfig, ClientFactory
from a2a.helpers import get_data_parts, new_data_message, new_data_part, new_raw_part, new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as types
from starlette.applications import Starlette

from bench import app

_running: list[Any] = []


def _card(port: int) -> Any:
    url = f"https://{app.HOST}:{port}/rpc"
    door = types.AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")
    return types.AgentCard(
        name="bench",
        description="bench",
        version="1",
        default_input_modes=["application/json"],
        default_output_modes=["application/json"],
        capabilities=types.AgentCapabilities(streaming=True),
        supported_interfaces=[door],
        skills=[types.AgentSkill(id="echo", name="echo", description="echo", tags=["echo"])],
    )


class _Executor(AgentExecutor):
    async def execute(self, context: Any, event_queue: Any) -> None:
        part = context.message.parts[0]
        if part.HasField("raw"):
            answer: Any = app.upload(part.raw)
        else:
            answer = get_data_parts(context.message.parts)[0]
            if "tokens" in answer:
                await self._tokens(context, event_queue, int(answer["tokens"]), answer["spread"])
                return
            answer = await app.echo(answer)
        await event_queue.enqueue_event(new_data_message(answer, context_id=context.context_id))

    async def _tokens(self, context: Any, event_queue: Any, n: int, spread: bool) -> None:
        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        count = 0
        async for token in app.tokens(n, spread):
            count += 1
            more = {"append": count > 1, "last_chunk": count == n}
            await updater.add_artifact([new_data_part(token)], artifact_id="out", **more)
        await updater.update_status(types.TaskState.TASK_STATE_COMPLETED)

    async def cancel(self, context: Any, event_queue: Any) -> None:
        raise NotImplementedError


async def serve(port: int) -> None:
    handler = DefaultRequestHandler(_Executor(), InMemoryTaskStore(), _card(port))
    config = uvicorn.Config(
        Starlette(routes=create_jsonrpc_routes(handler, "/rpc")),
        host=app.HOST,
        port=port,
        log_level="critical",
        access_log=False,
        http="httptools",
        timeout_keep_alive=300,
        backlog=1024,
        ssl_keyfile=str(app.folder() / "server.key"),
        ssl_certfile=str(app.folder() / "server.pem"),
        ssl_ca_certs=str(app.folder() / "ca.pem"),
        ssl_cert_reqs=ssl.CERT_REQUIRED,
    )
    server = uvicorn.Server(config)
    _running.append(asyncio.create_task(server.serve()))
    while not server.started:
        await asyncio.sleep(0.01)


@functools.cache
def _context() -> Any:
    return app.tls("client")


class Conn:
    def __init__(self, port: int) -> None:
        self.port = port

    async def open(self) -> None:
        pool = httpx.Limits(max_connections=64, max_keepalive_connections=64, keepalive_expiry=300)
        self.http = httpx.AsyncClient(verify=_context(), trust_env=False, timeout=60, limits=pool)
        card = _card(self.port)
        self.plain = ClientFactory(ClientConfig(streaming=False, httpx_client=self.http)).create(card)
        self.streaming = ClientFactory(ClientConfig(streaming=True, httpx_client=self.http)).create(card)

    @staticmethod
    def _message(part: Any) -> Any:
        message = types.Message(role=types.Role.ROLE_USER, message_id=str(uuid.uuid4()), parts=[part])
        return types.SendMessageRequest(message=message)

    async def _call(self, part: Any) -> Any:
        async for answer in self.plain.send_message(self._message(part)):
            return get_data_parts(answer.message.parts)[0]

    async def request(self, body: dict[str, Any]) -> Any:
        return await self._call(new_data_part(body))

    async def upload(self, blob: bytes) -> Any:
        return await self._call(new_raw_part(blob, media_type="application/octet-stream"))

    async def stream(self, n: int, spread: bool = False) -> AsyncIterator[Any]:
        order = new_data_part({"tokens": n, "spread": spread})
        async for answer in self.streaming.send_message(self._message(order)):
            if answer.HasField("artifact_update"):
                yield get_data_parts(answer.artifact_update.artifact.parts)[0]

    async def close(self) -> None:
        await self.http.aclose()
