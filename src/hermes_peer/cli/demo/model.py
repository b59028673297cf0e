"""Tokens of a model server that speaks the OpenAI form of server-sent events.

Knows: one request, its event lines. Refuses to know: agents. Called by: the demo's worker. Needs `httpx2`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from hermes_peer.errors import CallError, UsageError


async def tokens_of(url: str, prompt: str) -> AsyncIterator[str]:
    """Text pieces as they come. Raises CallError (model) naming the phase, UsageError without httpx2."""
    try:
        import httpx2 as httpx
    except ImportError:
        raise UsageError("--model needs an HTTP client: pip install 'hermes-peer[openai]'") from None
    body = {"messages": [{"role": "user", "content": prompt}], "stream": True, "max_tokens": 200}
    url = url.rstrip("/")
    url = url if url.endswith("/chat/completions") else f"{url.removesuffix('/v1')}/v1/chat/completions"
    ended = False
    try:
        async with (
            httpx.AsyncClient(timeout=httpx.Timeout(60, connect=5)) as client,
            client.stream("POST", url, json=body) as response,
        ):
            if response.status_code != 200:
                raise CallError("model", f"the model server answered {response.status_code}")
            async for line in response.aiter_lines():
                if not line.startswith("data:"):
                    continue
                data = line[5:].strip()
                if data == "[DONE]":
                    ended = True
                    break
                for choice in json.loads(data).get("choices") or ():
                    text = (choice.get("delta") or {}).get("content")
                    ended = ended or choice.get("finish_reason") is not None
                    if text:
                        yield text
    except httpx.HTTPError as error:
        raise CallError("model", f"the model server at {url} failed: {error or type(error).__name__}") from None
    if not ended:
        raise CallError("model", "the model's answer was cut short: it had no end mark", retryable=True)
