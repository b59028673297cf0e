"""`submit`: what is kept before the ticket is printed, handed over or left for later."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Inside, Place
from tests.cli.works import submit, worker

NUMBER = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"


def test_left_for_later_where_nobody_is_there(fresh: Place) -> None:
    done = fresh.hp("submit", "worker", "text.shout", "text=hi")
    id = done.stdout.rstrip("\n")
    assert re.fullmatch(NUMBER, id)
    lines = done.stderr.splitlines()
    assert lines[0] == f"hermes-peer: made a new home in {fresh.home}"
    assert lines[1].startswith("hermes-peer: worker does not have it yet: no agent named worker runs in this home")
    assert lines[2:] == [
        f"hermes-peer: submitted, waits for worker; `hermes-peer ticket {id} --wait` delivers it and shows the result"
    ]
    assert fresh.hp("ticket", id).stdout.splitlines()[2] == "  state      waiting for worker (not sent yet)"
    with worker(fresh):
        assert fresh.hp("ticket", id, "--wait").stdout == '{"text": "HI"}\n'
    shown = fresh.hp("ticket", id).stdout.splitlines()  # the worker is gone, the outcome is here
    assert shown[0] == id and "  state      done (1 attempt)" in shown and '  result     {"text": "HI"}' in shown


def test_handed_over(fresh: Place) -> None:
    with worker(fresh):
        done = fresh.hp("submit", "worker", "text.shout", "text=hi", "--id", "greeting")
        assert done.stdout == "greeting\n"
        assert done.stderr == ("hermes-peer: worker has done it; `hermes-peer ticket greeting` shows the result\n")
        done = fresh.hp("submit", "worker", "gate", "name=a")
        id = done.stdout.rstrip("\n")
        said = f"submitted, worker has it on its disk; `hermes-peer ticket {id} --wait` shows the result"
        assert done.stderr == f"hermes-peer: {said}\n"
        (fresh.folder / "a").touch()
        assert fresh.hp("ticket", id, "--wait").stdout == "a is open\n"

        done = fresh.hp("submit", "worker", "text.shout", "text=hi", "--wait")
        assert done.stdout == '{"text": "HI"}\n'
        assert re.fullmatch(f"hermes-peer: submitted as {NUMBER}\n(hermes-peer: worker has .*\n)?", done.stderr)

        done = fresh.hp("submit", "worker", "text.shout", "text=hi", "--json")
        said_json = json.loads(done.stdout)
        assert said_json["state"] == "done"
        assert done.stderr == f"hermes-peer: submitted as {said_json['message_id']}\n"
        done = fresh.hp("submit", "worker", "text.shout", "-", "--wait", "--json", input='{"text": "é"}')
        said_json = json.loads(done.stdout)
        assert (said_json["state"], said_json["result"]) == ("done", {"text": "É"})
        assert done.stderr == f"hermes-peer: submitted as {said_json['message_id']}\n"


def test_the_same_id_is_the_same_work_and_other_work_under_it_is_refused(quick: Inside) -> None:
    with worker(quick):
        for _ in range(2):
            assert quick.hp("submit", "worker", "order", "sku=A-1", "--id", "order-17", "--wait").stdout == "A-1\n"
        said = quick.refusal("submit", "worker", "order", "sku=B-2", "--id", "order-17", code=2)
        assert said == "the id order-17 was used for other work: take another, or none"
        for id in ("cart-1", "cart-2"):
            words = ("submit", "worker", "order", "sku=C-3", "--key", "cart 9", "--id", id, "--wait")
            assert quick.hp(*words).stdout == "C-3\n"
        assert submit(quick, "worker", "order", "sku=D-4", "--key", "k") == submit(
            quick, "worker", "order", "sku=D-4", "--key", "k"
        )
    assert (quick.folder / "orders").read_text() == "A-1\nC-3\nD-4\n"


def test_what_fails_at_once_is_told_at_once(quick: Inside) -> None:
    quick.hp("init")
    (quick.home / "policy.toml").write_text(
        (quick.home / "policy.toml").read_text()
        + '\n[[rule]]\ncaller = "cli"\nagent = "worker"\nmethod = "order"\nallow = false\n'
    )
    with worker(quick):
        done = quick.hp("submit", "worker", "nothing", "--id", "n", code=1)
        assert done.stdout == "n\n"
        kept, why = done.stderr.splitlines()
        assert kept == (
            "hermes-peer: it failed and is kept as a dead letter: "
            "`hermes-peer dead show n`, `dead replay`, `dead discard`"
        )
        assert "there is no method `nothing`" in why
        done = quick.hp("submit", "worker", "order", "sku=A", "--wait", "--json", code=4)
        said = json.loads(done.stdout)
        assert said["error"]["reason"] == "policy"
        lines = done.stderr.splitlines()
        assert lines[0] == f"hermes-peer: submitted as {said['message_id']}" and "dead letter" in lines[1]
        assert "cli may not call order of worker" in lines[2] and len(lines) == 3
        (quick.folder / "no paper").touch()
        done = quick.hp("submit", "worker", "print", "page=1", "--wait", code=1)
        assert done.stderr.splitlines()[-1] == "hermes-peer: the printer is out of paper\\u001b[2J"


def test_killed_while_it_waits(fresh: Place) -> None:
    with worker(fresh):
        waiting = fresh.open("submit", "worker", "gate", "name=b", "--id", "w", "--wait")
        assert waiting.stderr is not None
        while "has it on its disk" not in (line := waiting.stderr.readline()):
            assert line
        waiting.kill()
        waiting.communicate(timeout=30)
        (fresh.folder / "b").touch()
        assert fresh.hp("ticket", "w", "--wait").stdout == "b is open\n"


def test_two_commands_at_once_have_a_slot_each(fresh: Place) -> None:
    with worker(fresh):
        waiting = fresh.open("submit", "worker", "gate", "name=c", "--id", "first", "--wait")
        assert waiting.stderr is not None
        while "has it on its disk" not in (line := waiting.stderr.readline()):
            assert line
        assert fresh.hp("submit", "worker", "text.shout", "text=a", "--id", "second", "--wait").stdout
        assert "  submitted" in (shown := fresh.hp("ticket", "second").stdout) and "by cli/2" in shown
        said = fresh.refusal("ticket", "first", code=3)
        used = f"cli/1 is in use by another command of yours (process {waiting.pid}); wait for its end, or end it"
        assert used in said
        (fresh.folder / "c").touch()
        assert waiting.communicate(timeout=30)[0] == "c is open\n"
        assert "by cli/1" in fresh.hp("ticket", "first").stdout
        assert fresh.hp("ticket", "second").returncode == 0  # of cli/2, which rests now


def started(process: subprocess.Popen[str], says: str) -> str:
    """The line of a command's stderr that says so."""
    assert process.stderr is not None
    while says not in (line := process.stderr.readline()):
        assert line
    return line


