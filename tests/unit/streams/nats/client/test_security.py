"""Who may connect, what is trusted, and that passwords are never shown."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import secrets
import signal
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nkeys
import pytest
import trustme

from penstock import Pipeline, WorkPool, collect, from_iterable, read_jetstream, write_jetstream
from penstock.streams.base.errors import BuildError, CannotConnect, RightsMissing
from penstock.streams.nats.client import requests
from penstock.streams.nats.client.addresses import addresses_of, shown
from penstock.streams.nats.client.answers import answered
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.client.tables import table_of
from tests.helpers.until import until

VARIABLES = ("USER", "PASSWORD", "TOKEN", "CREDS", "NKEY", "CA", "CERT", "KEY")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(f"NATS_{name}", raising=False)


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, ca: trustme.CA) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    ca.cert_pem.write_to_path(folder / "ca.pem")
    for name, whom in (("server", "127.0.0.1"), ("me", "me@example.org")):
        ca.issue_cert(whom).private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.pem")
    return folder


def tls(folder: Path, more: str = "") -> str:
    own = f'cert_file: "{folder}/server.pem", key_file: "{folder}/server.pem"'
    return f"tls {{ {own}{more} }}\n"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Servers]:
    """A server with TLS and users."""
    settings = tls(folder) + "authorization { user: me, password: right }"
    with Servers(tmp_path_factory.mktemp("guarded"), settings=settings) as servers:
        yield servers


def connects(urls: list[str]) -> bool:
    async def story() -> bool:
        client = await connect(urls, patience=60)
        try:
            return client.is_connected
        finally:
            await client.close()

    return asyncio.run(story())


def with_user(servers: Servers, user: str, scheme: str = "tls") -> list[str]:
    return [url.replace("nats://", f"{scheme}://{user}@") for url in servers.urls]


def test_the_address_or_the_environment_says_who_we_are(
    guarded: Servers, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_CA", str(folder / "ca.pem"))
    assert connects(with_user(guarded, "me:right"))
    with pytest.raises(CannotConnect, match="refuses these credentials"):
        connects(guarded.urls)
    monkeypatch.setenv("NATS_USER", "me")
    monkeypatch.setenv("NATS_PASSWORD", "right")
    assert connects(guarded.urls)


def test_a_server_that_nobody_vouches_for_gets_nothing(guarded: Servers) -> None:
    with pytest.raises(CannotConnect, match=r"can be trusted .*NATS_CA") as raised:
        connects(with_user(guarded, "me:right"))
    assert "right" not in str(raised.value)


def test_where_tls_is_asked_for_nothing_is_said_in_clear(server: Servers) -> None:
    with pytest.raises(CannotConnect, match=r"tls://\*\*\*@127.* does not speak TLS"):
        connects(with_user(server, "me:right"))
    assert connects(with_user(server, "me:right", "nats"))


def test_a_server_may_want_to_see_a_certificate(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = tls(folder, f', ca_file: "{folder}/ca.pem", verify: true')
    with Servers(tmp_path, settings=asks) as servers:
        monkeypatch.setenv("NATS_CA", str(folder / "ca.pem"))
        with pytest.raises(CannotConnect, match="NATS_CERT"):
            connects(servers.urls)
        monkeypatch.setenv("NATS_CERT", str(folder / "me.pem"))
        monkeypatch.setenv("NATS_KEY", str(folder / "me.pem"))
        assert connects(servers.urls)


def test_a_token_or_a_seed_lets_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public, seed = keys(nkeys.PREFIX_BYTE_USER)
    (tmp_path / "me.nk").write_bytes(seed)
    (tmp_path / "token").mkdir()
    (tmp_path / "seed").mkdir()
    with (
        Servers(tmp_path / "token", settings="authorization { token: sesame }") as by_token,
        Servers(
            tmp_path / "seed", settings=f"authorization {{ users: [ {{ nkey: {public} }} ] }}"
        ) as by_seed,
    ):
        assert connects(with_user(by_token, "sesame", "nats"))
        monkeypatch.setenv("NATS_TOKEN", "sesame")
        assert connects(by_token.urls)
        monkeypatch.delenv("NATS_TOKEN")
        monkeypatch.setenv("NATS_NKEY", str(tmp_path / "me.nk"))
        assert connects(by_seed.urls)
        with pytest.raises(CannotConnect, match="refuses these credentials"):
            connects(by_token.urls)


def test_a_file_of_credentials_lets_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, user = keys(nkeys.PREFIX_BYTE_OPERATOR), keys(nkeys.PREFIX_BYTE_USER)
    account, system = (keys(nkeys.PREFIX_BYTE_ACCOUNT) for _ in range(2))
    anything: dict[str, Any] = {"limits": {"conn": -1, "subs": -1, "data": -1, "payload": -1}}
    by_operator = signed(operator, operator, {"type": "operator"})
    accounts = ", ".join(
        f"{one[0]}: {signed(operator, one, {'type': 'account', **anything})}"
        for one in (account, system)
    )
    mine = signed(account, user, {"type": "user", "subs": -1, "data": -1, "payload": -1})
    (tmp_path / "operator.jwt").write_text(by_operator)
    (tmp_path / "me.creds").write_text(
        f"-----BEGIN NATS USER JWT-----\n{mine}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user[1].decode()}\n------END USER NKEY SEED------\n"
    )
    settings = (
        f'operator: "{tmp_path}/operator.jwt"\nsystem_account: {system[0]}\n'
        f"resolver: MEMORY\nresolver_preload: {{ {accounts} }}\n"
    )
    with Servers(tmp_path / "server", settings=settings) as servers:
        with pytest.raises(CannotConnect, match="refuses these credentials"):
            connects(servers.urls)
        monkeypatch.setenv("NATS_CREDS", str(tmp_path / "me.creds"))
        assert connects(servers.urls)


def keys(kind: int) -> tuple[str, bytes]:
    """A public key and its seed."""
    seed = nkeys.encode_seed(secrets.token_bytes(32), kind)
    return nkeys.from_seed(bytearray(seed)).public_key.decode(), bytes(seed)


def signed(by: tuple[str, bytes], whom: tuple[str, bytes], claims: dict[str, Any]) -> str:
    """A JWT in which one key vouches for the other."""
    said = {"jti": "1", "iat": 0, "iss": by[0], "sub": whom[0], "name": "n"}
    header = {"typ": "JWT", "alg": "ed25519-nkey"}
    text = ".".join(coded(one) for one in (header, {**said, "nats": {"version": 2, **claims}}))
    return f"{text}.{base(nkeys.from_seed(bytearray(by[1])).sign(text.encode()))}"


def coded(value: Any) -> str:
    return base(json.dumps(value).encode())


def base(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


# Rights.

USERS = """authorization { users: [
    {user: all, password: right}
    {user: none, password: right, permissions: {publish: "_INBOX.>", subscribe: "_INBOX.>"}}
    {user: no_api, password: right, permissions: {publish: {deny: "$JS.API.STREAM.INFO.KV_B"}}}
    {user: no_keys, password: right, permissions: {publish: {deny: "$KV.>"}}}
    {user: no_answers, password: right, permissions: {subscribe: {deny: "_INBOX.>"}}}
    {user: no_things, password: right, permissions: {publish: {deny: "things.secret"}}}
    {user: no_hello, password: right, permissions: {subscribe: {deny: "penstock.work.*.hello"}}}
    {user: no_call, password: right, permissions: {subscribe: {deny: "penstock.work.*.call"}}}
    {user: no_next, password: right, permissions: {publish: {deny: "$JS.API.CONSUMER.MSG.NEXT.>"}}}
    {user: no_acks, password: right, permissions: {publish: {deny: "$JS.ACK.>"}}}
] }"""


@pytest.mark.parametrize(
    ("user", "subject"),
    [
        ("none", "$JS.API.STREAM.INFO.KV_B"),
        ("no_api", "$JS.API.STREAM.INFO.KV_B"),
        ("no_keys", "$KV.B.key"),
        ("no_answers", "$JS.API.STREAM.INFO.KV_B"),
    ],
)
def test_a_right_that_is_missing_on_a_table_of_keys_is_named_at_once(
    restricted: Servers, user: str, subject: str
) -> None:
    async def story() -> None:
        owner = await connect(with_user(restricted, "all:right", "nats"))
        client = await connect(with_user(restricted, f"{user}:right", "nats"))
        try:
            js: Any = jetstream(owner)
            await js.add_stream(name="S", subjects=["s"])
            await table_of(js, "S", "B")

            async def use() -> None:
                table = await table_of(jetstream(client), "S", "B")
                await answered(lambda: table.put("key", b""))

            named = rf"refuses a request to '{re.escape(subject)}' \(permissions violation"
            with pytest.raises(RightsMissing, match=named):
                await use()
        finally:
            await owner.close()
            await client.close()

    asyncio.run(story())


@pytest.fixture(scope="module")
def restricted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with Servers(tmp_path_factory.mktemp("restricted"), settings=USERS) as servers:
        yield servers


@pytest.fixture
def things(restricted: Servers) -> None:
    """A stream with one event."""

    async def story() -> None:
        client = await connect(with_user(restricted, "all:right", "nats"))
        js: Any = jetstream(client)
        await js.add_stream(name="THINGS", subjects=["things.*"])
        await js.publish("things.open", b'{"n": 1}')
        await client.close()

    asyncio.run(story())


async def nothing_of(job: Any) -> None:
    raise AssertionError(job)


@pytest.mark.parametrize(
    ("user", "subject", "work"),
    [
        (
            "no_things",
            "things.secret",
            lambda urls: from_iterable([{}]).to(write_jetstream("things.secret", urls)),
        ),
        (
            "no_answers",
            "_INBOX.",
            lambda urls: from_iterable([{}]).to(write_jetstream("things.open", urls)),
        ),
        (
            "no_hello",
            "penstock.work.pool.hello",
            lambda urls: WorkPool(urls, "pool").offer(from_iterable([1])).to(collect([])),
        ),
        (
            "no_call",
            "penstock.work.pool.call",
            lambda urls: WorkPool(urls, "pool").work(nothing_of),
        ),
        (
            "no_next",
            "$JS.API.CONSUMER.MSG.NEXT.THINGS.",
            lambda urls: read_jetstream("THINGS", servers=urls).to(collect([])),
        ),
        (
            "no_acks",
            "$JS.ACK.THINGS.",
            lambda urls: read_jetstream("THINGS", servers=urls).to(collect([])),
        ),
    ],
)
def test_a_right_to_publish_or_to_subscribe_that_is_missing_ends_the_run_and_is_named(
    restricted: Servers, things: None, user: str, subject: str, work: Callable[[Any], Pipeline]
) -> None:
    async def story() -> None:
        with pytest.raises(RightsMissing, match=re.escape(subject)):
            async with asyncio.timeout(20):
                await work(with_user(restricted, f"{user}:right", "nats")).run()

    asyncio.run(story())


# Credentials that are changed while they are in use.

_USERS = "authorization {{ users: [{{ user: me, password: {} }}, {{ user: you, password: you }}] }}"


def _change(servers: Servers, folder: Path, before: str, after: str) -> None:
    """Give the running server another password of the user `me`."""
    place = folder / "server0.conf"
    text = place.read_text(encoding="utf-8")
    changed = text.replace(_USERS.format(before), _USERS.format(after))
    assert changed != text
    place.write_text(changed, encoding="utf-8")
    servers.signal(0, signal.SIGHUP)


@pytest.mark.parametrize("again", [True, False])
def test_a_reader_whose_credentials_are_refused_waits_for_a_while_and_then_ends(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_REFUSED", 60.0 if again else 1.0)
    seen: list[Any] = []

    async def story(servers: Servers) -> None:
        mine, yours = (with_user(servers, user, "nats") for user in ("me:old", "you:you"))
        client = await connect(yours)
        await jetstream(client).add_stream(name="changed", subjects=["changed"])
        await from_iterable([{"n": 1}]).to(write_jetstream("changed", yours)).run()
        running = read_jetstream("changed", "d", mine).to(collect(seen)).start()
        await until(lambda: len(seen) == 1)
        assert running.is_ready
        _change(servers, tmp_path, "old", "new")
        await until(lambda: not running.is_ready)
        if again:
            _change(servers, tmp_path, "new", "old")
            await until(lambda: running.is_ready)
            await from_iterable([{"n": 2}]).to(write_jetstream("changed", yours)).run()
            await until(lambda: len(seen) == 2)
            await running.drain()
        else:
            with pytest.raises(CannotConnect, match="refuses these credentials"):
                await running.wait()
        await client.close()

    with Servers(tmp_path, settings=_USERS.format("old")) as servers:
        asyncio.run(story(servers))


# Mistakes.


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"USER": "me"}, "NATS_USER and NATS_PASSWORD go together"),
        ({"CREDS": "nowhere"}, "NATS_CREDS=nowhere: cannot be read"),
        ({"CREDS": tokenize.__file__}, "contains no JWT and seed"),
        ({"NKEY": "nowhere"}, "NATS_NKEY=nowhere: cannot be read"),
        ({"NKEY": tokenize.__file__}, "begins with SU"),
        ({"CA": "nowhere"}, "NATS_CA=nowhere: cannot be used for TLS"),
        ({"CERT": "nowhere"}, "NATS_CERT and NATS_KEY go together"),
    ],
)
def test_what_the_environment_says_wrong_is_named(
    variables: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"NATS_{name}", value)
    with pytest.raises(BuildError, match=words):
        connects(["nats://127.0.0.1:1"])


def test_passwords_are_not_shown() -> None:
    urls = ["nats://me:secret@a:4222", "b:4222", "tls://token@c", "me:secret@d"]
    assert shown(urls) == "nats://***@a:4222, b:4222, tls://***@c, ***@d"
    with pytest.raises(BuildError, match=r"http://\*\*\*@a") as raised:
        write_jetstream("subject", "http://me:secret@a")
    assert "secret" not in str(raised.value)


def test_what_is_said_of_the_first_address_goes_for_the_others() -> None:
    assert addresses_of("tls://me:right@a:4222,b,nats://you:left@c") == (
        "tls://me:right@a:4222",
        "tls://me:right@b",
        "nats://you:left@c",
    )


def test_the_end_of_a_tls_connection_is_not_reported(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NATS_CA", str(folder / "ca.pem"))
    with Servers(tmp_path, settings=tls(folder)) as servers:

        async def story() -> None:
            client = await connect(servers.urls)
            await asyncio.to_thread(servers.stop, 0)
            servers.start(0)
            await asyncio.to_thread(servers.wait)
            async with asyncio.timeout(30):
                while not client.stats["reconnects"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await client.close()

        asyncio.run(story())
    assert caplog.text == ""
