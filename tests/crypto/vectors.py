"""Writes `conformance/vectors/handshake.json`: `python -m tests.crypto.vectors` from the root of the repository.

Knows: the inputs of each vector. Refuses to know: any value that two implementations do not agree on.
Called by: a person, after a change of the spec; test_vectors checks that the file is fresh.

ML-KEM's encapsulation cannot be seeded: its ciphertext is kept from the file that is there, all else is made anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hermes_peer.crypto.handshake import Acceptor, Dialler, Offer, Resumable, resume_id
from hermes_peer.crypto.seal import Sealer

from .other import Other, X, read_hello
from .rig import A_SEED, B_SEED, SESSION, A, B, SeededKem, run_of, script

PATH = Path(__file__).parents[2] / "conformance" / "vectors" / "handshake.json"
KEM_SEED = bytes(range(64))
TIME = 1_700_000_000_000
ZERO = bytes(32)

ABOUT = (
    "Known answers for the handshake hermes-link/1 and its SEALED records. All bytes are lower-case hex; messages "
    "carry their own 4-byte header and no HRMP frame. Draws: each side's ephemeral X25519 key and random are given "
    "as inputs. `dialler`/`acceptor` are the spec's I/R. Signatures are plain Ed25519, so every byte is determined, "
    "but for ML-KEM's ciphertext, which is stored: check it by decapsulating."
)


def run(
    about: str,
    *,
    suites: tuple[int, ...],
    caps: tuple[bytes, bytes],
    kem: SeededKem | None,
    realm: bytes = ZERO,
    psk: bytes | None = None,
    first: int = 0x40,
    session: bytes = SESSION,
) -> dict[str, Any]:
    """One handshake by our code, with every inner value by the other implementation."""
    ephemeral, random = (run_of(first), run_of(first + 64)), (run_of(first + 32), run_of(first + 96))
    rid = resume_id(psk, True, 0) if psk else b""
    port = kem or SeededKem()
    common: dict[str, Any] = {"kem": port, "realm": realm}
    d = Dialler(
        A,
        B.fingerprint,
        Offer(suites=suites),
        caps[0],
        entropy=script(ephemeral[0], random[0]),
        psk=psk,
        resume_id=rid,
        now_ms=TIME,
        **common,
    )
    a = Acceptor(
        B,
        Offer(suites=suites),
        entropy=script(ephemeral[1], random[1]),
        session=session,
        now_ms=TIME + 1,
        caps=caps[1],
        **common,
    )
    hello = d.hello()
    welcome = a.hello(hello, lambda _: Resumable(psk, session) if psk else None)
    ready = d.welcome(welcome)
    mine, theirs = d.outcome, a.ready(ready)
    assert mine is not None

    witness = Other(A_SEED, ephemeral=ephemeral[0], random=random[0], realm=realm, psk=psk or ZERO)
    th0 = witness.th
    witness.versions, witness.suites = (1,), suites
    witness.kem_private = port.private
    witness.mix(hello)
    assert witness.ready(welcome, caps=caps[0], time=TIME) == ready
    assert (mine.send_secret, theirs.send_secret) == (witness.i_ap, witness.r_ap)
    assert (mine.psk, mine.exporter, mine.psk) == (witness.next_psk, witness.exporter, theirs.psk)
    suite = mine.suite
    out: dict[str, Any] = {
        "about": about,
        "version": 1,
        "suite": suite,
        "suites_offered": list(suites),
        "resumed": mine.resumed,
        "realm": realm,
        "psk": psk or ZERO,
        "resume_id": rid,
        "session": session,
        "dialler_seed": A_SEED,
        "dialler_fingerprint": A.fingerprint,
        "dialler_ephemeral": ephemeral[0],
        "dialler_random": random[0],
        "dialler_time_ms": TIME,
        "dialler_caps": caps[0],
        "acceptor_seed": B_SEED,
        "acceptor_fingerprint": B.fingerprint,
        "acceptor_ephemeral": ephemeral[1],
        "acceptor_random": random[1],
        "acceptor_time_ms": TIME + 1,
        "acceptor_caps": caps[1],
    }
    if suite == 1:
        out |= {
            "mlkem_seed": KEM_SEED,
            "mlkem_ek": read_hello(hello).ek,
            "mlkem_ct": port.ct,
            "mlkem_shared": port.shared,
        }
    out |= {
        "hello": hello,
        "welcome": welcome,
        "ready": ready,
        "th0": th0,
        "th1": witness.th1,
        "shared": witness.ss,
        "dialler_hs": witness.i_hs,
        "acceptor_hs": witness.r_hs,
        "master": witness.master,
        "th_final": witness.th_final,
        "dialler_secret": witness.i_ap,
        "acceptor_secret": witness.r_ap,
        "exporter": witness.exporter,
        "next_psk": witness.next_psk,
        "next_resume_ids_dialler_is_originator": [resume_id(witness.next_psk, True, n) for n in range(8)],
        "next_resume_ids_dialler_is_other": [resume_id(witness.next_psk, False, n) for n in range(8)],
    }
    return out


def records(secret: bytes) -> dict[str, Any]:
    """SEALED records of one direction, before and after a rekey."""
    sealer, steps = Sealer(secret), []
    for epoch, (key, texts) in enumerate(
        ((secret, (b"hermes", b"", b"peer")), (X(secret, b"upd"), (b"hermes", bytes(range(100)))))
    ):
        for counter, plain in enumerate(texts):
            record = sealer.seal(plain)
            steps.append(
                {
                    "rekeys_before": epoch,
                    "counter": counter,
                    "key": X(key, b"key"),
                    "iv": X(key, b"iv", n=12),
                    "plain": plain,
                    "header": record[:19],
                    "record": record,
                }
            )
        sealer.rekey()
    return {
        "about": (
            "Records of the dialler after suite_2, in order; a rekey follows the third. In use the record before a "
            "rekey ends with a REKEY frame; here the plaintexts are plain bytes."
        ),
        "secret": secret,
        "secret_after_rekey": X(secret, b"upd"),
        "records": steps,
    }


def stored_ct() -> bytes | None:
    """The ML-KEM ciphertext of the file that is there, if it is."""
    if not PATH.exists():
        return None
    return bytes.fromhex(json.loads(PATH.read_text())["suite_1"]["mlkem_ct"])


def build(ct: bytes | None) -> dict[str, Any]:
    """The whole file; `ct` is the stored ciphertext, None makes a new one."""
    braces = (b"{}", b"{}")
    classical = run(
        "Suite 2, first meeting. The security note's vector 3.9; only here are the acceptor's caps not empty.",
        suites=(2,),
        caps=braces,
        kem=None,
    )
    hybrid = run(
        "Suite 1, chosen from an offer of both, in a realm; the acceptor's caps are empty as the spec wants.",
        suites=(1, 2),
        caps=(b'{"agent":"a"}', b""),
        kem=SeededKem(KEM_SEED, ct),
        realm=run_of(0xE0),
    )
    resumed = run(
        "Suite 2, resumed: the next_psk of suite_2 and its session, first attempt by the originator.",
        suites=(2,),
        caps=(b"{}", b""),
        kem=None,
        psk=classical["next_psk"],
        first=0x41,
    )
    whole = {
        "about": ABOUT,
        "suite_2": classical,
        "suite_1": hybrid,
        "resumed": resumed,
        "sealed": records(classical["dialler_secret"]),
    }
    return json.loads(json.dumps(whole, default=bytes.hex))  # type: ignore[no-any-return]


def text(whole: dict[str, Any]) -> str:
    """The file's text."""
    return json.dumps(whole, indent=1) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(build(stored_ct())))
    print(f"wrote {PATH}")