def test_an_id_and_a_key_are_the_same_work_whatever_else_runs(fresh: Place) -> None:
    with worker(fresh):
        busy = fresh.open("submit", "worker", "gate", "name=c", "--wait")
        started(busy, "has it on its disk")
        for option in ("--id", "--key"):
            words = ("submit", "worker", "order", f"sku={option}", option, "17", "--wait")
            assert fresh.hp(*words).stdout == f"{option}\n"  # from cli/2
        (fresh.folder / "c").touch()
        assert busy.communicate(timeout=30)[0] == "c is open\n"
        for option in ("--id", "--key"):
            words = ("submit", "worker", "order", f"sku={option}", option, "17", "--wait")
            assert fresh.hp(*words).stdout == f"{option}\n"  # though cli/1 is free now
        assert (fresh.folder / "orders").read_text() == "--id\n--key\n"
        assert "by cli/2" in fresh.hp("ticket", "17").stdout


def test_the_same_id_at_the_same_moment(fresh: Place) -> None:
    fresh.hp("init")
    with worker(fresh):
        busy = fresh.open("submit", "worker", "gate", "name=c", "--wait")
        started(busy, "has it on its disk")
        each = [fresh.open("submit", "worker", "order", "sku=A", "--id", "o", "--wait") for _ in range(2)]
        assert [process.communicate(timeout=60)[0] for process in each] == ["A\n"] * 2
        (fresh.folder / "c").touch()
        busy.communicate(timeout=30)
    assert (fresh.folder / "orders").read_text() == "A\n"


def test_an_id_whose_place_is_in_use_is_refused_and_others_are_not(fresh: Place) -> None:
    with worker(fresh):
        busy = fresh.open("submit", "worker", "gate", "name=c", "--id", "17", "--wait")
        started(busy, "has it on its disk")
        assert submit(fresh, "worker", "order", "sku=A", "--id", "18") == "18"
        said = fresh.refusal("submit", "worker", "gate", "name=c", "--id", "17", code=3)
        assert said == (
            f"17 was submitted from cli/1, which another command of yours uses (process {busy.pid}), and must go from "
            "there to be the same work; wait for its end, or end it"
        )
        (fresh.folder / "c").touch()
        assert busy.communicate(timeout=30)[0] == "c is open\n"
        assert fresh.hp("submit", "worker", "gate", "name=c", "--id", "17", "--wait").stdout == "c is open\n"


@pytest.mark.parametrize("options", [("--json", "--wait"), ("--wait",)])
def test_interrupted_while_it_waits_it_leaves_the_ticket(fresh: Place, options: tuple[str, ...]) -> None:
    with worker(fresh):
        waiting = fresh.open("submit", "worker", "gate", "name=d", "--ttl", "30", *options)
        id = started(waiting, "submitted as").split()[-1]
        assert re.fullmatch(NUMBER, id)
        waiting.send_signal(signal.SIGINT)
        out, errors = waiting.communicate(timeout=30)
        assert out == "" and waiting.returncode == 130
        assert errors.splitlines()[-2:] == [
            f"hermes-peer: it is kept and goes on; `hermes-peer ticket {id} --wait` shows the result",
            "hermes-peer: interrupted",
        ]
        (fresh.folder / "d").touch()
        assert fresh.hp("ticket", id, "--wait").stdout == "d is open\n"


def test_misuse(quick: Place, tmp_path: Path) -> None:
    for words, says in (
        (("worker", "Shout!"), "cannot be a method name"),
        (("worker", "echo", "abc"), "'abc' is not key=value"),
        (("worker", "echo", "--ttl", "0"), "seconds must be a number above 0; see 'hermes-peer submit --help'"),
        (("worker",), "Missing argument 'METHOD'"),
        (("worker", "echo", "--id", ""), "it is empty; see 'hermes-peer submit --help'"),
        (("worker", "echo", "--key", ""), "it is empty; see 'hermes-peer submit --help'"),
        (("worker", "echo", "--id", "é"), "printable ASCII characters"),
    ):
        assert says in quick.hp("submit", *words, code=2).stderr
    assert not (tmp_path / "home").exists()
