"""`ticket`: whoever of the home submitted it, whether it runs, rests or was killed; and nobody else."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Inside, Place, shell, until
from tests.cli.works import coming_planner, planner, submit, submitted_by_a_planner_that_died, worker

DOES_NOT_RUN = "hermes-peer: planner/1 does not run, so this command goes on with its deliveries"


def test_the_submitter_is_gone_and_its_work_goes_on(fresh: Place) -> None:
    submitted_by_a_planner_that_died(
        fresh,
        ("p-shout", "worker", "text.shout", {"text": "hi"}),
        ("p-count", "worker", "count", {"n": 150}),
        ("p-gate", "worker", "gate", {"name": "a"}),
    )
    done = fresh.hp("ticket", "p-shout")
    assert "  state      waiting for worker (not sent yet)" in done.stdout and "by planner/1" in done.stdout
    assert done.stderr.splitlines()[0] == DOES_NOT_RUN
    with worker(fresh):
        done = fresh.hp("ticket", "p-gate")  # takes all of the planner's work along
        assert "  state      accepted: worker has it on its disk (1 attempt)" in done.stdout.splitlines()
        done = fresh.hp("ticket", "p-shout", "--json")
        view = json.loads(done.stdout)
        assert (view["state"], view["result"], view["agent"], view["slot"]) == ("done", {"text": "HI"}, "planner", 1)
        assert done.stderr == ""  # its outcome lies there: nothing had to go on
        done = fresh.hp("ticket", "p-count", "planner", "--items")
        assert done.stdout == "".join(f'{{"i": {i}}}\n' for i in range(150))
        assert done.stderr.splitlines()[-1] == 'hermes-peer: result: {"n": 150}'
        again = fresh.hp("ticket", "p-count", "--items", "--json")
        assert json.loads(again.stdout) == {"result": {"n": 150}}
        assert "goes on at item 150, where the last reader stopped" in again.stderr
        waiting = fresh.open("ticket", "p-gate", "--wait")
        assert waiting.stderr is not None
        assert waiting.stderr.readline().rstrip("\n") == f"{DOES_NOT_RUN}; do not start planner before this ends"
        (fresh.folder / "a").touch()
        assert waiting.communicate(timeout=30)[0] == "a is open\n" and waiting.returncode == 0


def test_items_are_read_again_from_a_number_on(fresh: Place) -> None:
    with worker(fresh):
        (fresh.folder / "e").touch()
        id = submit(fresh, "worker", "count", "n=150")
        pipe = shell(fresh, f"hp ticket {id} --items | head -1")  # what lay in the pipe counts as read
        assert pipe.stdout.startswith('{"i": 0}\n')
        done = fresh.hp("ticket", id, "--items", "--from", "148")
        assert done.stdout == '{"i": 148}\n{"i": 149}\n' and "goes on at" not in done.stderr
    for words, says in (
        (("--from", "0"), "--from says where --items begins: give both"),
        (("--items", "--from", "-1"), "Invalid value for '--from'"),
    ):
        assert says in fresh.refusal("ticket", id, *words, code=2)


def test_a_command_in_the_planner_s_place_is_named_and_the_planner_waits_for_it(fresh: Place) -> None:
    submitted_by_a_planner_that_died(fresh, ("g", "worker", "gate", {"name": "a"}))
    with worker(fresh):
        waiting = fresh.open("ticket", "g", "--wait")
        assert waiting.stderr is not None
        assert waiting.stderr.readline().startswith(DOES_NOT_RUN)
        said = fresh.refusal("ticket", "g", code=3)
        assert f"planner/1 is in use by another command of yours (process {waiting.pid}); wait for its end" in said
        with coming_planner(fresh, ("again", "worker", "text.shout", {"text": "x"})) as coming:
            assert coming.stderr is not None
            assert "planner/1 is in use by a command of yours" in coming.stderr.readline()
            (fresh.folder / "a").touch()
            assert waiting.communicate(timeout=30)[0] == "a is open\n"
            assert coming.stdout is not None and coming.stdout.readline() == "submitted\n"
            assert "by planner/1" in fresh.hp("ticket", "again").stdout


def test_a_submitter_that_runs_is_asked(quick: Inside) -> None:
    with worker(quick), planner(quick, ("g", "worker", "gate", {"name": "b"}), ("bad", "worker", "none", {})):
        until(quick, "accepted: worker has it on its disk", "ticket", "g")
        assert quick.hp("ticket", "g").stderr == ""
        said = quick.refusal("ticket", "g", "--items", code=2)
        assert said.startswith("planner/1 runs, and its items are its own to read, each once")
        waiting = quick.open("ticket", "g", "--wait")
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == "hermes-peer: planner/1 runs and delivers it\n"
        (quick.folder / "b").touch()
        assert waiting.communicate(timeout=30)[0] == "b is open\n"
        assert "  state      done (1 attempt)" in quick.hp("ticket", "g", "planner").stdout
        until(quick, "dead (1 attempt)", "ticket", "bad")
        done = quick.hp("ticket", "bad", "--json", code=1)
        assert json.loads(done.stdout)["error"]["code"] == 4
        assert "dead letter" in done.stderr and "there is no method `none`" in done.stderr
        done = quick.hp("ticket", "bad", "--wait", code=1)
        assert done.stdout == "" and "there is no method `none`" in done.stderr


def test_a_submitter_that_runs_and_listens_nowhere_cannot_be_asked(quick: Inside) -> None:
    with planner(quick, ("x", "worker", "count", {"n": 1}), listen=False):
        said = quick.refusal("ticket", "x", code=3).partition(": made")[0]
        assert "planner/1 runs in another process and listens nowhere, so it cannot be asked" in said
    assert "waiting for worker" in quick.hp("ticket", "x").stdout


def test_a_trusted_agent_of_another_home_is_refused(quick: Inside, tmp_path: Path) -> None:
    other = quick.at(Place(tmp_path / "other", tmp_path))
    key = other.hp("trust", "show").stdout.split()[3]
    with worker(quick), planner(quick, ("secret", "worker", "text.shout", {"text": "x"})):
        quick.hp("trust", "add", key, "name=cli")
        (quick.home / "policy.toml").write_text(
            (quick.home / "policy.toml").read_text()
            + f'\n[[rule]]\ncaller = "fp:{key}"\nagent = "*"\nmethod = ["**", "read"]\nallow = true\n'
        )
        line = next(line for line in quick.hp("trust", "show", "planner").stdout.splitlines())
        name, place = line.split()[3], quick.hp("list", "--json").stdout.splitlines()
        address = next(row["address"] for row in map(json.loads, place) if row["agent"] == "planner")
        other.hp("trust", "add", name, "name=planner", f"at={address}")
        until(other, "planner", "call", "planner", "hermes.ping")  # it is let in, and may read
        for words in (
            ("ticket", "secret", "planner"),
            ("call", "planner", "hermes.ticket", "message_id=secret"),
            ("dead", "show", "secret", "planner"),
            ("call", "planner", "hermes.dead", "action=list"),
        ):
            done = other.hp(*words, code=4)
            assert "may not call hermes." in done.stderr and done.stdout == ""
        # The worker answers each of its callers about its own work only.
        assert "HI" not in other.hp("ticket", "secret", code=2).stdout


def test_a_command_in_the_planner_s_place_leaves_what_the_planner_had_taken(quick: Inside) -> None:
    with planner(quick, ("mine", "nobody", "x", {})) as process:
        taken = submit(quick, "planner", "relay", "name=c")
        process.kill()
        process.wait(30)
    assert "waiting for nobody" in quick.hp("ticket", "mine").stdout  # opens the slot, with no method in it
    with planner(quick):
        (quick.folder / "c").touch()
        assert quick.hp("ticket", taken, "--wait").stdout == "c was relayed\n"


def test_a_command_in_the_planner_s_place_refuses_nothing_for_good(quick: Inside) -> None:
    """It has none of the planner's methods; whoever submitted work for it must not hear so."""
    submitted_by_a_planner_that_died(quick, ("p", "worker", "text.shout", {"text": "x"}))
    with worker(quick):
        assert quick.hp("submit", "worker", "tell", "name=d", "--wait").stdout == "told\n"
        assert "waiting for planner" in quick.hp("ticket", "told", "worker").stdout
        assert "done" in quick.hp("ticket", "p", "planner").stdout  # the worker meets the planner's key, and sends it
        assert "waiting for planner" in quick.hp("ticket", "told", "worker").stdout
        with planner(quick):
            (quick.folder / "d").touch()
            assert quick.hp("ticket", "told", "worker", "--wait").stdout == "d was relayed\n"


