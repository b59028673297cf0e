"""The reader of a model's tokens, against a real small server.

Knows: answers good, odd, cut short and absent. Refuses to know: agents. Called by: pytest.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from hermes_peer.cli.demo.model import tokens_of
from hermes_peer.errors import CallError, UsageError

from .server import GOOD, WORDS, ModelServer, delta


def read(*events: Any, path: str = "", **options: Any) -> tuple[list[str], ModelServer]:
    async def main() -> tuple[list[str], ModelServer]:
        async with asyncio.timeout(20), ModelServer(*events, **options) as server:
            return [token async for token in tokens_of(server.url + path, "Well?")], server

    return asyncio.run(main())


def test_without_its_client_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(UsageError, match=r"pip install 'hermes-peer\[openai\]'"):
        read()


class TestWithItsClient:
    @pytest.fixture(autouse=True)
    def client(self) -> None:
        pytest.importorskip("httpx2")

    @pytest.mark.parametrize("slices", [0, 1, 7])
    def test_tokens_come_whole_however_the_bytes_are_cut(self, slices: int) -> None:
        tokens, server = read(slices=slices)
        assert tuple(tokens) == WORDS
        assert server.asked[0]["stream"] is True
        assert server.asked[0]["messages"] == [{"role": "user", "content": "Well?"}]

    @pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
    def test_the_address_may_be_given_in_any_usual_form(self, path: str) -> None:
        assert read(path=path)[1].paths == ["/v1/chat/completions"]

    @pytest.mark.case("HPC-063")
    def test_hpc_063_chunks_without_choices_or_text_are_passed_over(self) -> None:
        odd = ['{"choices":null}', "{}", '{"choices":[{"delta":null}]}', '{"choices":[],"usage":{}}']
        assert tuple(read([*odd, *GOOD, *odd])[0]) == WORDS

    def test_a_finish_reason_ends_it_without_a_mark(self) -> None:
        assert tuple(read(end="")[0]) == WORDS

    @pytest.mark.case("HPC-069")
    def test_hpc_069_an_answer_that_is_cut_short_is_an_error_that_may_be_retried(self) -> None:
        with pytest.raises(CallError, match="cut short") as told:
            read([delta("half")], end="")
        assert (told.value.reason, told.value.retryable) == ("model", True)

    def test_a_refusal_names_its_status(self) -> None:
        with pytest.raises(CallError, match="503"):
            read(status=503)

    def test_nobody_there(self) -> None:
        async def main() -> None:
            async for _ in tokens_of("http://127.0.0.1:1", "Well?"):
                pass

        with pytest.raises(CallError, match=r"model server at http://127\.0\.0\.1:1/v1/chat/completions failed"):
            asyncio.run(main())
