"""Addresses: what is written comes back, what is unclear is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_peer.errors import UsageError
from hermes_peer.wire.address import Address

FP = "ab" * 32


@pytest.mark.parametrize(
    ("text", "parts", "back"),
    [
        ("hermes://host:1", ("tcp", "host", 1, "", ""), None),
        ("hermes://Host.Example", ("tcp", "host.example", 7891, "", ""), "hermes://host.example:7891"),
        ("hermes://127.0.0.1:0", ("tcp", "127.0.0.1", 0, "", ""), None),
        ("hermes://[2001:DB8:0::7]", ("tcp", "2001:db8::7", 7891, "", ""), "hermes://[2001:db8::7]:7891"),
        ("hermes://[fe80::7%eth0]:65535", ("tcp", "fe80::7%eth0", 65535, "", ""), None),
        (f"hermes://{FP}@host:1", ("tcp", "host", 1, "", FP), None),
        (f"hermes://{FP.upper()}@[::1]:1", ("tcp", "::1", 1, "", FP), f"hermes://{FP}@[::1]:1"),
        ("hermes+unix:///run/a b@c/x.sock", ("unix", "", 0, "/run/a b@c/x.sock", ""), None),
        (f"hermes+unix://{FP}@/tmp/x", ("unix", "", 0, "/tmp/x", FP), None),
    ],
)
def test_round_trip(text, parts, back):
    place = Address.parse(text)
    assert (place.scheme, place.host, place.port, place.path, place.fingerprint) == parts
    assert str(place) == (back or text) and Address.parse(str(place)) == place


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it must start with hermes:// or hermes+unix://"),
        ("host:7891", "it must start with"),
        ("HERMES://host", "it must start with"),
        ("http://host", "it must start with"),
        ("hermes://", "the host must be a name in ASCII or an IP address"),
        ("hermes://:1", "the host must be a name"),
        ("hermes://host:", "the port must be 0 to 65535"),
        ("hermes://host:65536", "the port must be 0 to 65535"),
        ("hermes://host:-1", "the port must be 0 to 65535"),
        ("hermes://host:٣", "the port must be 0 to 65535"),
        ("hermes://host:1/", "nothing may follow it"),
        ("hermes://host/path", "the host must be a name"),
        ("hermes://ho st", "the host must be a name"),
        ("hermes://-host", "the host must be a name"),
        ("hermes://a..b", "the host must be a name"),
        ("hermes://hoſt", "the host must be a name in ASCII"),
        ("hermes://" + "a" * 64, "the host must be a name"),
        ("hermes://" + "a." * 127 + "a", "the host must be a name"),
        ("hermes://::1", "an IPv6 address stands in brackets"),
        ("hermes://[::1", "an IPv6 address stands in brackets"),
        ("hermes://[host]:1", "an IPv6 address stands in brackets"),
        ("hermes://[::1]1", "after the bracket comes ':'"),
        ("hermes://[::zz]", "this is no IPv6 address"),
        ("hermes://[::1%a b]", "this is no interface name"),
        ("hermes://127.1", "an IPv4 address has four decimal numbers"),
        ("hermes://2130706433", "an IPv4 address has four decimal numbers"),
        ("hermes://0x7f.1", "an IPv4 address has four decimal numbers"),
        ("hermes://0x7f000001", "an IPv4 address has four decimal numbers"),
        ("hermes://127.0.0.01", "an IPv4 address has four decimal numbers"),
        ("hermes://@host", "there is no fingerprint before the '@'"),
        ("hermes+unix://@/x", "there is no fingerprint before the '@'"),
        ("hermes+unix://x", "the path must be absolute"),
        ("hermes+unix://x/y", "the path must be absolute"),
        ("hermes+unix:///", "the path must be absolute"),
        ("hermes+unix://", "the path must be absolute"),
        ("hermes+unix:///a\0b", "printable characters only"),
        ("hermes+unix:///a\nb", "printable characters only"),
        ("hermes+unix:///" + "ü" * 52, "at most 103 bytes"),
    ],
)
def test_every_mistake_has_a_sentence_and_an_example(text, why):
    with pytest.raises(UsageError) as error:
        Address.parse(text)
    sentence = str(error.value)
    assert why in sentence and "is not an address: " in sentence
    assert "(example: hermes" in sentence and sentence.endswith(").") and sentence.isprintable()


@pytest.mark.parametrize("fingerprint", ["x", FP[:-1], FP + "0", "zz" * 32, "é" * 64, f"user:{FP}"])
def test_bad_fingerprints(fingerprint):
    for make in (
        lambda: Address.parse(f"hermes://{fingerprint}@host"),
        lambda: Address.parse("hermes://host").with_fingerprint(fingerprint),
    ):
        with pytest.raises(
            UsageError, match="is not a fingerprint: it must be 64 hex digits, as `hermes-peer trust show`"
        ):
            make()


def test_only_text():
    with pytest.raises(UsageError, match=r"An address is a text such as hermes://192\.0\.2\.7:7891, not int"):
        Address.parse(7)


def test_fingerprint_and_endpoint():
    place = Address.parse("hermes://host:1")
    with_key = place.with_fingerprint(FP.upper())
    assert with_key.fingerprint == FP and with_key.endpoint == place and place.endpoint is place
    assert with_key.with_fingerprint("") == place
    assert len({place, with_key, Address.parse("hermes://host:1")}) == 2
    with pytest.raises(UsageError, match="the port must be"):
        Address.tcp("host", 70_000)


@given(st.text(max_size=60), st.sampled_from(["", "hermes://", "hermes+unix://", f"hermes://{FP}@", "hermes+unix:///"]))
def test_any_text_is_an_address_that_comes_back_or_a_sentence(text, start):
    try:
        place = Address.parse(start + text)
    except UsageError as error:
        sentence = str(error)
    else:
        sentence = ""
        assert Address.parse(str(place)) == place
    assert sentence.isprintable()