def test_a_slot_whose_key_lies_elsewhere_is_left_alone(quick: Inside, tmp_path: Path) -> None:
    quick.hp("trust", "show")
    key = tmp_path / "own.pem"
    key.write_bytes((quick.home / "agents" / "cli" / "1" / "key.pem").read_bytes())
    key.chmod(0o600)
    with planner(quick, ("k", "nobody", "x", {}), key=key, listen=False):
        pass
    said = quick.refusal("ticket", "k", code=2)
    assert said == "planner/1 has its key elsewhere (secret_key_path=): start planner, it goes on by itself"
    assert not (quick.home / "agents" / "planner" / "1" / "key.pem").exists()


def test_what_nobody_submitted_and_misuse(quick: Inside) -> None:
    quick.hp("init")
    assert quick.refusal("ticket", "x\x1b", code=2) == (
        "no agent of this home submitted x\\u001b, or it was long ago; the id is what `hermes-peer submit` printed"
    )
    assert quick.refusal("ticket", "x", "cli", code=2).startswith("cli did not submit x")
    assert "no agent named nobody runs in this home" in quick.refusal("ticket", "x", "nobody", code=3)
    for words in (("ticket", ""), ("ticket", "", "--items"), ("dead", "show", ""), ("dead", "discard", "")):
        said = quick.refusal(*words, code=2)
        command = " ".join(word for word in words if word and not word.startswith("-"))
        assert said == f"Invalid value for 'ID': it is empty; see 'hermes-peer {command} --help'"
    assert quick.refusal("ticket", "x", "--wait", "--items", code=2) == (
        "--items waits by itself: give --wait or --items"
    )
