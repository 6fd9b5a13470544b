from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from penstock.command.cluster.broker import Stored
from penstock.command.cluster.dead_letters import Chosen, list_letters, publish_again
from penstock.streams.base.errors import PublishFailed
from penstock.streams.io.letter import Letter


def letter(number: int, omitted: dict[str, Any] | None = None) -> Letter:
    return Letter(
        number, {"n": number}, "ValueError", "no", "stage 2", 1, "k", "here", None, omitted
    )


def published(letters: list[Letter], refused: int = 0) -> tuple[int, list[bytes]]:
    """The exit status, and the events that were published; one of them is `refused`."""
    events: list[bytes] = []

    async def publish(one: Letter) -> None:
        if one.sequence == refused:
            raise PublishFailed("no server answers")
        events.append(one.event())

    async def pairs() -> AsyncIterator[Stored]:
        for one in letters:
            yield one, partial(publish, one)

    return asyncio.run(publish_again(pairs())), events


def test_a_letter_without_its_whole_event_is_reported_and_the_others_are_published(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cut = letter(2, {"bytes": 9_000_000, "sha256": "ab"})
    assert published([letter(1), cut, letter(3)]) == (1, [b'{"n":1}', b'{"n":3}'])
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("penstock: dead letter 2 holds only the beginning of its event")
    assert last == "penstock: 2 events published again"


def test_an_event_that_cannot_be_published_ends_the_replay(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert published([letter(1), letter(2), letter(3)], refused=2) == (1, [b'{"n":1}'])
    assert capsys.readouterr().err == (
        "penstock: 1 event published again, but not dead letter 2: no server answers\n"
    )


def test_letters_are_chosen_by_number_and_a_number_that_is_missing_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = Chosen([3, 7])

    async def letters() -> AsyncIterator[Stored]:
        for one in (letter(1), letter(3)):
            if chosen.has(one):
                yield one, partial(asyncio.sleep, 0)

    assert chosen.status(asyncio.run(list_letters(letters()))) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith('{"sequence":3,')
    assert printed.out.count("\n") == 1
    assert printed.err == "penstock: no dead letter has the number 7\n"


def test_without_numbers_all_letters_are_chosen() -> None:
    chosen = Chosen(None)
    assert chosen.has(letter(1))
    assert chosen.status(0) == 0


@pytest.mark.parametrize("command", [("status",), ("dead-letters", "list")])
def test_a_pipeline_and_a_work_pool_together_are_a_mistake(
    penstock: Callable[..., Any], command: tuple[str, ...]
) -> None:
    result = penstock(*command, "--on", "nats://127.0.0.1:1", "--name", "a", "--pool", "b")
    assert (result.status, result.out) == (2, "")
    assert "--name is of a pipeline, --pool of a work pool: give one of them" in result.err
