"""Sources that read several partitions, each in the order of its events."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from penstock.streams.protocol.event import Origin

__all__ = ["Partitioned", "PartitionsWatcher"]


class PartitionsWatcher(Protocol):
    """What is told of the partitions of a source. One that comes back is another object, unless its
    events go on where they were."""

    def joined(self, partition: Any, name: str, /) -> None:
        """The source reads the partition from now on."""
        ...

    def left(self, partition: Any, /) -> None:
        """The source emits no more of the partition, also because it has read all of it for good.
        Events of before may still be on their way."""
        ...

    def emptied(self, partition: Any, /) -> None:
        """The source was told that there is nothing more of the partition now."""
        ...

    def filled(self, partition: Any, /) -> None:
        """There was something more of it after all."""
        ...


@runtime_checkable
class Partitioned(Origin, Protocol):
    """A source that reads several partitions."""

    def partition_of(self, token: Any, /) -> Any:
        """The partition of the event with this token."""
        ...

    def sequence_of(self, token: Any, /) -> Any:
        """The place in its partition of the event with this token: it grows in the order in which
        the events come, and is the same whenever the event comes again."""
        ...

    def watch(self, watcher: PartitionsWatcher, /) -> None:
        """Tell it of all partitions from now on. Called before the first request."""
        ...

    def hold(self, partition: Any, by: object, /) -> None:
        """Read no more of the partition soon: at most what was read already is still emitted. The
        others go on. It lasts until all who hold it have called `let_go_of`."""
        ...

    def let_go_of(self, partition: Any, by: object, /) -> None:
        """Read the partition again."""
        ...
