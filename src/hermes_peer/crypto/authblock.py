"""The sealed block by which a side proves its key: `body | signature | fin` (spec: handshake, AuthBlock).

Knows: the order of proof and the transcript's part in it. Refuses to know: whether the proven key is wanted.
Called by: dialler and acceptor, each once to seal and once to open.

What each wall is for: the signature proves the key, `fin` ties that key to this key exchange (misbinding),
the transcript ties both to all said before. The design survives the loss of one; tests check each alone.
"""

from __future__ import annotations

import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hermes_peer.crypto.keys import SIGNATURE_SIZE, SPKI_PREFIX, Context, Identity, check_public, verify
from hermes_peer.crypto.messages import Body, decode_body, encode_body
from hermes_peer.crypto.outcome import HandshakeError
from hermes_peer.crypto.schedule import Transcript, expand, mac

FIN_SIZE = 32
OVERHEAD = SIGNATURE_SIZE + FIN_SIZE


def _cipher(secret: bytes) -> tuple[AESGCM, bytes]:
    # One use a secret: the transcript behind it holds both sides' fresh randoms and shares.
    return AESGCM(expand(secret, b"key")), expand(secret, b"iv", n=12)


def seal_block(transcript: Transcript, secret: bytes, body: Body, identity: Identity, context: Context) -> bytes:
    """The sealed AuthBlock of `identity`; `transcript` moves on past its `fin`."""
    before = transcript.value
    plain = encode_body(body)
    transcript.mix(plain)
    signature = identity.sign(context, transcript.value)
    transcript.mix(signature)
    fin = mac(expand(secret, b"fin"), transcript.value)
    transcript.mix(fin)
    cipher, nonce = _cipher(secret)
    return cipher.encrypt(nonce, plain + signature + fin, before)


def open_block(transcript: Transcript, secret: bytes, sealed: bytes, context: Context) -> tuple[Body, bytes]:
    """(body, public key) of the peer, whose key is proven; `transcript` moves on past its `fin`.

    HandshakeError: seal, parse, certificate type, certificate, weak_key, signature, fin; in that order.
    """
    cipher, nonce = _cipher(secret)
    try:
        plain = cipher.decrypt(nonce, sealed, transcript.value)
    except InvalidTag:
        raise HandshakeError("seal") from None
    raw, signature, fin = plain[:-OVERHEAD], plain[-OVERHEAD:-FIN_SIZE], plain[-FIN_SIZE:]
    body = decode_body(raw)
    public = body.certificate[len(SPKI_PREFIX) :]
    if body.certificate[: len(SPKI_PREFIX)] != SPKI_PREFIX or len(public) != 32:
        raise HandshakeError("certificate")
    try:
        check_public(public)
    except ValueError:
        raise HandshakeError("weak_key") from None
    transcript.mix(raw)
    if not verify(context, public, transcript.value, signature):
        raise HandshakeError("signature")
    transcript.mix(signature)
    if not hmac.compare_digest(fin, mac(expand(secret, b"fin"), transcript.value)):
        raise HandshakeError("fin")
    transcript.mix(fin)
    return body, public
