from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.command.kata import command
from penstock.command.kata.load.events import Event, Load
from penstock.command.kata.load.work import Work
from penstock.command.kata.observe import Measured
from penstock.command.kata.solutions.reference import REFERENCE, run_reference
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


def test_a_pipeline_that_is_far_behind_processes_no_duplicate() -> None:
    # It reads the load three times as slowly as that comes.
    measured = _run(Load(rate=300, clients=1, duplicates=0.3, seconds=20))
    assert measured.peak_queue > 2_000
    assert measured.duplicates_processed == 0


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


def test_each_variant_and_the_reference_have_a_line_for_their_seconds(penstock: Penstock) -> None:
    result = penstock(
        "kata", "--seconds", "0.1", "--rate", "50", "--handler-ms", "1", "--variant", "sequential"
    )
    words = [line.split() for line in result.err.splitlines()]
    assert [line[:2] for line in words if "second" in line] == [
        ["sequential", "second"],
        [REFERENCE, "second"],
    ]
    assert [int(line[1]) for line in words if "second" not in line] == [5, 5]


def test_a_slow_client_has_the_latency_of_the_others_in_the_table(penstock: Penstock) -> None:
    result = penstock("kata", "--seconds", "0.1", "--rate", "100", "--slow-client", "3")
    heading, _, _, columns, row = result.out.splitlines()
    assert "(sigma 1 ms); client 1000 takes 3 times as long." in heading
    assert columns.split()[-1] == "others-p99"
    assert float(row.split()[-1]) >= 0


def test_a_pause_stops_everything_at_half_of_the_time(penstock: Penstock) -> None:
    # 0.3 s of pause, which whatever arrived in it waited for.
    result = penstock("kata", "--seconds", "0.4", "--rate", "200", "--pause", "0.3")
    columns, row = (line.split() for line in result.out.splitlines()[3:])
    assert float(dict(zip(columns, row, strict=True))["max"]) > 150


RIGHT = """
from concurrent.futures import ThreadPoolExecutor

class Consumer:
    def __init__(self):
        self.thread = ThreadPoolExecutor(1)
        self.seen = set()

    def submit(self, event):
        if event.uuid not in self.seen:
            self.seen.add(event.uuid)
            self.thread.submit(event.process)

    def close(self):
        self.thread.shutdown()

async def loses(event):
    if event.client_id != 1001:
        await event.process_async()
    else:
        1 / 0

def never(event):
    event.process()

class Unfit:
    def __init__(self):
        raise LookupError("unfit")

    def submit(self, event): ...
"""

SMALL = ("--seconds", "0.1", "--rate", "100", "--clients", "2", "--handler-ms", "1")


@pytest.mark.parametrize("promise", ["duplicates_processed", "overlapped", "overtaken", "lost"])
def test_any_broken_promise_of_the_last_row_gives_status_1(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch, promise: str
) -> None:
    kept = _run(Load(rate=100, seconds=0.1))

    async def keeps(*args: Any, **options: Any) -> Measured:
        return kept

    async def breaks(*args: Any, **options: Any) -> Measured:
        broken: dict[str, Any] = {promise: 1}
        return replace(kept, **broken)

    monkeypatch.setattr(command, "run_reference", keeps)
    assert penstock("kata", *SMALL).status == 0
    monkeypatch.setattr(command, "run_reference", breaks)
    assert penstock("kata", *SMALL).status == 1


@pytest.fixture
def my(tmp_path: Path) -> Path:
    path = tmp_path / "my.py"
    path.write_text(RIGHT)
    return path


def test_a_consumer_that_keeps_the_promises_is_graded_with_0(penstock: Penstock, my: Path) -> None:
    result = penstock("kata", *SMALL, "--try", f"{my}:Consumer")
    heading, _, _, columns, row, _, verdict = result.out.splitlines()
    assert result.status == 0
    assert heading.startswith("100 events/s for 0.1 s, 2 clients")
    cells = dict(zip(columns.split(), row.split(), strict=True))
    assert (cells["variant"], cells["count"], cells["lost"]) == (f"{my}:Consumer", "10", "0")
    assert verdict == f"{my}:Consumer keeps every promise of the kata."


