"""Which streams a table can be read from of which each process has all rows."""

from __future__ import annotations

from typing import Any

from penstock.streams.base.errors import BuildError
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.rx.combining.inputs import columns
from penstock.streams.stages.stream import Stream

__all__ = ["as_read_whole", "require_whole"]


def require_whole(rows: Stream[Any]) -> None:
    """Raise BuildError unless it can be told when the rows of a stream are there that were there at
    the beginning."""
    chain = rows.chain()
    source = chain[0].info
    for stream in chain:
        info = stream.info
        if info.inputs or info.shared is not None:
            raise BuildError(
                f"table(whole=True) reads one source for itself, and not behind {info}, which "
                "shares one, or reads several: give it a source of its own"
            )
    if source.delivery.whole is None:
        if not source.delivery.ends:
            raise BuildError(
                f"table(whole=True) cannot read {source}: it does not say which rows were there at "
                "the start. Read a topic of Kafka, a stream of JetStream, or a file, an iterable "
                "or another source that has all its rows for each process and ends, without "
                "position="
            )
        return
    # It refuses options that do not go with it.
    source.delivery.whole(_nothing)
    for stream in chain:
        if stream.info.delivery.until_more:
            raise BuildError(
                f"table(whole=True) cannot be read behind {stream.info}, which keeps events "
                "until others come: the last rows that were there at the start would not"
            )


def as_read_whole(rows: Stream[Any]) -> tuple[StageInfo, ...]:
    """The stages of the rows, source first: a source that others would share is read for oneself,
    and forgets nothing."""
    ((source, *rest),) = columns([rows])
    if source.delivery.whole is not None:
        detail = source.delivery.whole(_nothing).info.detail
        source = source._replace(detail=detail, delivery=Delivery())
    return source, *rest


def _nothing() -> None:
    """It is not read yet."""
