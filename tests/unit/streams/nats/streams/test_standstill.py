"""A reader from which nothing comes says why, and ends when nothing will."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.streams.nats.streams.consumers import Standing, standing_of
from penstock.streams.nats.streams.standstill import Standstill
from penstock.streams.runtime.error_log import ErrorLog


def standing(**numbers: Any) -> Standing:
    standing = Standing("s", "c", "", 0, 0, 30.0, 0, 0, 0.0)
    return standing._replace(**numbers)


class Log(ErrorLog):
    def __init__(self) -> None:
        super().__init__()
        self.warnings: list[str] = []
        self.on_warning = lambda text, *_, **__: self.warnings.append(text)


@pytest.mark.parametrize(
    ("pending", "out", "held", "quiet", "expected"),
    [
        (0, 0, 0, 0.0, True),
        (1, 0, 0, 60.0, False),
        # Another reader has it, or it comes again.
        (0, 1, 0, 1000.0, False),
        # The server has not counted an acknowledgement yet.
        (0, 0, 1, 1.0, True),
        # Only the end of this reader finishes what it holds.
        (0, 3, 3, 1.0, True),
        (0, 3, 3, 0.1, False),
        # And another one may be waiting for that; if it had died, its lease would be over.
        (0, 4, 3, 1.0, False),
        (0, 4, 3, 31.0, True),
    ],
)
def test_a_reader_has_caught_up_when_nothing_waits_and_nothing_is_in_work_elsewhere(
    pending: int, out: int, held: int, quiet: float, *, expected: bool
) -> None:
    judge = Standstill(Log())
    assert judge.has_caught_up(standing(pending=pending, out=out), held, quiet, 5.0) is expected


def test_each_reason_to_wait_is_said_once() -> None:
    log = Log()
    judge = Standstill(log)
    for quiet in (0.1, 2.0, 3.0):
        judge.has_caught_up(standing(out=7), 0, quiet, 5.0)
        judge.explain(standing(pending=8, out=2, most_out=2), 2, quiet)
        judge.explain(standing(pending=8, paused=90.0), 0, quiet)
        judge.warn_of_bounds(standing(most_deliveries=3))
    bounds, waiting, full, paused = log.warnings
    assert "at most 3 times (max_deliver)" in bounds
    assert "waiting for 7 messages" in waiting
    assert "at most 2 unacknowledged ones (max_ack_pending), and the pipeline holds 2" in full
    assert "paused for 90 s" in paused


def test_a_bound_that_is_not_reached_or_that_others_reach_is_no_reason() -> None:
    log = Log()
    judge = Standstill(log)
    judge.explain(standing(pending=8, out=1, most_out=2), 1, 9.0)
    judge.explain(standing(pending=8, out=2, most_out=2), 0, 9.0)
    judge.explain(standing(pending=8, out=2), 2, 9.0)
    judge.explain(standing(out=2, most_out=2), 2, 9.0)
    assert not log.warnings


def test_a_lease_lasts_as_long_as_the_shortest_wait_of_the_consumer() -> None:
    second = 1_000_000_000
    config: dict[str, Any] = {"ack_wait": 30 * second, "max_ack_pending": -1, "max_deliver": -1}
    info = {
        **{"stream_name": "s", "name": "c", "created": "", "num_pending": 0},
        **{"num_ack_pending": 0, "config": config},
    }
    assert standing_of(info).lease == 30
    assert (standing_of(info).most_out, standing_of(info).most_deliveries) == (0, 0)
    config["backoff"] = [5 * second, 2 * second]
    assert standing_of(info).lease == 2