def test_a_consumer_that_loses_events_is_graded_with_1_and_shown_its_line(
    penstock: Penstock, my: Path
) -> None:
    result = penstock("kata", *SMALL, "--try", f"{my}:loses")
    assert result.status == 1
    verdict = result.out.splitlines()[6:]
    assert verdict[0] == f"{my}:loses breaks promises of the kata:"
    assert any(line.startswith("  lost: ") for line in verdict)
    line = RIGHT.splitlines().index("        1 / 0") + 1
    assert verdict[-1].startswith(f"  error: {my}:{line}: ZeroDivisionError: division by zero (")
    assert "Traceback" not in result.out + result.err


def test_variants_are_rows_beside_the_tried_consumer_and_the_reference_is_left_out(
    penstock: Penstock, my: Path
) -> None:
    result = penstock("kata", *SMALL, "--variant", "sequential", "--try", f"{my}:Consumer")
    rows = [line.split()[0] for line in result.out.splitlines()[4:6]]
    assert rows == ["sequential", f"{my}:Consumer"]


def test_a_consumer_that_cannot_be_made_is_refused_with_its_own_lines(
    penstock: Penstock, my: Path
) -> None:
    result = penstock("kata", *SMALL, "--try", f"{my}:Unfit")
    assert result.status == 2
    assert f"{my}:Unfit cannot be made" in result.err
    assert "LookupError: unfit" in result.err
    assert "trial.py" not in result.err


def test_a_consumer_whose_threads_never_end_does_not_keep_the_command(
    script: list[str], process: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "my.py"
    path.write_text(
        "import threading\n"
        "def consume(event):\n"
        "    event.process()\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
    )
    result = process(script, "kata", *SMALL, "--try", path)
    assert result.returncode == 0
    assert "keeps every promise" in result.stdout


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--try", "no/such/file.py"], "no/such/file.py does not exist"),
        (["--slow-client", "0.5"], "slow-client is 0.5, must be at least 1"),
        (["--pool", "20"], "--pool: no variant with a pool of threads"),
        (["--pool", "20", "--variant", "sequential"], "naive-pool, fail-on-concurrent"),
        (["--pool", "0", "--variant", "naive-pool"], "'0' is not a number of at least 1"),
        (["--rate", "0"], "rate is 0"),
        (["--clients", "0"], "clients is 0"),
        (["--duplicates", "2"], "duplicates is 2"),
        (["--handler-ms", "-1"], "must not be negative"),
        (["--handler-ms", "inf"], "must be finite"),
        (["--sigma-ms", "nan"], "must be finite"),
        (["--rate", "inf"], "more than 0 events per second, and finite"),
        (["--variant", "best"], "there is no variant 'best'"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused(
    penstock: Penstock, words: list[str], complaint: str
) -> None:
    result = penstock("kata", *words)
    assert result.status == 2
    assert complaint in result.err


def test_the_reference_can_be_named_like_a_variant_and_runs_once(penstock: Penstock) -> None:
    result = penstock("kata", "--seconds=0.1", "--rate=20", "--variant", "penstock")
    assert result.status == 0
    assert sum(line.startswith("penstock ") for line in result.out.splitlines()) == 1


def test_a_plot_under_another_name_than_svg_is_a_mistake(
    penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "kata.png"
    result = penstock("kata", "--seconds=0.1", "--rate=20", "--plot", path)
    assert (result.status, result.out) == (2, "")
    assert f"--plot {path}: the name must end in .svg" in result.err
    assert not path.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seconds", "0"], "1000 events per second for 0 s make no event: give more --seconds"),
        (["--seconds", "1", "--rate", "0.1"], "0.1 events per second for 1 s make no event"),
        (["--seconds", "0.5", "--pause"], "a pause of 1 s does not fit into a run of 0.5 s"),
    ],
)
def test_a_run_that_would_measure_nothing_is_a_mistake(
    penstock: Penstock, words: list[str], said: str
) -> None:
    result = penstock("kata", *words)
    assert (result.status, result.out) == (2, "")
    assert said in result.err
