from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from penstock import (
    Pipeline,
    adaptive_flat_map,
    collect,
    distinct_within,
    from_iterable,
    group_by,
    spread,
)
from penstock.command.cluster.kafka import layout_of
from penstock.streams.base.errors import BuildError
from penstock.streams.kafka.cluster.layout import Layout, address_of, key_of


def pipeline(*operators: object) -> Pipeline:
    return from_iterable([1]).pipe(*operators).to(collect([]))  # type: ignore[arg-type]


def test_an_address_has_servers_and_a_topic() -> None:
    assert address_of("kafka://a:9092,b:9093/my.orders") == ("a:9092,b:9093", "my.orders")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kafka://a:9092", "give the brokers and the topic"),
        ("kafka:///orders", "give the brokers and the topic"),
        ("kafka://a b/orders", "give the brokers and the topic"),
        ("kafka://a/b/c", "'b/c' is not the name of a topic"),
        ("kafka://a/" + "x" * 240, "too long"),
    ],
)
def test_an_address_that_is_not_one_is_reported(text: str, said: str) -> None:
    with pytest.raises(BuildError, match=said):
        address_of(text)


def test_credentials_in_an_address_are_refused_and_not_shown() -> None:
    with pytest.raises(BuildError, match="--kafka-config") as raised:
        address_of("kafka://user:secret@a:9092/orders")
    assert "secret" not in str(raised.value)


def test_events_are_partitioned_by_the_key_of_the_groups_or_else_by_the_identity() -> None:
    work = adaptive_flat_map(lambda value: value)
    both = pipeline(distinct_within(10, by="id"), group_by("key"), spread(), work)
    assert key_of(both) == "key"
    assert key_of(pipeline(distinct_within(10, by="id"), work)) == "id"
    assert key_of(pipeline(work)) is None


def test_dead_letters_have_a_topic_beside_that_of_the_events() -> None:
    assert Layout("a", "orders", "g").letters == "orders.dead-letters"


def test_a_password_of_digits_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("sasl.password=0042\nsession.timeout.ms = 3000\n", encoding="utf-8")
    options = Namespace(on="kafka://a:9092/orders", name="g", kafka_config=str(file))
    config = {"sasl.password": "0042", "session.timeout.ms": 3000}
    assert layout_of(options).config == config
