"""The options about Kafka: the address, the group, and the settings of the client."""

from __future__ import annotations

import argparse
from typing import Any

from penstock.command.nats.run import PATIENCE, name_of
from penstock.streams.errors import BuildError, CannotOpen
from penstock.streams.kafka.cluster.layout import Layout, address_of

__all__ = ["CONNECTING", "PATIENCE", "layout_of"]

CONNECTING = 10.0
"""Seconds for which `run` and `publish` look for a broker."""

# What topics have otherwise, or not at all.
_OF_NATS = {
    "room": "the topic's retention says how much it keeps",
    "batch": "the client packs records by itself (batch.size)",
    "pool": "work pools are on NATS",
}


def layout_of(options: argparse.Namespace) -> Layout:
    """The layout that the options ask for; its group is "" where they name none.

    Raises BuildError for an invalid address, and for options that are about NATS.
    """
    for option, why in _OF_NATS.items():
        if getattr(options, option, None) is not None:
            raise BuildError(f"--{option} does not go with --on kafka://: {why}")
    sizes = {name: getattr(options, name, None) for name in ("partitions", "replicas")}
    for option, number in sizes.items():
        if number is not None and number < 1:
            raise BuildError(f"--{option} {number}: at least 1 is needed")
    servers, topic = address_of(options.on)
    file = getattr(options, "file", None)
    group = (options.name or "") if file is None else name_of(file, options.name)
    config = {} if options.kafka_config is None else _settings_in(options.kafka_config)
    return Layout(servers, topic, group, config, **sizes)


def _settings_in(path: str) -> dict[str, Any]:
    """The settings in a file of lines `name=value`, such as client.properties."""
    settings: dict[str, Any] = {}
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotOpen(f"--kafka-config {path}: {error}") from None
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise BuildError(f"--kafka-config {path}, line {number}: write name=value")
        value = value.strip()
        # A password with zeros in front is not a number.
        is_number = value.isdecimal() and str(int(value)) == value
        settings[name.strip()] = int(value) if is_number else value
    return settings
