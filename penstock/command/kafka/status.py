"""`penstock status --on kafka://...`: members, floors, lag, dead letters and hottest keys."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from penstock.command.kafka.place import PATIENCE, layout_of
from penstock.command.output import aligned, counted, put_one
from penstock.streams.kafka.cluster.layout import Layout
from penstock.streams.kafka.cluster.view import View, groups_of, look

__all__ = ["as_text", "call"]

_EVERY = 1.0
# Characters of a key that are shown.
_LONGEST = 40


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Print the state of one group, or of all that read the topic, once or (`--watch`) each
    second."""
    layout = layout_of(options)
    try:
        while (status := put_one("\n".join(_texts(layout)), of_many=options.watch)) is None:
            time.sleep(_EVERY)
    except KeyboardInterrupt:
        return 0
    return status


def _texts(layout: Layout) -> list[str]:
    groups = [layout.group] if layout.group else groups_of(layout, PATIENCE)
    if not groups:
        return [f"No group has read the topic '{layout.topic}' on {layout.servers}.\n"]
    return [as_text(look(replace(layout, group=group), PATIENCE)) for group in groups]


def as_text(view: View) -> str:
    """A few lines, and tables of the members and of the partitions."""
    owners = view.owners
    free = len(view.parts) - len(owners)
    lines = [
        f"{view.group}: {counted(view.unfinished, 'event')} unfinished, {view.kept:,} kept in "
        f"'{view.topic}', {counted(view.letters, 'dead letter')}",
        f"  {counted(len(view.parts), 'partition')}, {free} of them with no worker",
    ]
    if view.keys:
        keys = ", ".join(f"{_cut(key)} {count:,}" for key, count in view.keys)
        lines.append(f"  hottest keys of {counted(view.sampled, 'unfinished event')}: {keys}")
    if view.members:
        workers = [
            (
                member.name,
                member.host,
                f"{len(member.partitions):,}",
                f"{sum(view.parts[one].unfinished for one in member.partitions):,}",
            )
            for member in view.members
        ]
        lines += aligned([("worker", "host", "partitions", "behind"), *workers], texts=2)
    else:
        lines.append("  no worker is there")
    partitions = [
        (
            str(number),
            owners[number].name if number in owners else "-",
            *(f"{n:,}" for n in (part.floor, part.above, part.end, part.unfinished)),
        )
        for number, part in sorted(view.parts.items())
    ]
    heading = ("partition", "worker", "floor", "finished above", "end", "behind")
    lines += aligned([heading, *partitions], texts=2)
    lines += [f"  partition {number}: {why} (ignored)" for number, why in view.ignored.items()]
    return "\n".join([*lines, ""])


def _cut(key: str) -> str:
    return key if len(key) <= _LONGEST else key[:_LONGEST] + "..."
