"""Windows: streams of streams whose values are lost unless an operator reads them as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from reactivex import Observable
from reactivex.abc import DisposableBase, ObserverBase, SchedulerBase

from penstock.streams.base.errors import BuildError
from penstock.streams.protocol.blame import is_ours
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lift import WithStock, name_of
from penstock.streams.rx.recognise import Part
from penstock.streams.rx.table import TABLE
from penstock.streams.stages.stream import Stream

__all__ = ["Window", "cut_by", "refuse_windows"]

T = TypeVar("T")


def cut_by(parts: Sequence[Part], before: Stream[Any]) -> Stream[Any]:
    """`before`, cut into windows by the first of `parts`; the others are operators such as map.

    The operator that reads the windows is to follow: it and they are lifted together. Anything else
    that reads this stream is a BuildError.
    """

    def attach(downstream: Subscriber[Any], run: Run) -> None:
        windows.check_readable()

    windows = before.below(attach, StageInfo(str(parts[0].name)))
    windows.cut = before, parts
    windows.unread = _refusal(parts)
    return windows


class Window(Observable[T]):
    """One window: a plain Observable, because its values come without demand.

    An operator of this library needs demand, so it is replaced by the stock one that does the same,
    or refused.
    """

    def __init__(self, window: Observable[T]) -> None:
        def subscribe(
            observer: ObserverBase[T], scheduler: SchedulerBase | None = None
        ) -> DisposableBase:
            return window.subscribe(observer, scheduler=scheduler)

        super().__init__(subscribe)

    def pipe(self, *operators: Callable[[Any], Any]) -> Any:
        """As `Observable.pipe`."""
        result: Any = super().pipe(*map(_without_demand, operators))
        is_plain: bool = result.__class__ is Observable
        return Window[Any](result) if is_plain else result


def _without_demand(operator: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if isinstance(operator, WithStock):
        return operator.stock
    if is_ours(getattr(operator, "__module__", None) or ""):
        name = name_of(operator)
        stock = f", or use reactivex.operators.{name}" if name in TABLE else ""
        raise BuildError(
            f"{name} requests events, and those of a window come without a request: put it behind "
            f"what reads the windows{stock}"
        )
    return operator


def refuse_windows(windows: Sequence[Part]) -> NoReturn:
    """Raise the BuildError for windows that nothing reads."""
    raise BuildError(_refusal(windows))


def _refusal(windows: Sequence[Part]) -> str:
    return (
        f"{windows[0].name} emits streams that lose what is not read at once: let flat_map(...), "
        "merge_all() or switch_latest() follow, with only operators that answer at once between "
        "them, such as map; or use buffer_with_count, chunk or group_by"
    )
