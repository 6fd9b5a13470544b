"""Groups: the streams of one key each, and the stream of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from penstock.streams.base.errors import BuildError
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo

if TYPE_CHECKING:
    from penstock.streams.keyed.overflow import Overflow
    from penstock.streams.runtime.context import Run

__all__ = ["Group", "Grouped", "described"]

K_co = TypeVar("K_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)


def described(within: StageInfo) -> StageInfo:
    """The description of the groups of this `group_by`."""
    return StageInfo("group", within=within, delivery=Delivery(once="a group is read once")).first()


class Group(Flowable[T_co], Generic[K_co, T_co]):
    """`Group[K, T]`: the stream of the events (T) of one key (K), which is its `key`.

    `info` is as `described`. `is_key_read`: whether the key has been read.
    """

    is_key_read = False

    def __init__(
        self,
        key: K_co,
        attach: Callable[[Subscriber[T_co], Run], None],
        info: StageInfo,
        values: Any = None,
    ) -> None:
        super().__init__(attach, info, values=values)
        self._key = key

    @property
    def key(self) -> K_co:
        self.is_key_read = True
        return self._key


class Grouped(Flowable[Group[K_co, T_co]], Generic[K_co, T_co]):
    """A stream of groups, as `group_by` makes it, which only `spread` can read.

    `rotate(downstream, run, feeders, info)` is for `spread`: it connects a reader of the groups'
    events, and no group object is made. Attaching anything else is a BuildError. `overflow(run,
    info)` makes the store for events beyond their keys' shares.
    """

    groups = True

    def __init__(
        self,
        rotate: Callable[[Subscriber[Any], Run, int | None, StageInfo], None],
        info: StageInfo,
        above: Flowable[Any],
        overflow: Callable[[Run, StageInfo], Overflow],
    ) -> None:
        super().__init__(self._refuse, info, above, passes=info.delivery.inside is None)
        self.rotate = rotate
        self.overflow = overflow

    def _refuse(self, downstream: Subscriber[Any], run: Run) -> NoReturn:
        raise BuildError(f"{self.info} makes groups, which only spread() reads: insert spread()")
