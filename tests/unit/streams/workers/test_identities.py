"""Errors of events in workers, which do not know identities: the parent adds them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from penstock import Fixed, adaptive_flat_map, collect, group_by, read_jsonl, spread
from penstock.streams.testing.loop import run_virtual
from tests.helpers.local_workers import LocalCrew


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_in_a_worker_is_reported_with_the_identity_of_its_event(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, workers: int
) -> None:
    def fail(_: Any) -> None:
        raise ValueError("no")

    async def main() -> None:
        async with pipeline.start(workers=LocalCrew(2) if workers else None) as running:
            await running.wait()

    path = tmp_path / "w.log"
    path.write_bytes(b'{"n":1}\n')
    work = adaptive_flat_map(fail, on_error="skip")
    stream = read_jsonl(path, position=tmp_path / "position").pipe(work)
    pipeline = stream.to(collect(list[Any]()))
    run_virtual(main())
    (record,) = caplog.records
    fields: dict[str, Any] = record.__dict__["penstock"]
    assert fields["identity"].startswith(f"{path}@")
    assert record.getMessage().endswith(f"line 1; {fields['identity']}))")


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_that_stops_a_run_names_its_event_by_its_identity(
    tmp_path: Path, workers: int
) -> None:
    def fail(event: Any) -> Any:
        if event["n"] == 3:
            raise ValueError("no")
        return event

    async def main() -> None:
        async with pipeline.start(workers=LocalCrew(2) if workers else None) as running:
            await running.wait()

    path = tmp_path / "w.log"
    path.write_bytes(b"".join(b'{"n":%d}\n' % n for n in range(1, 6)))
    stream = read_jsonl(path, position=tmp_path / "position").pipe(adaptive_flat_map(fail))
    pipeline = stream.to(collect(list[Any]()))
    with pytest.raises(ValueError, match="no") as caught:
        run_virtual(main())
    (note,) = caught.value.__notes__
    assert re.search(rf"line 3; {re.escape(str(path))}@[0-9a-f]{{16}}:3\)$", note)


def test_errors_of_several_workers_name_their_events_by_their_identities(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(event: Any) -> Any:
        await asyncio.sleep(1)
        raise ValueError(f"no {event['n']}")

    async def main() -> None:
        async with pipeline.start(workers=LocalCrew(2, lambda: 0.1)) as running:
            await running.wait()

    path = tmp_path / "w.log"
    path.write_bytes(b'{"n":1}\n{"n":2}\n')
    stream = read_jsonl(path, position=tmp_path / "position").pipe(
        group_by("n"), spread(), adaptive_flat_map(fail, limit=Fixed(2))
    )
    pipeline = stream.to(collect(list[Any]()))
    with pytest.raises(ValueError, match="no") as caught:
        run_virtual(main())
    (record,) = caplog.records
    (note,) = caught.value.__notes__
    told = note + record.getMessage()
    for line in (1, 2):
        assert re.search(rf"line {line}; {re.escape(str(path))}@[0-9a-f]{{16}}:{line}\)", told)
