"""Diagnosis of brokers that do not answer: errors that a waiting request does not raise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.streams.base.clock import monotonic
from penstock.streams.kafka.client import connection_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

__all__ = ["reason"]

# Seconds for which another connection is tried, and for which its errors are waited for at a time.
_LONGEST, _STEP = 3.0, 0.1

# In the text about a connection that the broker ended because of the certificate.
_BY_BROKER = "SSL routines"


def reason(fault: KafkaError, settings: Mapping[str, Any]) -> KafkaError:
    """The reason for which a request was not answered: the brokers do not accept the credentials,
    or one side does not accept the certificate of the other. Other errors as they are.

    A client reports such a reason only to a callback of its own, so a second one with the same
    settings tries to connect. Blocks for up to three seconds.
    """
    from confluent_kafka import KafkaError as Code
    from confluent_kafka import Producer

    if fault.code() not in (Code._TRANSPORT, Code._TIMED_OUT, Code._ALL_BROKERS_DOWN):
        return fault
    found: list[KafkaError] = []
    producer = Producer({**connection_of(settings), "log_level": 0, "error_cb": found.append})
    until = monotonic() + _LONGEST
    try:
        while monotonic() < until:
            producer.poll(_STEP)
            for each in found:
                if each.code() in (Code._AUTHENTICATION, Code._SSL):
                    return each
                if _BY_BROKER in each.str():
                    # In TLS 1.3 brokers look at it when the handshake is over for the client.
                    return Code(Code._SSL, each.str())
    finally:
        producer.close()
    return fault
