from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.command.kata.load import Event, Load
from penstock.command.kata.observe import Measured
from penstock.command.kata.reference import REFERENCE, run_reference
from penstock.command.kata.work import Work
from penstock.streams.testing import run_virtual

Penstock = Callable[..., Any]


def _run(load: Load, handler: Any = None, grace: float = 1.0) -> Measured:
    return run_virtual(run_reference(load, handler, grace=grace))


def test_every_promise_of_the_kata_is_kept_at_full_load() -> None:
    measured = _run(Load(seconds=3))
    assert measured.variant == REFERENCE
    assert measured.arrived == 3000
    assert measured.finished == 2970
    assert measured.dropped == 30
    assert (measured.lost, measured.unfinished) == (0, 0)
    broken = (measured.duplicates_processed, measured.overlapped, measured.overtaken)
    assert broken == (0, 0, 0)


def test_half_of_the_events_start_at_once() -> None:
    # Virtual time: this measures only the pipeline's own waiting, not the machine.
    assert _run(Load(seconds=10)).latency.median < 0.001


@pytest.mark.parametrize("seed", range(5))
def test_a_load_of_few_clients_and_many_duplicates_breaks_no_promise(seed: int) -> None:
    measured = _run(Load(rate=300, clients=3, duplicates=0.4, seconds=2, seed=seed))
    assert measured.duplicates_processed + measured.overlapped + measured.overtaken == 0
    assert measured.arrived == measured.finished + measured.dropped + measured.unfinished


def test_what_cannot_be_done_in_time_is_left_unfinished_and_not_lost() -> None:
    # One client, 10 ms each: 100 per second of the 1,000 that arrive.
    measured = _run(Load(clients=1, seconds=1, duplicates=0), grace=1.0)
    assert measured.arrived == 1000
    assert 190 <= measured.finished <= 200
    assert measured.lost == 0
    assert measured.unfinished == 1000 - measured.finished


def test_an_error_of_the_handler_is_raised() -> None:
    async def fail(event: Event) -> None:
        raise LookupError(event["uuid"])

    with pytest.raises(LookupError):
        _run(Load(rate=10, seconds=1), fail)


def test_the_same_load_is_the_same_work_for_every_run() -> None:
    load = Load(seconds=1)
    assert _run(load, Work(0.02, 0.005).pause) == _run(load, Work(0.02, 0.005).pause)


# The sub-command. Real time, and therefore little of it.


def test_the_command_prints_one_table(penstock: Penstock) -> None:
    result = penstock("kata", "--seconds", "0.2", "--rate", "100", "--handler-ms", "1")
    assert result.status == 0
    heading, _, _, columns, row = result.out.splitlines()
    assert heading.startswith("100 events/s for 0.2 s, 100 clients, 1 % duplicates, 1 ms of work")
    assert columns.split()[:4] == ["variant", "events/s", "queue", "peak"]
    assert row.split()[0] == REFERENCE
    assert row.split()[4] == "20"


def test_variants_are_rows_of_the_same_table(penstock: Penstock) -> None:
    result = penstock(
        "kata", "--seconds", "0.1", "--rate", "50", "--handler-ms", "1",
        "--variant", "sequential", "--variant", "smart-pool",
    )  # fmt: skip
    rows = [line.split()[0] for line in result.out.splitlines()[4:]]
    assert (result.status, rows) == (0, ["sequential", "smart-pool", REFERENCE])


def test_all_variants_are_a_word(penstock: Penstock) -> None:
    result = penstock(
        "kata", "--seconds", "0.1", "--rate", "50", "--handler-ms", "1", "--variant", "all"
    )
    assert len(result.out.splitlines()) == 4 + 6


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--rate", "0"], "rate is 0"),
        (["--clients", "0"], "clients is 0"),
        (["--duplicates", "2"], "duplicates is 2"),
        (["--handler-ms", "-1"], "must not be negative"),
        (["--variant", "best"], "there is no variant 'best'"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused(
    penstock: Penstock, words: list[str], complaint: str
) -> None:
    result = penstock("kata", *words)
    assert result.status == 2
    assert complaint in result.err
