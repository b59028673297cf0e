"""`dead`: what failed for good is listed, shown, sent once more, forgotten; wherever it lies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_peer import CallError, HermesAgent
from hermes_peer.agent.durable import letters
from hermes_peer.cli import dead, submitters
from tests.cli.conftest import Inside, Place, until
from tests.cli.works import planner, submit, submitted_by_a_planner_that_died, worker


def test_list_show_replay_discard(quick: Inside) -> None:
    quick.hp("init")
    assert quick.hp("dead", "list").stderr == "hermes-peer: there are no dead letters\n"
    assert quick.hp("dead", "list", "--json").stdout == ""
    (paper := quick.folder / "no paper").touch()
    with worker(quick):
        submit(quick, "worker", "print", "page=7", "--id", "p", code=1)
        submit(quick, "worker", "nothing", "--id", "n", code=1)
        head, first, second = quick.hp("dead", "list").stdout.splitlines()
        assert head.split() == ["ID", "BY", "FOR", "METHOD", "SUBMITTED", "WHY"]
        assert first.split()[:4] == ["p", "cli/1", "worker", "print"]
        assert first.endswith("the printer is out of paper\\u001b[2J")
        assert second.split()[:4] == ["n", "cli/1", "worker", "nothing"]
        rows = [json.loads(line) for line in quick.hp("dead", "list", "cli", "--json").stdout.splitlines()]
        assert [(row["message_id"], row["error"]["code"], row["slot"]) for row in rows] == [("p", 10, 1), ("n", 4, 1)]

        shown = quick.hp("dead", "show", "p").stdout.splitlines()
        assert shown[0] == "p" and "  state      dead (1 attempt)" in shown
        assert "  code       10 ERROR_APPLICATION, reason no_paper" in shown
        assert '  details    {"tray": 2}' in shown and '  payload    {"page":7}' in shown
        assert json.loads(quick.hp("dead", "show", "p", "--json").stdout)["payload"] == '{"page":7}'

        done = quick.hp("dead", "replay", "p", code=1)
        assert done.stdout == "" and "it failed again; it failed and is kept" not in done.stderr
        assert done.stderr.splitlines()[0].startswith("hermes-peer: it failed again and is kept as a dead letter")
        paper.unlink()
        done = quick.hp("dead", "replay", "p")
        assert done.stdout == "p is sent once more\n"
        assert done.stderr == "hermes-peer: it is done; `hermes-peer ticket p` shows the result\n"
        assert '  result     "page 7"' in (shown_text := quick.hp("ticket", "p").stdout) and "by cli" in shown_text
        assert quick.refusal("dead", "replay", "p", code=2) == (
            "p is no dead letter, its work is done; see `hermes-peer ticket p`"
        )
        assert quick.refusal("dead", "discard", "p", code=2).startswith("p is no dead letter")
    assert quick.hp("dead", "discard", "n").stdout == "n is forgotten\n"
    assert "no agent of this home submitted n" in quick.refusal("dead", "discard", "n", code=2)
    assert quick.hp("dead", "list").stdout == ""


def test_a_replay_while_nobody_is_there_runs_what_had_failed_once_somebody_is(fresh: Place) -> None:
    (paper := fresh.folder / "no paper").touch()
    with worker(fresh):
        submit(fresh, "worker", "print", "page=1", "--id", "p", code=1)
    paper.unlink()
    done = fresh.hp("dead", "replay", "p")
    assert done.stderr.splitlines()[-1] == (
        "hermes-peer: it waits for worker; `hermes-peer ticket p --wait` delivers it and shows the result"
    )
    with worker(fresh):  # and another process asks: the round is on the disk, not in a memory
        assert fresh.hp("ticket", "p", "--wait").stdout == "page 1\n"


def test_letters_of_a_planner_that_is_gone(quick: Inside) -> None:
    (paper := quick.folder / "no paper").touch()
    submitted_by_a_planner_that_died(quick, ("a", "worker", "print", {"page": 1}), ("b", "worker", "none", {}))
    with worker(quick):
        assert "the printer is out of paper" in quick.hp("ticket", "a", "--wait", code=1).stderr
        quick.hp("ticket", "b", "--wait", code=1)
        assert [line.split()[:2] for line in quick.hp("dead", "list", "planner").stdout.splitlines()[1:]] == [
            ["a", "planner/1"],
            ["b", "planner/1"],
        ]
        assert '  payload    {"page":1}' in quick.hp("dead", "show", "a").stdout
        paper.unlink()
        done = quick.hp("dead", "replay", "a", "--wait")
        assert done.stdout == "page 1\n" and "planner/1 does not run" in done.stderr
        assert json.loads(quick.hp("dead", "discard", "b", "--json").stdout)["discarded"] is True
        assert quick.hp("dead", "list").stdout == ""


def test_letters_of_a_planner_that_runs(quick: Inside) -> None:
    (paper := quick.folder / "no paper").touch()
    with worker(quick), planner(quick, ("a", "worker", "print", {"page": 1}), ("b", "worker", "none", {})):
        until(quick, "dead (1 attempt)", "ticket", "a")
        until(quick, "dead (1 attempt)", "ticket", "b")
        assert len(quick.hp("dead", "list").stdout.splitlines()) == 3
        assert '  payload    {"page":1}' in quick.hp("dead", "show", "a").stdout
        done = quick.hp("dead", "replay", "a", "--wait", code=1)
        assert "the printer is out of paper" in done.stderr and done.stdout == ""
        paper.unlink()
        assert quick.hp("dead", "replay", "a", "--wait").stdout == "page 1\n"
        assert quick.hp("dead", "discard", "b").stdout == "b is forgotten\n"
        assert "is done" in quick.refusal("dead", "show", "a", code=2)


def test_one_that_cannot_be_asked_is_told_and_the_others_are_shown(quick: Inside) -> None:
    with worker(quick), planner(quick, ("a", "worker", "none", {}), listen=False):
        submit(quick, "worker", "none", "--id", "mine", code=1)
        done = quick.hp("dead", "list", code=3)
        assert "mine" in done.stdout and "\na" not in done.stdout
        assert done.stderr.count("\n") == 1 and "planner/1 runs in another process" in done.stderr


async def test_many_and_long_ones_are_listed_wherever_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "PAGE", 2)
    worker, planner, me = (HermesAgent(name, home=tmp_path / "home", slot=1) for name in ("worker", "planner", "cli"))

    @worker.method("fail")
    async def fail() -> None:
        raise CallError("no_paper", "out of paper", details={"dump": "x" * 100_000})

    async def listed(name: str, where: submitters.Where) -> list[str]:
        (who,) = submitters.submitters(me, name)
        assert who.where is where
        views = await dead._letters(me, who)
        assert all("details" not in view["error"] for view in views)
        return [view["message_id"] for view in views]

    async with worker, me:
        async with planner:
            for agent in (planner, me):
                for n in range(5):
                    with pytest.raises(CallError):
                        await (await agent.submit("worker", "fail", {}, message_id=f"{agent.name}-{n}")).result()
            assert await listed("planner", submitters.Where.RUNNING) == [f"planner-{n}" for n in range(5)]
        assert await listed("planner", submitters.Where.RESTING) == [f"planner-{n}" for n in range(5)]
        assert await listed("cli", submitters.Where.HERE) == [f"cli-{n}" for n in range(5)]
