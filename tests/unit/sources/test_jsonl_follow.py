from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import collect, read_jsonl
from penstock.streams.base.errors import CannotOpen
from penstock.streams.io.following import QUIET
from penstock.streams.protocol.event import Event
from penstock.streams.runtime.context import Run as SharedRun
from penstock.streams.testing import Probe
from penstock.streams.testing.plugin import Run

Seen = list[tuple[float, int, int]]
Act = tuple[float, Callable[[], object]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def append(file: Path, text: str) -> Callable[[], object]:
    def act() -> None:
        with file.open("a") as opened:
            opened.write(text)

    return act


# What a file that has lost its name must be quiet for, and two looks.
SETTLED = QUIET + 0.5


async def follow(file: Path, *acts: Act, demand: int = 1000) -> Seen:
    """The events until half a minute after the last act: (time, line number, n)."""
    loop = asyncio.get_running_loop()
    seen: Seen = []

    def on_event(_: Probe[Any], event: Event[Any]) -> None:
        seen.append((loop.time(), event.token, event.value["n"]))

    probe = Probe[Any](demand, on_event=on_event)
    read_jsonl(file, follow=True).attach(probe, SharedRun())
    for time, act in acts:
        await asyncio.sleep(time - loop.time())
        act()
    if demand < 1000:
        probe.request(1000)
    await asyncio.sleep(30)
    assert not probe.completed
    probe.cancel()
    return seen


def numbers(seen: Seen) -> list[tuple[int, int]]:
    return [(line, n) for _, line, n in seen]


def test_what_is_appended_is_seen_at_the_next_look(run: Run, file: Path) -> None:
    file.write_text('{"n":1}\n')
    seen = run(follow(file, (1.1, append(file, '{"n":2}\n')), (2.3, append(file, '{"n":3}\n'))))
    assert seen == [(0.0, 1, 1), (1.25, 2, 2), (2.5, 3, 3)]


def test_an_unfinished_last_line_waits_for_its_newline(run: Run, file: Path) -> None:
    file.write_text('{"n":')
    seen = run(follow(file, (1.1, append(file, "1}")), (2.1, append(file, "\n"))))
    assert seen == [(2.25, 1, 1)]


def test_a_truncated_file_is_read_from_its_beginning(run: Run, file: Path) -> None:
    file.write_text('{"n":1}\n{"n":2}\n')
    seen = run(follow(file, (1.1, lambda: file.write_text('{"n":3}\n'))))
    assert seen == [(0.0, 1, 1), (0.0, 2, 2), (1.25, 1, 3)]


def test_a_replaced_file_is_read_to_its_end_and_then_its_successor(run: Run, file: Path) -> None:
    file.write_text('{"n":1}\n')

    def rotate() -> None:
        append(file, '{"n":2}\n{"n":3}')()
        os.rename(file, file.with_suffix(".1"))
        file.write_text('{"n":4}\n')

    seen = run(follow(file, (1.1, rotate)))
    assert numbers(seen) == [(1, 1), (2, 2), (3, 3), (1, 4)]


def test_a_file_that_was_moved_away_is_followed_until_its_successor_is_there(
    run: Run, file: Path
) -> None:
    file.write_text('{"n":1}\n')
    old = file.with_suffix(".1")
    seen = run(
        follow(
            file,
            (1.0, lambda: os.rename(file, old)),
            (2.0, append(old, '{"n":2}\n')),
            (3.1, lambda: file.write_text('{"n":3}\n')),
        )
    )
    assert numbers(seen) == [(1, 1), (2, 2), (1, 3)]


def rotate(file: Path, *, suffix: str = ".1", text: str = "") -> Callable[[], object]:
    """Rename the file and create its successor, as logrotate's `create` does."""

    def act() -> None:
        os.rename(file, file.with_suffix(suffix))
        file.write_text(text)

    return act


def test_what_is_written_into_a_rotated_file_until_its_writer_has_reopened_it_is_read(
    run: Run, file: Path
) -> None:
    file.write_text('{"n":1}\n')
    old = file.with_suffix(".1")
    seen = run(
        follow(
            file,
            (1.0, rotate(file)),
            (2.0, append(old, '{"n":2}\n')),
            (6.9, append(old, '{"n":3}\n')),
            (7.0, append(file, '{"n":4}\n')),
        )
    )
    assert numbers(seen) == [(1, 1), (2, 2), (3, 3), (1, 4)]
    # Quiet for five seconds after the look at 7.0.
    assert seen[-1][0] == 12.0


def test_a_file_that_was_quiet_for_long_is_read_for_a_while_after_it_has_lost_its_name(
    run: Run, file: Path
) -> None:
    file.write_text('{"n":1}\n')
    acts = (
        (100.1, rotate(file, text='{"n":3}\n')),
        (104, append(file.with_suffix(".1"), '{"n":2}\n')),
    )
    assert numbers(run(follow(file, *acts))) == [(1, 1), (2, 2), (1, 3)]


@pytest.mark.parametrize("demand", [1000, 1], ids=["requested", "not requested meanwhile"])
def test_no_file_is_missed_that_had_the_name_while_an_older_one_was_read(
    run: Run, file: Path, demand: int
) -> None:
    file.write_text('{"n":1}\n')
    acts: list[Act] = []
    for n in range(2, 6):
        acts.append((n, rotate(file, suffix=f".{n}", text=f'{{"n":{n}}}\n')))
        acts.append((n + 0.5, append(file.with_suffix(f".{n}"), f'{{"n":{n}0}}\n')))
    wanted = [(1, 1), (2, 20), (1, 2), (2, 30), (1, 3), (2, 40), (1, 4), (2, 50), (1, 5)]
    assert numbers(run(follow(file, *acts, demand=demand))) == wanted


def test_a_file_that_is_written_anew_and_longer_between_two_looks_is_read_from_its_beginning(
    run: Run, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text('{"n":1}\n{"n":2}\n')
    longer = "".join(f'{{"n":{n}}}\n' for n in range(3, 9))
    seen = run(follow(file, (1.1, lambda: file.write_text(longer))))
    assert numbers(seen)[2:] == [(n - 2, n) for n in range(3, 9)]
    assert "was emptied or written anew after 16 bytes" in caplog.text


def test_a_rotated_file_that_is_emptied_too_is_read_from_its_beginning_before_its_successor(
    run: Run, file: Path
) -> None:
    file.write_text('{"n":1}\n')
    old = file.with_suffix(".1")
    acts: list[Act] = [
        (1.1, rotate(file, text='{"n":3}\n')),
        (2.1, lambda: old.write_text('{"n":2}\n{"n":22}\n')),
    ]
    assert numbers(run(follow(file, *acts))) == [(1, 1), (1, 2), (2, 22), (1, 3)]


def test_a_successor_that_may_be_read_a_moment_later_is_waited_for(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('{"n":1}\n')
    open_, refused = os.open, list[Any]()

    def guarded(path: Any, *rest: Any) -> int:
        if path == str(file) and refused:
            raise PermissionError(13, "Permission denied")
        return open_(path, *rest)

    monkeypatch.setattr(os, "open", guarded)
    acts: list[Act] = [
        (1.1, lambda: (rotate(file, text='{"n":2}\n')(), refused.append(1))),
        (2.1, refused.clear),
    ]
    assert numbers(run(follow(file, *acts))) == [(1, 1), (1, 2)]


def test_a_successor_that_cannot_be_read_is_an_error_when_the_file_before_is_at_its_end(
    run: Run, file: Path
) -> None:
    file.write_text('{"n":1}\n')

    def replace_by_a_directory() -> None:
        os.rename(file, file.with_suffix(".1"))
        os.mkdir(file)

    async def story() -> None:
        running = read_jsonl(file, follow=True).to(collect([])).start()
        await asyncio.sleep(1)
        replace_by_a_directory()
        with pytest.raises(CannotOpen, match="not a regular file"):
            await running.wait()

    run(story())


def test_the_statistics_count_files_that_were_replaced_and_emptied(run: Run, file: Path) -> None:
    file.write_text('{"n":1}\n')
    acts = [
        (1.0, rotate(file, text='{"n":2}\n')),
        (SETTLED, lambda: file.write_text("")),
        (1.0, append(file, '{"n":3}\n')),
        (1.0, lambda: None),
    ]

    async def story() -> dict[str, Any]:
        running = read_jsonl(file, follow=True).to(collect([])).start()
        for seconds, act in acts:
            await asyncio.sleep(seconds)
            act()
        report = await running.drain()
        found: dict[str, Any] = report.statistics["stages"][0]
        return found

    found = run(story())
    assert (found["rotated"], found["emptied"]) == (1, 1)


def test_a_file_that_is_not_there_yet_is_waited_for(
    run: Run, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "penstock"):
        seen = run(follow(file, (1.1, lambda: file.write_text('{"n":1}\n'))))
    assert seen == [(1.25, 1, 1)]
    assert "waiting for it" in caplog.text


def test_a_directory_cannot_be_followed(run: Run, tmp_path: Path) -> None:
    probe = Probe[Any](1)

    async def story() -> None:
        read_jsonl(tmp_path, follow=True).attach(probe, SharedRun())

    run(story())
    assert isinstance(probe.error, CannotOpen)
