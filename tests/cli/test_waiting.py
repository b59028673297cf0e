"""`waiting`: the end of a process that is asked for a work is not the end of that work."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

import pytest

from hermes_peer import HermesAgent
from hermes_peer.cli import out, waiting
from hermes_peer.cli.submitters import Where, find
from hermes_peer.errors import LinkError
from tests.cli.conftest import Inside, Place
from tests.cli.works import Work, planner, submitted_by_a_planner_that_died, worker
from tests.cli.works import until as begun
from tests.loops import until

GATE: Work = ("g", "worker", "gate", {"name": "a"})


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the command notes, line by line."""
    lines: list[str] = []
    monkeypatch.setattr(out, "note", lines.append)
    monkeypatch.setattr(waiting, "BACK_S", 0.3)
    return lines


@contextlib.asynccontextmanager
async def command(place: Place) -> AsyncIterator[HermesAgent]:
    """A command of this home."""
    async with HermesAgent("cli", home=place.home, listen=False, redial_limit=1) as me:
        yield me


async def waits(me: HermesAgent, said: list[str]) -> asyncio.Task[tuple[object, dict[str, object]]]:
    """Waits for `g`, which a planner delivers that runs."""
    who, view = await find(me, "g")
    assert who.where is Where.RUNNING
    ended = asyncio.create_task(waiting.ended(me, who, view, ""))
    await until(lambda: said == ["planner/1 runs and delivers it"])
    return ended


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_this_command_takes_the_place_of_what_ended(fresh: Place, said: list[str], number: int) -> None:
    with worker(fresh), planner(fresh, GATE) as process:
        async with command(fresh) as me:
            ended = await waits(me, said)
            process.send_signal(number)
            await until(lambda: any("so this command goes on" in line for line in said))
            (fresh.folder / "a").touch()
            who, view = await ended
    assert (view["state"], view["result"], str(who)) == ("done", "a is open", "planner/1")
    assert said[1].startswith("planner/1 ended or cannot be asked now (")
    assert said[1].endswith("; the work goes on, and is waited for")


async def test_one_that_comes_back_is_asked_again(
    fresh: Place, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "BACK_S", 30.0)
    with worker(fresh):
        async with command(fresh) as me:
            with planner(fresh, GATE) as process:
                ended = await waits(me, said)
                process.kill()
                await until(lambda: len(said) == 2)
            with planner(fresh):
                await until(lambda: len(said) == 3)
                (fresh.folder / "a").touch()
                _, view = await ended
    assert said[2] == "planner/1 runs and delivers it"
    assert (view["state"], view["result"]) == ("done", "a is open")


async def test_another_command_in_its_place_is_waited_for(fresh: Place, said: list[str]) -> None:
    submitted_by_a_planner_that_died(fresh, GATE)
    with worker(fresh):
        async with command(fresh) as me:
            who, view = await find(me, "g")
            assert who.where is Where.RESTING
            theirs = fresh.open("ticket", "g", "--wait")  # it comes between our look and our wait
            assert theirs.stderr is not None and "so this command goes on" in theirs.stderr.readline()
            ended = asyncio.create_task(waiting.ended(me, who, view, ""))
            await until(lambda: said)
            (fresh.folder / "a").touch()
            _, view = await ended
            assert theirs.communicate(timeout=30)[0] == "a is open\n"
    assert view["result"] == "a is open"
    in_use = f"planner/1 is in use by another command of yours (process {theirs.pid})"
    assert said == [f"{in_use}; the work goes on, and is waited for"]


async def test_nobody_comes_back(fresh: Place, said: list[str]) -> None:
    """It is held by what can never be asked: that is told, not waited for."""
    with planner(fresh, ("g", "nobody", "x", {})) as process:
        async with command(fresh) as me:
            ended = await waits(me, said)
            process.kill()
            process.wait(30)
            with planner(fresh, listen=False), pytest.raises(LinkError, match="planner/1 runs in another process"):
                await ended


async def test_an_answer_that_is_an_error_is_the_end(fresh: Place, said: list[str]) -> None:
    with worker(fresh), planner(fresh, ("g", "worker", "print", {"page": 1})):
        (fresh.folder / "no paper").touch()
        async with command(fresh) as me:
            who, view = await waiting.ended(me, *await find(me, "g"), "")
    assert view["state"] == "dead" and str(who) == "planner/1"


def test_a_letter_is_sent_once_and_waited_for_past_the_end_of_its_sender(quick: Inside) -> None:
    with worker(quick), planner(quick, ("p", "worker", "press", {"name": "a"})) as process:
        assert "out of paper" in quick.hp("ticket", "p", "--wait", code=1).stderr
        (quick.folder / "paper").touch()
        replaying = quick.open("dead", "replay", "p", "--wait")
        assert replaying.stderr is not None
        begun(lambda: (quick.folder / "orders").exists())
        process.terminate()
        while "so this command goes on" not in (line := replaying.stderr.readline()):
            assert line
        (quick.folder / "a").touch()
        assert replaying.communicate(timeout=30)[0] == "a is printed\n" and replaying.returncode == 0
    assert (quick.folder / "orders").read_text() == "a\n"
