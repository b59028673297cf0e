"""`submit`: what is kept before the ticket is printed, handed over or left for later."""

from __future__ import annotations

import json
import re
from pathlib import Path

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
        assert json.loads(done.stdout)["state"] == "done" and done.stderr == ""
        done = fresh.hp("submit", "worker", "text.shout", "-", "--wait", "--json", input='{"text": "é"}')
        said_json = json.loads(done.stdout)
        assert (said_json["state"], said_json["result"]) == ("done", {"text": "É"}) and done.stderr == ""


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
        assert json.loads(done.stdout)["error"]["reason"] == "policy"
        assert done.stderr.count("\n") == 2 and "cli may not call order of worker" in done.stderr
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
        assert "cli/1 is in use by another command of yours; wait for its end, or end it" in said
        (fresh.folder / "c").touch()
        assert waiting.communicate(timeout=30)[0] == "c is open\n"
        assert "by cli/1" in fresh.hp("ticket", "first").stdout
        assert fresh.hp("ticket", "second").returncode == 0  # of cli/2, which rests now


def test_misuse(quick: Place, tmp_path: Path) -> None:
    for words, says in (
        (("worker", "Shout!"), "cannot be a method name"),
        (("worker", "echo", "abc"), "'abc' is not key=value"),
        (("worker", "echo", "--ttl", "0"), "seconds must be a number above 0; see 'hermes-peer submit --help'"),
        (("worker",), "Missing argument 'METHOD'"),
    ):
        assert says in quick.hp("submit", *words, code=2).stderr
    assert not (tmp_path / "home").exists()
