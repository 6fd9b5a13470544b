"""Chapter 4 of Reactive Streams 1.0.4: an operator is a subscriber and a publisher at once."""

from __future__ import annotations

import re
from typing import Any

from penstock import Backoff, Fixed, adaptive_flat_map, retry
from penstock.operators import rx
from penstock.streams.testing import ManualPublisher, Probe
from tests.helpers.public_names import with_pages
from tests.helpers.reactive_streams.case import Case
from tests.helpers.reactive_streams.harness import (
    CASES,
    connected,
    every_failing_operator,
    manual,
    virtual,
)

# Sources that wait for a database or another process have their own suites.
names = {word for case in CASES for word in re.findall(r"\w+", case.name)}
# A future is no stream.
of_streams = [name for name in rx.__all__ if name != "to_future"]


def test_rule_4_01_every_operator_obeys_both_contracts() -> None:
    assert {*with_pages("operators"), *of_streams} <= names


def test_rule_4_01_the_table_has_a_source_of_every_kind() -> None:
    for name in ["read_jsonl", "from_iterable", "from_async_iterable", "of buffer",
                 "of drop_oldest", "of drop_newest", "of latest", "of error"]:  # fmt: skip
        assert name in [case.name for case in CASES]


@every_failing_operator
@virtual
async def test_rule_4_02_an_error_is_passed_on_at_once_unless_work_is_in_flight(
    case: Case,
) -> None:
    error = ValueError("from above")
    publisher, probe = ManualPublisher[int](), Probe[Any](request=1)
    async with manual(case, probe, publisher) as link:
        publisher.send(*range(min(2, publisher.demand)))
        publisher.fail(error)
        if not case.waiting_errors:
            assert probe.error is error
        for _ in range(3):
            probe.request(5)
            await link.settle()
        assert probe.error is error
        assert publisher.unsettled == []


@virtual
async def test_rule_4_02_an_error_that_retry_recovers_from_is_not_signalled() -> None:
    failures = 2

    async def fail_twice(number: int) -> int:
        nonlocal failures
        if failures:
            failures -= 1
            raise ValueError(number)
        return number

    publisher, probe = ManualPublisher[int](), Probe[Any](request=9)
    stream = publisher.pipe(
        adaptive_flat_map(fail_twice, Fixed(1), on_error=retry(3, Backoff(1.0, jitter=0)))
    )
    async with connected(stream, probe) as link:
        publisher.send(7)
        await link.settle()
        assert (probe.timed, probe.error, publisher.cancels) == ([(3.0, 7)], None, 0)
