"""TLS and SASL, on a real broker."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import collect, from_iterable, read_kafka, write_kafka
from penstock.streams.base.errors import CannotConnect
from tests.helpers.kafka.broker import HAS_KAFKA
from tests.helpers.kafka.secured import PASSWORD, USER, SecuredBrokers

pytestmark = pytest.mark.skipif(not HAS_KAFKA, reason="there is no Java 17 with Maven")


@pytest.fixture(scope="module")
def secured_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBrokers]:
    """One broker for the tests of this file."""
    with SecuredBrokers(tmp_path_factory.mktemp("kafka-secured")) as brokers:
        yield brokers


def tls(kafka: SecuredBrokers, **more: Any) -> dict[str, Any]:
    return {"security.protocol": "SSL", "ssl.ca.location": kafka.ca, **more}


def sasl(kafka: SecuredBrokers, mechanism: str, **more: Any) -> dict[str, Any]:
    named = {"sasl.username": USER, "sasl.password": PASSWORD}
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": kafka.ca,
        "sasl.mechanism": mechanism,
        **(named if mechanism != "OAUTHBEARER" else {}),
        **more,
    }


def part(**claims: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")


def token(_: str) -> tuple[str, float]:
    """A token that is not signed, as a function that asks a server for one returns it."""
    now = time.time()
    return f"{part(alg='none')}.{part(sub=USER, iat=now, exp=now + 300)}.", now + 300


async def there_and_back(kafka: SecuredBrokers, servers: str, config: dict[str, Any]) -> None:
    """Write to a topic, copy it in transactions, and read the copy."""
    topic, copy = kafka.topic(), kafka.topic()
    values = [{"n": n} for n in range(20)]
    await from_iterable(values).to(write_kafka(topic, servers, config=config)).run()
    sink = write_kafka(copy, servers, transactional=True, config=config)
    await read_kafka(topic, topic, servers, follow=False, config=config).to(sink).run()
    seen: list[Any] = []
    await read_kafka(copy, copy, servers, follow=False, config=config).to(collect(seen)).run()
    assert seen == values


async def test_records_are_written_and_read_over_tls(secured_kafka: SecuredBrokers) -> None:
    await there_and_back(secured_kafka, secured_kafka.tls, tls(secured_kafka))


async def test_a_client_shows_its_certificate_where_the_brokers_want_one(
    secured_kafka: SecuredBrokers,
) -> None:
    own = {
        "ssl.certificate.location": secured_kafka.client,
        "ssl.key.location": secured_kafka.client_key,
    }
    config = tls(secured_kafka, **own)
    await there_and_back(secured_kafka, secured_kafka.mutual, config)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_records_are_written_and_read_with_a_password(
    mechanism: str, secured_kafka: SecuredBrokers
) -> None:
    config = sasl(secured_kafka, mechanism)
    await there_and_back(secured_kafka, secured_kafka.sasl, config)


@pytest.mark.parametrize(
    "own",
    [
        {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=me"},
        {"oauth_cb": token},
    ],
    ids=["by the client", "by a function"],
)
async def test_records_are_written_and_read_with_a_token(
    own: dict[str, Any], secured_kafka: SecuredBrokers
) -> None:
    config = sasl(secured_kafka, "OAUTHBEARER", **own)
    await there_and_back(secured_kafka, secured_kafka.sasl, config)


# What is wrong is named, for a reader, a writer and a writer of transactions.

CREDENTIALS = "does not accept the credentials .*Correct security.protocol, sasl"
CERTIFICATE = "does not accept the .*certificate .*ssl"


async def refused(servers: str, topic: str, config: dict[str, Any], why: str) -> None:
    source = read_kafka(topic, topic, servers, config=config)
    pipelines = (
        source.to(collect([])),
        from_iterable([{}]).to(write_kafka(topic, servers, config=config)),
        source.to(write_kafka(topic, servers, transactional=True, config=config)),
    )
    runs = (pipeline.run() for pipeline in pipelines)
    for error in await asyncio.gather(*runs, return_exceptions=True):
        assert isinstance(error, CannotConnect)
        assert re.search(why, str(error), re.DOTALL), error


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_wrong_password_is_named(mechanism: str, secured_kafka: SecuredBrokers) -> None:
    config = sasl(secured_kafka, mechanism, **{"sasl.password": "wrong"})
    await refused(secured_kafka.sasl, secured_kafka.topic(), config, CREDENTIALS)


async def test_a_token_that_has_expired_is_named(secured_kafka: SecuredBrokers) -> None:
    def old(_: str) -> tuple[str, float]:
        now = time.time()
        return f"{part(alg='none')}.{part(sub=USER, iat=now - 9, exp=now - 5)}.", now + 300

    config = sasl(secured_kafka, "OAUTHBEARER", oauth_cb=old)
    await refused(secured_kafka.sasl, secured_kafka.topic(), config, CREDENTIALS)


async def test_a_broker_whose_certificate_is_not_trusted_is_named(
    secured_kafka: SecuredBrokers,
) -> None:
    config = tls(secured_kafka, **{"ssl.ca.location": secured_kafka.stranger})
    await refused(secured_kafka.tls, secured_kafka.topic(), config, CERTIFICATE)


async def test_a_certificate_that_the_brokers_do_not_trust_is_named(
    secured_kafka: SecuredBrokers,
) -> None:
    own = {
        "ssl.certificate.location": secured_kafka.stranger_cert,
        "ssl.key.location": secured_kafka.stranger_key,
    }
    await refused(
        secured_kafka.mutual, secured_kafka.topic(), tls(secured_kafka, **own), CERTIFICATE
    )
    await refused(secured_kafka.mutual, secured_kafka.topic(), tls(secured_kafka), CERTIFICATE)


async def test_a_client_without_tls_is_told_that_the_port_may_expect_it(
    secured_kafka: SecuredBrokers,
) -> None:
    await refused(secured_kafka.tls, secured_kafka.topic(), {}, "security.protocol")


def test_the_command_takes_the_settings_from_a_file(
    secured_kafka: SecuredBrokers, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    lines = [f"{name}={value}" for name, value in sasl(secured_kafka, "SCRAM-SHA-512").items()]
    file.write_text("\n".join(["# of the tests", *lines]), encoding="utf-8")
    topic = secured_kafka.topic()
    words = ["status", "--on", f"kafka://{secured_kafka.sasl}/{topic}", "--kafka-config", str(file)]
    command = [sys.executable, "-m", "penstock", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    file.write_text("\n".join(line.replace(PASSWORD, "wrong") for line in lines), encoding="utf-8")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "does not accept the credentials" in done.stderr
