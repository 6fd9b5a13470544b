from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import read_jsonl
from penstock.streams.errors import CannotOpen
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


async def follow(file: Path, *acts: Act) -> Seen:
    """The events until five seconds after the last act: (time, line number, n)."""
    loop = asyncio.get_running_loop()
    seen: Seen = []

    def on_event(_: Probe[Any], event: Event[Any]) -> None:
        seen.append((loop.time(), event.token, event.value["n"]))

    probe = Probe[Any](1000, on_event=on_event)
    read_jsonl(file, follow=True).attach(probe, SharedRun())
    for time, act in acts:
        await asyncio.sleep(time - loop.time())
        act()
    await asyncio.sleep(5)
    assert not probe.completed
    probe.cancel()
    return seen


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
    assert [(line, n) for _, line, n in seen] == [(1, 1), (2, 2), (3, 3), (1, 4)]


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
    assert [(line, n) for _, line, n in seen] == [(1, 1), (2, 2), (1, 3)]


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
