"""grpc.aio with generic handlers and JSON messages; no protobuf on either side, which is to its favour."""

from __future__ import annotations

from typing import Any

import grpc

from bench import app

SERVICE = "bench.Bench"
SIZES = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_running: list[Any] = []


def _pem(name: str) -> bytes:
    return (app.folder() / name).read_bytes()


async def _echo(request: Any, context: Any) -> Any:
    return await app.echo(request)


async def _tokens(request: Any, context: Any) -> Any:
    async for token in app.tokens(*request):
        yield token


async def _upload(request: bytes, context: Any) -> Any:
    return app.upload(request)


async def serve(port: int) -> None:
    server = grpc.aio.server(options=SIZES)
    methods = {
        "Echo": grpc.unary_unary_rpc_method_handler(_echo, app.loads, app.dumps),
        "Tokens": grpc.unary_stream_rpc_method_handler(_tokens, app.loads, app.dumps),
        "Upload": grpc.unary_unary_rpc_method_handler(_upload, None, app.dumps),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    pair = (_pem("server.key"), _pem("server.pem"))
    server.add_secure_port(f"{app.HOST}:{port}", grpc.ssl_server_credentials([pair], _pem("ca.pem"), True))
    await server.start()
    _running.append(server)


class Conn:
    def __init__(self, port: int) -> None:
        self.port = port

    async def open(self) -> None:
        # channels share connections unless told not to
        options = [*SIZES, ("grpc.use_local_subchannel_pool", 1), ("grpc.ssl_target_name_override", "localhost")]
        keys = grpc.ssl_channel_credentials(_pem("ca.pem"), _pem("client.key"), _pem("client.pem"))
        self.channel = grpc.aio.secure_channel(f"{app.HOST}:{self.port}", keys, options=options)
        self.request = self.channel.unary_unary(f"/{SERVICE}/Echo", app.dumps, app.loads)
        self.upload = self.channel.unary_unary(f"/{SERVICE}/Upload", None, app.loads)
        self._tokens = self.channel.unary_stream(f"/{SERVICE}/Tokens", app.dumps, app.loads)

    def stream(self, n: int, spread: bool = False) -> Any:
        return self._tokens([n, spread])

    async def close(self) -> None:
        await self.channel.close()
