"""Flowable: a reactivex Observable that also honours demand.

    source    --1--2--3--4--|
    request   2-----------2--
    connect   --1--2------34|

A Flowable is a description: it holds no events and starts nothing. It can be connected any
number of times; each connection is a separate run. It can be read in three ways: `connect`
(Reactive Streams: events, `request(n)`, `cancel()`), `subscribe` (plain Rx: values, unbounded
demand) and `async for` (values, one at a time, as fast as the loop's body).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

from reactivex import Observable
from reactivex.abc import DisposableBase, ObserverBase, SchedulerBase

from penstock.streams.boundary.user_stage import guarded
from penstock.streams.errors import BuildError, WrongType
from penstock.streams.protocol.fields import as_changed, refuse_missing
from penstock.streams.protocol.forgetting import refuse_to_absorb
from penstock.streams.protocol.numbering import numbered_below
from penstock.streams.protocol.stage import EventSubscriber, RunningStage, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.rx.fluent import Fluent

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable

    from penstock.streams.boundary.from_observable import Overflow
    from penstock.streams.pipeline import Pipeline
    from penstock.streams.protocol.sink_stage import Sink
    from penstock.streams.runtime.context import Run

__all__ = ["Flowable", "Whole"]

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

Whole = Literal["number", "values"]


class Flowable(Fluent[T_co]):
    """A stream of `T_co` with demand: its readers request as many events as they can take.

    `attach(subscriber, run)` connects a stage to the stages above it; `info` describes this stage,
    and `above` is the stream it reads from (None for a source).
    """

    turns = False
    """Whether its events hold a turn, which the first working stage ends."""

    groups = False
    """Whether its values are groups, which only `spread` reads."""

    unread = ""
    """Why no stage and no sink can read its values, if that is so: the text of the BuildError."""

    whole: Whole | None = None
    """If its only value is the number of the events above, or the list of their values."""

    values: Any = None
    """The type of its values, where that is known."""

    def __init__(
        self,
        attach: Callable[[Subscriber[Any], Run], None],
        info: StageInfo,
        above: Flowable[Any] | None = None,
        *,
        turns: bool | None = None,
        spreads: bool = False,
        values: Any = None,
        passes: bool = False,
    ) -> None:
        """`spreads`: the stage reads groups; any other stage on groups is a BuildError. `values`:
        the type of a source's values, if known. `passes`: the stage emits the values that came.
        """
        super().__init__()
        if not callable(attach) or not isinstance(info, StageInfo):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongType(
                "Flowable(attach, info) is for authors of sources: make a stream by "
                "from_iterable(...), from_async_iterable(...) or Flowable.of(observable, ...)"
            )
        self.info: StageInfo = info.first() if above is None else info.after(above.info)
        if above is not None:
            above.check_readable()
            stages = [stream.info for stream in above.chain()]
            if info.inputs:
                self.info = numbered_below(self.info, stages)
            refuse_to_absorb(self.info, stages)
        if above is not None and above.groups and not spreads:
            raise BuildError(_cannot_read_groups(self.info, above))
        if passes and above is not None:
            values = above.values if info.placement.untouched else as_changed(above.values)
        self.values = values
        refuse_missing(self.info, values if above is None else above.values)
        self.above = above
        self._attach = attach
        self.turns = turns if turns is not None else above is not None and above.turns

    def check_readable(self) -> None:
        """Raise BuildError if no stage and no sink can read its values."""
        if self.unread:
            raise BuildError(self.unread)

    def attach(self, subscriber: Subscriber[Any], run: Run) -> None:
        """Connect a stage of the same run; for authors of operators only.

        An exception raised by a stage that is not the library's own fails its event and ends the
        stream.
        """
        run.attachments.begin()
        info = run.placed(self.info)
        reader, run.attaching = run.attaching, info
        below: Subscriber[Any] = guarded(subscriber, reader, run)
        for observer in run.observers:
            below = observer.arrow(info, below, reader, is_own=run.is_own(info))
        try:
            run.overrides.in_place_of(self)._attach(below, run)
        finally:
            run.attaching = reader
            run.attachments.end()

    def then(
        self,
        make: Callable[[Subscriber[Any], Run, StageInfo], RunningStage],
        info: StageInfo,
        *,
        turns: bool | None = None,
        passes: bool = False,
    ) -> Flowable[Any]:
        """This stream behind one more stage; for authors of operators.

        `make(downstream, run, info)` makes the stage for each run. `passes`: it emits the values
        that came.
        """

        def attach(downstream: Subscriber[Any], run: Run) -> None:
            info = run.placed(flowable.info)
            stage = make(downstream, run, info)
            run.add_stage(info, stage.statistics)
            self.attach(stage, run)

        flowable: Flowable[Any] = Flowable(attach, info, self, turns=turns, passes=passes)
        return flowable

    if TYPE_CHECKING:
        # Of two definitions mypy takes the first. To it what `pipe(publish())` makes is no more
        # than a stream (see `penstock.streams.rx.fluent`), whose `connect()` it must not refuse.
        def connect(  # pyright: ignore[reportRedeclaration]
            self, subscriber: EventSubscriber[T_co] | SchedulerBase | None = None
        ) -> Any: ...

    def connect(  # type: ignore[no-redef]
        self, subscriber: EventSubscriber[T_co]
    ) -> None:
        """Attach a subscriber by the rules of Reactive Streams 1.0.4.

        The subscriber receives `on_subscribe(subscription)` first, then at most as many events
        (`Event`, the value in `.value`) as it requests, then one terminal signal. It must end
        every event it receives: `finish`, `drop`, `fail` or `give_back`. What the stages opened
        (pools, files of dead letters) is closed after the terminal signal or `cancel()`, on
        the running loop. Raises TypeError if `subscriber` is None; any other error arrives by
        `on_error`.
        """
        from penstock.streams.boundary.strict_subscriber import connect

        connect(self, subscriber)

    def _subscribe_core(
        self, observer: ObserverBase[T_co], scheduler: SchedulerBase | None = None
    ) -> DisposableBase:
        from penstock.streams.boundary.consume import subscribe_observer

        return subscribe_observer(self, observer)

    def __aiter__(self) -> AsyncIterator[T_co]:
        """Iterate with back-pressure: the next value is requested when the body is done.

        An event is finished when the next one is requested. Leaving the loop returns the current
        event, and all that were in flight, to the source.
        """
        from penstock.streams.boundary.consume import iterate

        return iterate(self)

    async def to_list(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self, limit: int | None = None
    ) -> list[T_co]:
        """`await stream.to_list(limit=10)`: run the stream, and return its first values.

        With `limit` it requests that many events, and cancels the stream when their values have
        come: calls in flight are cancelled, and their events are returned to the source. A shorter
        list has all values. Without `limit` it reads to the end of the stream, and the list has no
        bound. An event is finished when its value is in the list. Raises the error of the stream,
        and BuildError for a `limit` below 1.

        Inside a pipeline `ops.to_list()` makes one list of all values.
        """
        from penstock.streams.boundary.consume import values_of
        from penstock.streams.validation import require_count

        if limit is not None:
            require_count("to_list", limit=limit)
        return await values_of(self, limit)

    # Type checkers must not take a stream for an iterable of nothing.
    if not TYPE_CHECKING:

        def __iter__(self) -> NoReturn:
            # Without this Python would use stream[0], stream[1], ... as the items, without end.
            raise WrongType(
                "a stream cannot be iterated by a plain `for` or list(): its values are still to "
                "come. Write `async for value in stream`, `await stream.to_list()`, or end it with "
                ".to(collect(into)) and run that"
            )

    def __contains__(self, value: object) -> NoReturn:
        # Python would replace the error above by its own, which does not say what to write.
        raise WrongType(
            "whether a stream contains a value is known only when it runs: write "
            "`async for found in stream.pipe(ops.contains(value))`, which gives one bool"
        )

    def to(self, *sinks: Sink[T_co]) -> Pipeline:
        """End the stream in one or more sinks: a pipeline, ready to be run many times."""
        from penstock.streams.pipeline import Pipeline

        return Pipeline(self, sinks)

    @staticmethod
    def of(observable: Observable[T], on_overflow: Overflow | None = None) -> Flowable[T]:
        """Adapt a plain Observable, which has no demand.

        `on_overflow` says what happens to values that are not requested yet: `buffer(n)`,
        `drop_oldest(n)`, `drop_newest(n)`, `latest()` or `error()` of `penstock`. Raises BuildError
        for anything else, and without a strategy.
        """
        from penstock.streams.boundary.from_observable import from_observable

        return from_observable(observable, on_overflow)

    @staticmethod
    def from_iterable(iterable: Callable[[], Iterable[T]] | Iterable[T]) -> Flowable[T]:
        """A stream of an iterable's items; nothing is read before the first request."""
        from penstock.streams.boundary.from_iterable import from_iterable

        return from_iterable(iterable)

    @staticmethod
    def from_async_iterable(
        factory: Callable[[], AsyncIterable[T]] | AsyncIterable[T],
    ) -> Flowable[T]:
        """A stream of an async iterable's items, one pulled for each unit of demand."""
        from penstock.streams.boundary.from_iterable import from_async_iterable

        return from_async_iterable(factory)

    def chain(self) -> list[Flowable[Any]]:
        """This stream and all above it, source first."""
        stages: list[Flowable[Any]] = []
        stream: Flowable[Any] | None = self
        while stream is not None:
            stages.append(stream)
            stream = stream.above
        return stages[::-1]

    def __bool__(self) -> bool:
        return True

    def __await__(self) -> Any:
        raise BuildError(
            "A Flowable cannot be awaited. Use `async for value in flowable`, or end it with "
            ".to(sink) and await pipeline.run()."
        )

    def __repr__(self) -> str:
        names = " > ".join(stage.info.name for stage in self.chain())
        return f"<Flowable {names}>"

    def _repr_svg_(self) -> str:
        """The picture of its stages, as an SVG document, which notebooks show."""
        from penstock.streams.pictures.pipeline import as_svg

        return as_svg([stage.info for stage in self.chain()], [], repr(self))


def _cannot_read_groups(info: StageInfo, above: Flowable[Any]) -> str:
    grouping = next(stage.info for stage in above.chain()[::-1] if stage.info.name == "group_by")
    refused = f"{info} works on single events, and {grouping} makes groups of them: "
    if info.placement.works:
        return refused + "insert spread() between them"
    return refused + (
        f"put spread() between them, or {info.name} before group_by or into "
        "group_by(each=lambda group: group.pipe(...), idle=...)"
    )
