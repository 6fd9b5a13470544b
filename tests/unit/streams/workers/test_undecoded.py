"""Lines that workers decode, because no stage of the parent has changed their values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock import (
    Flowable,
    Pipeline,
    adaptive_flat_map,
    collect,
    dead_letters,
    distinct_within,
    from_iterable,
    group_by,
    ops,
    rate_limit,
    read_jsonl,
    route,
    spread,
)
from penstock.streams.testing.loop import run_virtual
from penstock.streams.workers.messages import Ended, Events
from penstock.streams.workers.placement import section_of
from tests.helpers.local_workers import LocalCrew

LINES = (
    b'\xef\xbb\xbf{"id": 1, "first": true}',
    b'{"id": 2, "big": 123456789012345678901234567890, "whole": 9007199254740993}',
    b'{"id": 3, "id": 3, "twice": 1, "twice": [1.0, -0.0, 1e-7]}\r',
    b"no JSON",
    b"",
    b'{"id": 4, "text": "\\ud83d\\ude00 \\u0000 \xc3\xa9", "": null}',
    b'{"id": 5, "n": -9223372036854775808, "m": 18446744073709551615, "f": 0.1}',
    b'{"id": 1, "duplicate": true}',
    b'{"id": 6, "list": [[], {}, [{"a": {"b": [false]}}]]}',
)
WORK = adaptive_flat_map(repr)


def write(folder: Path, lines: tuple[bytes, ...] = LINES) -> Path:
    path = folder / "lines.jsonl"
    path.write_bytes(b"\n".join(lines))
    return path


def run_with(workers: int, pipeline: Pipeline) -> tuple[LocalCrew, Any]:
    async def main() -> Any:
        async with pipeline.start(workers=crew if workers else None) as running:
            return await running.wait()

    crew = LocalCrew(max(1, workers), lambda: 0.001)
    return crew, run_virtual(main())


def sent_to(crew: LocalCrew) -> list[Any]:
    return [value for worker in crew.alive for value in crew.values(worker)]


@pytest.mark.parametrize("bad_line", [False, True])
def test_a_handler_in_a_worker_gets_what_it_would_get_in_one_process(
    tmp_path: Path, bad_line: bool
) -> None:
    lines = tuple(line for line in LINES if bad_line or line.startswith((b"{", b"\xef")))
    path, found = write(tmp_path, lines), dict[int, list[str]]()
    for workers in (0, 2):
        found[workers] = []
        stream = read_jsonl(path).pipe(distinct_within(10, by="id"), group_by("id"), spread(), WORK)
        crew, report = run_with(workers, stream.to(collect(found[workers])))
        assert report.statistics["finished"] == 6
        assert report.statistics["dropped"] == {"duplicate": 1}
        if workers:
            assert b'{"id": 1, "first": true}' in sent_to(crew)
            assert {type(value) for value in sent_to(crew)} <= {bytes, bytearray}
    assert sorted(found[2]) == sorted(found[0])


def test_lines_are_sent_again_to_a_worker_that_replaces_another(tmp_path: Path) -> None:
    path, into = write(tmp_path), list[Any]()

    class Dying(LocalCrew):
        def open(self, worker: int, *rest: Any) -> Any:
            link = super().open(worker, *rest)
            if self.started == 1:
                send = link.send

                def die(message: Any) -> None:
                    send(message)
                    if isinstance(message, Events):
                        self.kill(worker)

                link.send = die  # type: ignore[method-assign]
            return link

    async def main() -> Any:
        async with read_jsonl(path).pipe(WORK).to(collect(into)).start(workers=crew) as running:
            return await running.wait()

    crew = Dying(1, lambda: 0.001)
    report = run_virtual(main())
    assert crew.started == 2
    assert report.statistics["finished"] == len(into) == 7


def test_a_lack_of_memory_in_a_worker_stops_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    decoded = 0

    def without_memory(line: bytes) -> Any:
        nonlocal decoded
        decoded += 1
        if decoded > 3:
            # As orjson says it.
            raise orjson.JSONDecodeError("Not enough memory to allocate buffer for parsing", "", 0)
        return orjson.loads(line)

    monkeypatch.setattr("penstock.sources.jsonl.loads", without_memory)
    path = write(tmp_path, LINES[:3])
    with pytest.raises(MemoryError, match="a worker process cannot decode events"):
        run_with(1, read_jsonl(path).pipe(WORK).to(collect([])))
    # Such as that the worker says nothing, because nothing becomes of its events.
    assert caplog.messages == []


def test_a_dead_letter_has_the_value_of_a_line(tmp_path: Path) -> None:
    def refuse(event: dict[str, Any]) -> None:
        raise ValueError(event["id"])

    path, letters = write(tmp_path), tmp_path / "letters.jsonl"
    work = adaptive_flat_map(refuse, on_error=route(dead_letters(letters)))
    run_with(1, read_jsonl(path).pipe(work).to(collect([])))
    found = [json.loads(line) for line in letters.read_text().splitlines()]
    assert sorted(letter["value"]["id"] for letter in found) == [1, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_a_worker_names_the_line_and_its_file(tmp_path: Path, workers: int) -> None:
    def refuse(event: dict[str, Any]) -> None:
        raise ValueError("no")

    path = write(tmp_path, LINES[1:2])
    with pytest.raises(ValueError, match="no") as caught:
        run_with(workers, read_jsonl(path).pipe(adaptive_flat_map(refuse)).to(collect([])))
    (note,) = caught.value.__notes__
    assert note.endswith(f"({path}, line 1)")


def test_events_keep_the_numbers_of_their_lines(tmp_path: Path) -> None:
    crew, _ = run_with(1, read_jsonl(write(tmp_path)).pipe(WORK).to(collect([])))
    sent, answered = crew.messages(0)
    tokens = [message.tokens for message in sent if isinstance(message, Events)]
    assert tokens == [[1, 2, 3, 6, 7, 8, 9]]
    assert sum(len(message.numbers) for message in answered if isinstance(message, Ended)) == 7


def parsed(line: bytes) -> Any:
    return json.loads(line)


def key(event: dict[str, Any]) -> Any:
    return event["id"]


FIELDS: Any = distinct_within(10, by="id", time="at"), rate_limit(5, cost="id")


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (read_jsonl().pipe(WORK), True),
        (read_jsonl(created="at").pipe(ops.map(key), WORK), True),
        (read_jsonl().pipe(*FIELDS, group_by("id"), spread(), WORK), True),
        (read_jsonl().pipe(group_by("id"), spread(), *FIELDS, WORK), True),
        (read_jsonl(decode=parsed).pipe(WORK), False),
        (read_jsonl(created=key).pipe(WORK), False),
        (read_jsonl().pipe(distinct_within(10, by=key), WORK), False),
        (read_jsonl().pipe(distinct_within(10, by="id", time=key), WORK), False),
        (read_jsonl().pipe(rate_limit(5, cost=key), WORK), False),
        (read_jsonl().pipe(group_by(key), spread(), *FIELDS, WORK), False),
        (read_jsonl().pipe(ops.map(key), rate_limit(5), WORK), False),
        (from_iterable([{}]).pipe(WORK), False),
    ],
)
def test_workers_decode_lines_where_no_function_of_the_users_had_the_values(
    stream: Flowable[Any], expected: bool
) -> None:
    assert (section_of(stream.chain()).decode is not None) is expected
