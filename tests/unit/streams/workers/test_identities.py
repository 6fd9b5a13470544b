"""Errors of events in workers, which have no identities: the parent adds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import adaptive_flat_map, collect, read_jsonl
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
