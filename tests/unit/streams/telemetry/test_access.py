from __future__ import annotations

import socket

import pytest

from penstock.streams.base.errors import BuildError
from penstock.streams.telemetry.access import Access, is_loopback, new_token


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1", "[::1]"])
def test_addresses_of_this_machine_alone(host: str) -> None:
    assert is_loopback(host)
    assert not Access(host).needs_token


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.org", ""])
def test_other_addresses_need_a_token(host: str) -> None:
    assert not is_loopback(host)
    assert Access(host).needs_token


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        ("Bearer right", True),
        ("bearer right", True),
        ("Bearer wrong", False),
        ("Bearer rightx", False),
        ("Bearer ", False),
        ("Basic right", False),
        ("right", False),
        ("Bearer résumé", False),
        ("", False),
        (None, False),
    ],
)
def test_the_token_is_sent_as_a_bearer(header: str | None, allowed: bool) -> None:
    assert Access("127.0.0.1", "right").is_authorized(header) is allowed


@pytest.mark.parametrize("header", ["Bearer ", "Bearer None", None])
def test_without_a_token_nobody_is_authorized(header: str | None) -> None:
    assert not Access("127.0.0.1").is_authorized(header)


@pytest.mark.parametrize(
    ("host", "hosts", "header", "allowed"),
    [
        ("127.0.0.1", (), "127.0.0.1:9464", True),
        ("127.0.0.1", (), "localhost:9464", True),
        ("127.0.0.1", (), "LOCALHOST", True),
        ("::1", (), "[::1]:9464", True),
        ("127.0.0.1", (), "evil.example", False),
        ("127.0.0.1", (), "127.0.0.1.evil.example", False),
        ("127.0.0.1", (), "localhost.evil.example:9464", False),
        ("127.0.0.1", (), "", False),
        ("127.0.0.1", (), None, False),
        ("0.0.0.0", (), "10.0.0.7:9464", True),
        ("0.0.0.0", (), "10.0.0.8:9464", False),
        ("0.0.0.0", (), "evil.example:9464", False),
        ("0.0.0.0", ("box.example",), "Box.example:9464", True),
        ("0.0.0.0", (), "localhost:9464", True),
        ("0.0.0.0", (), "127.0.0.1:9464", True),
        ("::", (), "[::1]:9464", True),
        ("0.0.0.0", (), f"{socket.gethostname().upper()}:9464", True),
        ("::", (), socket.gethostname(), True),
        ("0.0.0.0", (), f"{socket.gethostname()}.evil.example:9464", False),
        ("0.0.0.0", (), "localhost.evil.example:9464", False),
        ("0.0.0.0", (), None, False),
        ("127.0.0.1", (), socket.gethostname(), False),
        ("10.0.0.7", (), socket.gethostname(), False),
        ("10.0.0.7", (), "10.0.0.7", True),
        ("10.0.0.7", (), "localhost", False),
    ],
)
def test_a_request_names_this_server(
    host: str, hosts: tuple[str, ...], header: str | None, allowed: bool
) -> None:
    assert Access(host, hosts=hosts).is_for_us(header, "10.0.0.7") is allowed


@pytest.mark.parametrize("port", ["", ":", ":80", ":8443", ":9464"])
@pytest.mark.parametrize("name", ["localhost", "[::1]", "box.example"])
def test_a_request_may_name_any_port_as_through_a_forwarded_one(name: str, port: str) -> None:
    assert Access("127.0.0.1", hosts=("box.example",)).is_for_us(name + port, "127.0.0.1")


@pytest.mark.parametrize(
    ("host", "header"),
    [
        ("box.example:8443", "box.example"),
        ("Box.example", "box.example:8443"),
        ("fd00::5", "[fd00::5]:9464"),
        ("[fd00::5]", "[fd00::5]"),
    ],
)
def test_a_further_name_may_be_written_as_in_an_address(host: str, header: str) -> None:
    assert Access("127.0.0.1", hosts=(host,)).is_for_us(header, "127.0.0.1")
    assert not Access("127.0.0.1", hosts=(host,)).is_for_us("[fd00::6]", "127.0.0.1")


@pytest.mark.parametrize(
    "header",
    [
        "localhost:9464.evil.example",
        "localhost:evil",
        "localhost:9464:9464",
        "[::1].evil.example",
        "[::1",
        "::1",
        "[localhost]",
        "box.example@evil.example",
        "localhost, evil.example",
        ":9464",
    ],
)
def test_a_host_that_is_no_name_with_a_port_is_not_this_server(header: str) -> None:
    assert not Access("127.0.0.1", hosts=("box.example",)).is_for_us(header, "127.0.0.1")


# An empty one would let in whoever sends no token, and a header ends before a line break.
@pytest.mark.parametrize("token", ["", " ", "right\n", " right"])
def test_a_token_that_no_request_can_send_is_refused(token: str) -> None:
    with pytest.raises(BuildError, match="the token of the live page") as raised:
        Access("127.0.0.1", token, allows_control=True)
    assert "right" not in str(raised.value)


def test_a_token_is_not_shown_by_its_owner_and_differs_each_time() -> None:
    assert "secret" not in repr(Access("127.0.0.1", "secret"))
    assert new_token() != new_token()
    assert len(new_token()) >= 20
