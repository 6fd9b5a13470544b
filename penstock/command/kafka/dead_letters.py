"""`penstock dead-letters list|replay --on kafka://...`: lists dead letters, or tries them again."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from penstock.command.dead_letters import line_of
from penstock.command.kafka.place import PATIENCE, layout_of
from penstock.command.output import counted, mention, put
from penstock.streams.errors import EventOmitted, PenstockError
from penstock.streams.kafka.cluster.layout import Layout
from penstock.streams.kafka.cluster.letters import Replay, StoredLetter, letters_of

__all__ = ["call"]


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """List the dead letters as JSON lines, or write their events to the topic again and delete
    them."""
    layout = layout_of(options)
    chosen = frozenset[int](options.id or ())
    missing = set(chosen)

    def letters() -> Iterator[StoredLetter]:
        for stored in letters_of(layout, PATIENCE, mention):
            if not chosen or stored.letter.sequence in chosen:
                missing.discard(stored.letter.sequence)
                yield stored

    status = _list(letters()) if options.action == "list" else _replay(layout, letters())
    if not status and missing:
        mention(f"no dead letter has the number {', '.join(map(str, sorted(missing)))}")
        return 1
    return status


def _list(letters: Iterator[StoredLetter]) -> int:
    for stored in letters:
        status = put(line_of(stored.letter.as_dict()))
        if status:
            return status
    return 0


def _replay(layout: Layout, letters: Iterator[StoredLetter]) -> int:
    replay = Replay(layout)
    sent = status = 0
    for stored in letters:
        try:
            replay.send(stored)
        except EventOmitted as error:
            mention(str(error))
            status = 1
            continue
        except PenstockError as error:
            mention(
                f"{counted(sent, 'event')} published again, but not dead letter "
                f"{stored.letter.sequence}: {error}"
            )
            return 1
        sent += 1
    mention(f"{counted(sent, 'event')} published again")
    return status
