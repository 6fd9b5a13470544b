from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.command.kata.observe import Observer
from penstock.command.kata.solutions.cpu import cpu_name, cpu_rate


def event(client: int, sequence: int, created: float = 0.0) -> dict[str, object]:
    return {
        "uuid": f"{client:04x}{sequence:028x}",
        "client_id": client,
        "sequence": sequence,
        "created": created,
    }


def test_what_another_process_has_done_is_measured_as_if_it_were_seen() -> None:
    observer = Observer(lambda: 0.0)
    observer.arrived(3)
    observer.worked(event(1, 0), 0.1, 0.2)  # type: ignore[arg-type]
    observer.worked(event(1, 1), 0.2, 0.4)  # type: ignore[arg-type]
    observer.worked(event(2, 0), 0.1, 0.3)  # type: ignore[arg-type]
    measured = observer.measured("it")
    assert (measured.finished, measured.unfinished, measured.seconds) == (3, 0, 0.4)
    assert measured.latency.max == pytest.approx(0.2, rel=0.01)
    assert (measured.overlapped, measured.overtaken, measured.duplicates_processed) == (0, 0, 0)


def test_what_went_wrong_in_another_process_is_seen() -> None:
    observer = Observer(lambda: 0.0)
    observer.worked(event(1, 1), 0.1, 0.3)  # type: ignore[arg-type]
    observer.worked(event(1, 0), 0.2, 0.4)  # type: ignore[arg-type]
    observer.worked(event(1, 1), 0.5, 0.6)  # type: ignore[arg-type]
    measured = observer.measured("it")
    assert (measured.overlapped, measured.overtaken, measured.duplicates_processed) == (1, 1, 1)


def test_by_default_more_arrives_than_one_process_can_do() -> None:
    assert cpu_rate(0.0002) == 8_000
    assert cpu_name(None) == "penstock"
    assert [cpu_name(n) for n in (1, 2)] == ["penstock, 1 worker", "penstock, 2 workers"]


def kata(*options: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "penstock", "kata", "--seconds", "0.5", *options]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def test_one_process_and_several_stand_in_one_table() -> None:
    ran = kata("--cpu-ms", "0.5", "--rate", "400", "--workers", "2")
    assert ran.returncode == 0, ran.stderr
    *_, one, two = ran.stdout.splitlines()
    assert one.startswith("penstock  ")
    assert two.startswith("penstock, 2 workers")
    # Duplicates, overlapped, overtaken, lost, unfinished.
    assert one.split()[-5:] == two.split()[-5:] == ["0"] * 5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--workers", "2"), "give --cpu-ms too"),
        (("--cpu-ms", "0"), "is not between"),
        (("--cpu-ms", "nan"), "is not between"),
        (("--cpu-ms", "1", "--variant", "sequential"), "leave --variant"),
        (("--cpu-ms", "1", "--workers", "0"), "number of at least 1"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_a_line(options: tuple[str, ...], said: str) -> None:
    ran = kata(*options)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr
