"""Flowable: a reactivex Observable that also honours demand.

    source    --1--2--3--4--|
    request   2-----------2--
    connect   --1--2------34|

A Flowable is a description: it holds no events and starts nothing. It can be connected any
number of times; each connection is a separate run. It can be read in three ways: `connect`
(Reactive Streams: events, `request(n)`, `cancel()`), `subscribe` (plain Rx: values, unbounded
demand) and `async for` (values, one at a time, as fast as the loop's body).

Reactivex's fluent methods go through `pipe`, which lifts; a few call their operator directly, and
go through `pipe` here. `Chained` has the types of the others.

For mypy `pipe` has one signature, in which the type of a missing operator is that of one that
changes nothing, by the defaults of the type variables. Overloads would not work: mypy infers no
type for an argument of an overloaded function that is itself generic, as operators are. For pyright
there is one for each number of operators, by which what the last one returns keeps its type, such
as that of a connectable stream; where mypy cannot know that, see `Flowable.connect`.
"""

# Mypy refuses the default of the parameters, although it fits where it is used; the methods of
# `Chained` have no bodies.
# mypy: disable-error-code="assignment, empty-body, misc"

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, overload

from reactivex import Observable
from reactivex.abc import DisposableBase, ObserverBase, SchedulerBase, SubjectBase
from reactivex.disposable import Disposable

from penstock.streams.base.errors import BuildError, WrongType
from penstock.streams.base.recorded import recorded
from penstock.streams.protocol.stage import EventSubscriber, RunningStage, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx import ours
from penstock.streams.rx.bounds import MOST_OPEN, PREFETCH
from penstock.streams.stages.stream import Stream

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import AsyncIterable
    from datetime import timedelta

    from reactivex import typing as rx
    from reactivex.abc import SchedulerBase as Scheduler
    from typing_extensions import TypeVar as TypeVarWithDefault

    from penstock.streams.boundary.from_observable import Overflow
    from penstock.streams.failures.backoff import Backoff
    from penstock.streams.pipelines.pipeline import Pipeline
    from penstock.streams.rx.combining.sharing import Memory
    from penstock.streams.stages.sink_stage import Sink

    A = TypeVarWithDefault("A")
    B = TypeVarWithDefault("B", default=A)
    C = TypeVarWithDefault("C", default=B)
    D = TypeVarWithDefault("D", default=C)
    E = TypeVarWithDefault("E", default=D)
    F = TypeVarWithDefault("F", default=E)
    G = TypeVarWithDefault("G", default=F)
    H = TypeVarWithDefault("H", default=G)
    J = TypeVarWithDefault("J", default=H)

    class _Ours(Protocol):
        # No base class: its element type would be expected of the operator.
        groups: bool

    S = TypeVarWithDefault("S", bound=_Ours, default=Any)
    RA = TypeVarWithDefault("RA", bound=_Ours, default="Flowable[A]")
    RB = TypeVarWithDefault("RB", bound=_Ours, default="Flowable[B]")
    RC = TypeVarWithDefault("RC", bound=_Ours, default="Flowable[C]")
    RD = TypeVarWithDefault("RD", bound=_Ours, default="Flowable[D]")
    RE = TypeVarWithDefault("RE", bound=_Ours, default="Flowable[E]")
    RF = TypeVarWithDefault("RF", bound=_Ours, default="Flowable[F]")
    RG = TypeVarWithDefault("RG", bound=_Ours, default="Flowable[G]")
    RH = TypeVarWithDefault("RH", bound=_Ours, default="Flowable[H]")
    RJ = TypeVarWithDefault("RJ", bound=_Ours, default="Flowable[J]")

    # One of ours, or a stock one.
    _Operator = Callable[["Flowable[A]"], Observable[B]] | Callable[[Observable[A]], Observable[B]]

    # The last one: what ours returns is what pipe returns.
    _Last = (
        Callable[[Observable[A]], Observable[B]]
        | Callable[["Flowable[A]"], S]
        | Callable[["Flowable[A]"], Observable[B]]
    )

    class _Missing:
        # A class: strict pyright complains of a function where the type of the element is unknown.
        def __call__(self, stream: Observable[A], /) -> Observable[A]: ...

    _MISSING = _Missing()


__all__ = ["Chained", "Connectable", "Flowable"]

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")

_NO_SEED = object()


def _through(stream: Flowable[Any], operator: str, *arguments: Any) -> Flowable[Any]:
    # Imported here: slow to import, and most pipelines need none of them.
    from reactivex import operators

    return stream.pipe(getattr(operators, operator)(*arguments))


def _by_ours(
    stream: Flowable[Any], operator: str, *arguments: Any, **options: Any
) -> Flowable[Any]:
    """`stream` through an operator of Rx that this library has."""
    return stream.pipe(ours.find(operator)(*arguments, **options))


def _as_sink(given: Any) -> Any:
    """The sink that an observer is; anything else as it is."""
    if not issubclass(type(given), ObserverBase):
        return given
    from penstock.streams.boundary.observer_sink import ObserverSink

    return ObserverSink(given)


def _itself(value: Any) -> Any:
    return value


# No stream, and of any type.
_last_of: Any = _by_ours


class Chained(Observable[T_co]):
    """An Observable whose methods return streams."""

    def all(self, predicate: rx.Predicate[T_co]) -> Flowable[bool]: ...
    def amb(self, right_source: Observable[V]) -> Flowable[T_co | V]: ...
    def as_observable(self) -> Flowable[T_co]: ...
    def average(self, key_mapper: rx.Mapper[Any, float] | None = None) -> Flowable[float]: ...
    def buffer(self, boundaries: Observable[Any]) -> Flowable[list[T_co]]: ...
    def buffer_toggle(
        self, openings: Observable[Any], closing_mapper: Callable[[Any], Observable[Any]]
    ) -> Flowable[list[T_co]]: ...
    def buffer_when(
        self, closing_mapper: Callable[[], Observable[Any]]
    ) -> Flowable[list[T_co]]: ...
    def buffer_with_count(self, count: int, skip: int | None = None) -> Flowable[list[T_co]]: ...
    def buffer_with_time(
        self,
        timespan: rx.RelativeTime,
        timeshift: rx.RelativeTime | None = None,
        scheduler: Any = None,
    ) -> Flowable[list[T_co]]: ...
    def buffer_with_time_or_count(
        self, timespan: rx.RelativeTime, count: int, scheduler: Any = None
    ) -> Flowable[list[T_co]]: ...
    def catch(
        self,
        handler: Observable[V] | Callable[[Exception, Flowable[T_co]], Observable[V] | Future[V]],
    ) -> Flowable[T_co | V]: ...
    def concat(self, *sources: Observable[V]) -> Flowable[T_co | V]: ...
    def concat_all(self) -> Flowable[Any]: ...
    def contains(self, value: Any, comparer: rx.Comparer[Any] | None = None) -> Flowable[bool]: ...
    def count(self, predicate: rx.Predicate[T_co] | None = None) -> Flowable[int]: ...
    def debounce(
        self, duetime: rx.RelativeTime, scheduler: Scheduler | None = None
    ) -> Flowable[T_co]: ...
    def default_if_empty(self, default_value: Any = None) -> Flowable[T_co | Any]: ...
    def delay(
        self, duetime: rx.RelativeTime, scheduler: Scheduler | None = None
    ) -> Flowable[T_co]: ...
    def delay_subscription(
        self, duetime: rx.AbsoluteOrRelativeTime, scheduler: Scheduler | None = None
    ) -> Flowable[T_co]: ...
    def delay_with_mapper(
        self,
        subscription_delay: Observable[Any] | rx.Mapper[Any, Observable[Any]] | None = None,
        delay_duration_mapper: rx.Mapper[T_co, Observable[Any]] | None = None,
    ) -> Flowable[T_co]: ...
    def distinct_until_changed(
        self,
        key_mapper: rx.Mapper[Any, Any] | None = None,
        comparer: rx.Comparer[Any] | None = None,
    ) -> Flowable[T_co]: ...
    def do(
        self,
        on_next: rx.OnNext[T_co] | None = None,
        on_error: rx.OnError | None = None,
        on_completed: rx.OnCompleted | None = None,
    ) -> Flowable[T_co]: ...
    def do_action(
        self,
        on_next: rx.OnNext[T_co] | None = None,
        on_error: rx.OnError | None = None,
        on_completed: rx.OnCompleted | None = None,
    ) -> Flowable[T_co]: ...
    def do_while(self, condition: rx.Predicate[Observable[T_co]]) -> Flowable[T_co]: ...
    def element_at(self, index: int) -> Flowable[T_co]: ...
    def element_at_or_default(self, index: int, default_value: Any = None) -> Flowable[T_co]: ...
    def filter(self, predicate: rx.Predicate[T_co]) -> Flowable[T_co]: ...
    def filter_indexed(self, predicate_indexed: rx.PredicateIndexed[Any]) -> Flowable[T_co]: ...
    def finally_action(self, action: rx.Action) -> Flowable[T_co]: ...
    def find(
        self, predicate: Callable[[T_co, int, Observable[T_co]], bool]
    ) -> Flowable[T_co | None]: ...
    def find_index(
        self, predicate: Callable[[T_co, int, Observable[T_co]], bool]
    ) -> Flowable[int | None]: ...
    def first(self, predicate: rx.Predicate[Any] | None = None) -> Flowable[T_co]: ...
    def first_or_default(
        self, predicate: rx.Predicate[T_co] | None = None, default_value: Any = None
    ) -> Flowable[T_co]: ...
    def flat_map_indexed(
        self, mapper_indexed: rx.MapperIndexed[T_co, Observable[V]] | None = None
    ) -> Flowable[V]: ...
    def flat_map_latest(
        self, mapper: Callable[[T_co], Observable[V] | Future[V]]
    ) -> Flowable[V]: ...
    def fork_join(self, *others: Observable[Any]) -> Flowable[tuple[Any, ...]]: ...
    def ignore_elements(self) -> Flowable[T_co]: ...
    def is_empty(self) -> Flowable[bool]: ...
    def last(self, predicate: rx.Predicate[Any] | None = None) -> Flowable[T_co]: ...
    def last_or_default(
        self, default_value: Any = None, predicate: rx.Predicate[T_co] | None = None
    ) -> Flowable[Any]: ...
    def map(self, mapper: rx.Mapper[T_co, V]) -> Flowable[V]: ...
    def map_indexed(
        self, mapper_indexed: rx.MapperIndexed[T_co, V] | None = None
    ) -> Flowable[V]: ...
    def materialize(self) -> Flowable[Any]: ...
    def max(self, comparer: rx.Comparer[T_co] | None = None) -> Flowable[T_co]: ...
    def max_by(
        self, key_mapper: rx.Mapper[T_co, U], comparer: rx.Comparer[U] | None = None
    ) -> Flowable[list[T_co]]: ...
    def min(self, comparer: rx.Comparer[T_co] | None = None) -> Flowable[T_co]: ...
    def min_by(
        self, key_mapper: rx.Mapper[T_co, U], comparer: rx.Comparer[U] | None = None
    ) -> Flowable[list[T_co]]: ...
    def on_error_resume_next(
        self,
        second: Observable[V] | Callable[[BaseException | None], Observable[V] | Future[V]],
    ) -> Flowable[T_co | V]: ...
    def pairwise(self) -> Flowable[tuple[T_co, T_co]]: ...
    def pluck_attr(self, attr: str) -> Flowable[Any]: ...
    def reduce(self, accumulator: rx.Accumulator[U, T_co], seed: Any = ...) -> Flowable[Any]: ...
    def repeat(self, repeat_count: int | None = None) -> Flowable[T_co]: ...
    def sample(
        self, sampler: rx.RelativeTime | Observable[Any], scheduler: Scheduler | None = None
    ) -> Flowable[T_co]: ...
    def sequence_equal(
        self, second: Observable[T_co] | Iterable[T_co], comparer: rx.Comparer[T_co] | None = None
    ) -> Flowable[bool]: ...
    def single(self, predicate: rx.Predicate[T_co] | None = None) -> Flowable[T_co]: ...
    def single_or_default(
        self, predicate: rx.Predicate[T_co] | None = None, default_value: Any = None
    ) -> Flowable[T_co]: ...
    def single_or_default_async(
        self, has_default: bool = False, default_value: Any = None
    ) -> Flowable[T_co]: ...
    def skip(self, count: int) -> Flowable[T_co]: ...
    def skip_last(self, count: int) -> Flowable[T_co]: ...
    def skip_last_with_time(
        self, duration: rx.RelativeTime, scheduler: Scheduler | None = None
    ) -> Flowable[T_co]: ...
    def skip_until(self, other: Observable[Any]) -> Flowable[T_co]: ...
    def skip_until_with_time(
        self, start_time: rx.AbsoluteOrRelativeTime, scheduler: Scheduler | None = None
    ) -> Flowable[T_co]: ...
    def skip_while(self, predicate: rx.Predicate[Any]) -> Flowable[T_co]: ...
    def skip_while_indexed(self, predicate_indexed: rx.PredicateIndexed[Any]) -> Flowable[T_co]: ...
    def skip_with_time(
        self, duration: rx.RelativeTime, scheduler: Scheduler | None = None
    ) -> Flowable[T_co]: ...
    def slice(
        self, start: int | None = None, stop: int | None = None, step: int | None = None
    ) -> Flowable[T_co]: ...
    def some(self, predicate: rx.Predicate[T_co] | None = None) -> Flowable[bool]: ...
    def start_with(self, *args: V) -> Flowable[T_co | V]: ...
    def starmap(self, mapper: Any = None) -> Flowable[Any]: ...
    def starmap_indexed(self, mapper_indexed: Any = None) -> Flowable[Any]: ...
    def take(self, count: int) -> Flowable[T_co]: ...
    def take_last(self, count: int) -> Flowable[T_co]: ...
    def take_last_buffer(self, count: int) -> Flowable[list[T_co]]: ...
    def take_last_with_time(
        self, duration: rx.RelativeTime, scheduler: Scheduler | None = None
    ) -> Flowable[T_co]: ...
    def take_until(self, other: Observable[Any]) -> Flowable[T_co]: ...
    def take_until_with_time(
        self, end_time: rx.AbsoluteOrRelativeTime, scheduler: Scheduler | None = None
    ) -> Flowable[T_co]: ...
    def take_while(
        self, predicate: rx.Predicate[Any], inclusive: bool = False
    ) -> Flowable[T_co]: ...
    def take_while_indexed(
        self, predicate_indexed: rx.PredicateIndexed[Any], inclusive: bool = False
    ) -> Flowable[T_co]: ...
    def take_with_time(
        self, duration: rx.RelativeTime, scheduler: Scheduler | None = None
    ) -> Flowable[T_co]: ...
    def throttle_first(
        self, window_duration: rx.RelativeTime, scheduler: Scheduler | None = None
    ) -> Flowable[T_co]: ...
    def throttle_with_mapper(
        self, throttle_duration_mapper: Callable[[Any], Observable[Any]]
    ) -> Flowable[T_co]: ...
    def throttle_with_timeout(
        self, duetime: rx.RelativeTime, scheduler: Scheduler | None = None
    ) -> Flowable[T_co]: ...
    def time_interval(self, scheduler: Scheduler | None = None) -> Flowable[Any]: ...
    def timeout(
        self,
        duetime: rx.AbsoluteOrRelativeTime,
        other: Observable[T_co] | None = None,
        scheduler: Scheduler | None = None,
    ) -> Flowable[T_co]: ...
    def timeout_with_mapper(
        self,
        first_timeout: Observable[Any] | None = None,
        timeout_duration_mapper: rx.Mapper[T_co, Observable[Any]] | None = None,
        other: Observable[T_co] | None = None,
    ) -> Flowable[T_co]: ...
    def timestamp(self, scheduler: Scheduler | None = None) -> Flowable[Any]: ...
    def to_dict(
        self, key_mapper: rx.Mapper[T_co, Any], element_mapper: rx.Mapper[T_co, Any] | None = None
    ) -> Flowable[dict[Any, Any]]: ...
    def to_iterable(self) -> Flowable[list[T_co]]: ...
    def to_marbles(
        self, timespan: rx.RelativeTime = 0.1, scheduler: Scheduler | None = None
    ) -> Flowable[str]: ...
    def to_set(self) -> Flowable[set[T_co]]: ...
    def while_do(self, condition: rx.Predicate[Observable[T_co]]) -> Flowable[T_co]: ...
    def window(self, boundaries: Observable[Any]) -> Flowable[Observable[T_co]]: ...
    def window_toggle(
        self, openings: Observable[Any], closing_mapper: Callable[[Any], Observable[Any]]
    ) -> Flowable[Observable[T_co]]: ...
    def window_when(
        self, closing_mapper: Callable[[], Observable[Any]]
    ) -> Flowable[Observable[T_co]]: ...
    def window_with_count(
        self, count: int, skip: int | None = None
    ) -> Flowable[Observable[T_co]]: ...
    def window_with_time(
        self,
        timespan: rx.RelativeTime,
        timeshift: rx.RelativeTime | None = None,
        scheduler: Any = None,
    ) -> Flowable[Observable[T_co]]: ...
    def window_with_time_or_count(
        self, timespan: rx.RelativeTime, count: int, scheduler: Any = None
    ) -> Flowable[Observable[T_co]]: ...
    def zip_latest(self, *sources: Observable[Any]) -> Flowable[tuple[Any, ...]]: ...
    def zip_with_iterable(self, second: Iterable[V]) -> Flowable[tuple[T_co, V]]: ...


if TYPE_CHECKING:
    _Methods = Chained
else:
    _Methods = Observable


class Flowable(Stream[T_co], _Methods[T_co]):
    """A stream of `T_co` with demand: its readers request as many events as they can take.

    `attach(subscriber, run)` connects a stage to the stages above it; `info` describes this stage,
    and `above` is the stream it reads from (None for a source).
    """

    def __init__(
        self,
        attach: Callable[[Subscriber[Any], Run], None],
        info: StageInfo,
        above: Stream[Any] | None = None,
        *,
        turns: bool | None = None,
        spreads: bool = False,
        values: Any = None,
        passes: bool = False,
    ) -> None:
        """See `Stream`."""
        Observable.__init__(self)  # pyright: ignore[reportUnknownMemberType]
        super().__init__(
            attach, info, above, turns=turns, spreads=spreads, values=values, passes=passes
        )

    def below(
        self,
        attach: Callable[[Subscriber[Any], Run], None],
        info: StageInfo,
        *,
        turns: bool | None = None,
        passes: bool = False,
    ) -> Flowable[Any]:
        """A stream that reads this one."""
        return Flowable(attach, info, self, turns=turns, passes=passes)

    if TYPE_CHECKING:

        def then(
            self,
            make: Callable[[Subscriber[Any], Run, StageInfo], RunningStage],
            info: StageInfo,
            *,
            turns: bool | None = None,
            passes: bool = False,
        ) -> Flowable[Any]: ...

    @staticmethod
    def like(stream: Stream[T]) -> Flowable[T]:
        """The source `stream`, with the methods of a Flowable."""
        return Flowable(stream._attach, stream.info, values=stream.values)

    if TYPE_CHECKING:
        # Of two definitions mypy takes the first. To it what `pipe(publish())` makes is no more
        # than a stream (see the text of this module), whose `connect()` it must not refuse.
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
        from penstock.streams.base.validation import require_count
        from penstock.streams.boundary.consume import values_of

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

    def to(self, *sinks: Sink[T_co] | ObserverBase[T_co]) -> Pipeline:
        """End the stream in one or more sinks: a pipeline, ready to be run many times.

        An observer of reactivex, such as a subject, is a sink too: it gets every value, the end and
        the error. It asks for nothing, so the stream goes as fast as `on_next` returns.
        """
        from penstock.streams.pipelines.pipeline import Pipeline

        return Pipeline(self, tuple(map(_as_sink, sinks)))

    @staticmethod
    def of(observable: Observable[T], on_overflow: Overflow | None = None) -> Flowable[T]:
        """Adapt a plain Observable, which has no demand.

        `on_overflow` says what happens to values that are not requested yet: `buffer(n)`,
        `drop_oldest(n)`, `drop_newest(n)`, `latest()` or `error()` of `penstock`. Raises BuildError
        for anything else, and without a strategy.
        """
        from penstock.streams.boundary.from_observable import from_observable

        if isinstance(observable, Flowable):
            return observable
        return Flowable.like(from_observable(observable, on_overflow))

    @staticmethod
    @recorded
    def from_iterable(iterable: Callable[[], Iterable[T]] | Iterable[T]) -> Flowable[T]:
        """A stream of an iterable's items; nothing is read before the first request."""
        from penstock.streams.boundary.from_iterable import iterated

        return Flowable.like(iterated(iterable))

    @staticmethod
    @recorded
    def from_async_iterable(
        factory: Callable[[], AsyncIterable[T]] | AsyncIterable[T],
    ) -> Flowable[T]:
        """A stream of an async iterable's items, one pulled for each unit of demand."""
        from penstock.streams.boundary.from_iterable import iterated_async

        return Flowable.like(iterated_async(factory))

    def __bool__(self) -> bool:
        return True

    def __await__(self) -> Any:
        raise BuildError(
            "A Flowable cannot be awaited. Use `async for value in flowable`, or end it with "
            ".to(sink) and await pipeline.run()."
        )

    def _repr_svg_(self) -> str:
        """The picture of its stages, as an SVG document, which notebooks show."""
        from penstock.streams.pictures.pipeline import as_svg

        return as_svg([stage.info for stage in self.chain()], [], repr(self))

    _added: tuple[Any, ...] = ()
    """The streams that were added to make it."""

    # The operators may read more, or return more, than those of the `pipe` this overrides.

    if TYPE_CHECKING:

        def pipe(  # type: ignore[override]  # pyright: ignore[reportRedeclaration]
            self,
            one: _Operator[T_co, A] = _MISSING,
            two: _Operator[A, B] = _MISSING,
            three: _Operator[B, C] = _MISSING,
            four: _Operator[C, D] = _MISSING,
            five: _Operator[D, E] = _MISSING,
            six: _Operator[E, F] = _MISSING,
            seven: _Operator[F, G] = _MISSING,
            eight: _Operator[G, H] = _MISSING,
            nine: _Operator[H, J] = _MISSING,
            /,
        ) -> Flowable[J]: ...

        # Of two definitions mypy takes the first, pyright the last. The longest is the first, for
        # the operators of a list, of which there may be any number.
        @overload  # type: ignore[no-redef, no-overload-impl, override]
        def pipe(  # noqa: F811
            self,
            one: _Operator[T_co, A],
            two: _Operator[A, B],
            three: _Operator[B, C],
            four: _Operator[C, D],
            five: _Operator[D, E],
            six: _Operator[E, F],
            seven: _Operator[F, G],
            eight: _Operator[G, H],
            nine: _Last[H, J, RJ],
            /,
        ) -> RJ: ...

        @overload
        def pipe(
            self,
            one: _Operator[T_co, A],
            two: _Operator[A, B],
            three: _Operator[B, C],
            four: _Operator[C, D],
            five: _Operator[D, E],
            six: _Operator[E, F],
            seven: _Operator[F, G],
            eight: _Last[G, H, RH],
            /,
        ) -> RH: ...

        @overload
        def pipe(
            self,
            one: _Operator[T_co, A],
            two: _Operator[A, B],
            three: _Operator[B, C],
            four: _Operator[C, D],
            five: _Operator[D, E],
            six: _Operator[E, F],
            seven: _Last[F, G, RG],
            /,
        ) -> RG: ...

        @overload
        def pipe(
            self,
            one: _Operator[T_co, A],
            two: _Operator[A, B],
            three: _Operator[B, C],
            four: _Operator[C, D],
            five: _Operator[D, E],
            six: _Last[E, F, RF],
            /,
        ) -> RF: ...

        @overload
        def pipe(
            self,
            one: _Operator[T_co, A],
            two: _Operator[A, B],
            three: _Operator[B, C],
            four: _Operator[C, D],
            five: _Last[D, E, RE],
            /,
        ) -> RE: ...

        @overload
        def pipe(
            self,
            one: _Operator[T_co, A],
            two: _Operator[A, B],
            three: _Operator[B, C],
            four: _Last[C, D, RD],
            /,
        ) -> RD: ...

        @overload
        def pipe(
            self, one: _Operator[T_co, A], two: _Operator[A, B], three: _Last[B, C, RC], /
        ) -> RC: ...

        @overload
        def pipe(self, one: _Operator[T_co, A], two: _Last[A, B, RB], /) -> RB: ...

        @overload
        def pipe(self, one: _Last[T_co, A, RA], /) -> RA: ...

        @overload
        def pipe(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, /
        ) -> Flowable[T_co]: ...

    else:

        def pipe(self, *operators: Callable[[Any], Any]) -> Any:
            """Read this stream through operators, from left to right.

            Takes this library's operators and any stock `reactivex` operator, which is lifted
            so that demand is kept through it (see `penstock.lift`). Raises BuildError for one
            that cannot be bounded, or that is in an impossible place.
            """
            from penstock.streams.rx.apply import apply

            return apply(operators, self)

    # It has two types.

    @overload
    def scan(self, accumulator: Callable[[T_co, T_co], T_co]) -> Flowable[T_co]: ...

    @overload
    def scan(self, accumulator: Callable[[A, T_co], A], seed: A) -> Flowable[A]: ...

    def scan(self, accumulator: Callable[[Any, Any], Any], seed: Any = _NO_SEED) -> Flowable[Any]:
        """See `reactivex.operators.scan`."""
        seeds = () if seed is _NO_SEED else (seed,)
        return _through(self, "scan", accumulator, *seeds)

    # Those that reactivex does not send through `pipe`.

    def sum(self, key_mapper: Callable[[T_co], float] | None = None) -> Flowable[float]:
        """See `reactivex.operators.sum`."""
        return _through(self, "sum", key_mapper)

    def pluck(self, key: str) -> Flowable[Any]:
        """See `reactivex.operators.pluck`."""
        return _through(self, "pluck", key)

    def dematerialize(self) -> Flowable[Any]:
        """See `reactivex.operators.dematerialize`."""
        return _through(self, "dematerialize")

    def exhaust_map(self, project: Callable[[T_co], Observable[A] | Future[A]]) -> Flowable[A]:
        """See `penstock.ops.exhaust_map`."""
        return _by_ours(self, "exhaust_map", project)

    def exclusive(self) -> Flowable[Any]:
        """See `penstock.ops.exclusive`."""
        return _by_ours(self, "exclusive")

    def switch_latest(self) -> Flowable[Any]:
        """See `penstock.ops.switch_latest`."""
        return _by_ours(self, "switch_latest")

    def ref_count(self) -> Flowable[T_co]:
        """See `penstock.ops.ref_count`."""
        return _by_ours(self, "ref_count")

    # Those that end a pipe: what they return is not a stream.

    def partition(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self, predicate: Callable[[T_co], bool], *, prefetch: int = PREFETCH
    ) -> list[Flowable[T_co]]:
        """See `penstock.ops.partition`."""
        both: list[Flowable[T_co]] = _last_of(self, "partition", predicate, prefetch=prefetch)
        return both

    def partition_indexed(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self, predicate_indexed: Callable[[T_co, int], bool], *, prefetch: int = PREFETCH
    ) -> list[Flowable[T_co]]:
        """See `penstock.ops.partition_indexed`."""
        both: list[Flowable[T_co]] = _last_of(
            self, "partition_indexed", predicate_indexed, prefetch=prefetch
        )
        return both

    def to_future(
        self, future_ctor: Any = None, scheduler: SchedulerBase | None = None
    ) -> Future[T_co]:
        """See `penstock.ops.to_future`."""
        future: Future[T_co] = _last_of(self, "to_future", future_ctor, scheduler)
        return future

    # Those that have options of this library.

    @overload
    def merge(self, *sources: Observable[A], prefetch: int = ...) -> Flowable[T_co | A]: ...

    @overload
    def merge(
        self, *sources: Observable[Any], max_concurrent: int | None = ...
    ) -> Flowable[Any]: ...

    def merge(
        self,
        *sources: Observable[Any],
        max_concurrent: int | None = None,
        prefetch: int = PREFETCH,
    ) -> Flowable[Any]:
        """See `penstock.ops.merge`."""
        return _by_ours(self, "merge", *sources, max_concurrent=max_concurrent, prefetch=prefetch)

    @overload
    def zip(self, a: Observable[A], /, *, prefetch: int = ...) -> Flowable[tuple[T_co, A]]: ...

    @overload
    def zip(
        self, a: Observable[A], b: Observable[B], /, *, prefetch: int = ...
    ) -> Flowable[tuple[T_co, A, B]]: ...

    @overload
    def zip(
        self, a: Observable[A], b: Observable[B], c: Observable[C], /, *, prefetch: int = ...
    ) -> Flowable[tuple[T_co, A, B, C]]: ...

    @overload
    def zip(self, *args: Observable[Any], prefetch: int = ...) -> Flowable[tuple[Any, ...]]: ...

    def zip(self, *args: Observable[Any], prefetch: int = PREFETCH) -> Flowable[Any]:
        """See `penstock.ops.zip`."""
        return _by_ours(self, "zip", *args, prefetch=prefetch)

    @overload
    def combine_latest(
        self, a: Observable[A], /, *, prefetch: int = ...
    ) -> Flowable[tuple[T_co, A]]: ...

    @overload
    def combine_latest(
        self, a: Observable[A], b: Observable[B], /, *, prefetch: int = ...
    ) -> Flowable[tuple[T_co, A, B]]: ...

    @overload
    def combine_latest(
        self, a: Observable[A], b: Observable[B], c: Observable[C], /, *, prefetch: int = ...
    ) -> Flowable[tuple[T_co, A, B, C]]: ...

    @overload
    def combine_latest(
        self, *others: Observable[Any], prefetch: int = ...
    ) -> Flowable[tuple[Any, ...]]: ...

    def combine_latest(self, *others: Observable[Any], prefetch: int = PREFETCH) -> Flowable[Any]:
        """See `penstock.ops.combine_latest`."""
        return _by_ours(self, "combine_latest", *others, prefetch=prefetch)

    @overload
    def with_latest_from(self, a: Observable[A], /) -> Flowable[tuple[T_co, A]]: ...

    @overload
    def with_latest_from(
        self, a: Observable[A], b: Observable[B], /
    ) -> Flowable[tuple[T_co, A, B]]: ...

    @overload
    def with_latest_from(
        self, a: Observable[A], b: Observable[B], c: Observable[C], /
    ) -> Flowable[tuple[T_co, A, B, C]]: ...

    @overload
    def with_latest_from(self, *sources: Observable[Any]) -> Flowable[tuple[Any, ...]]: ...

    def with_latest_from(self, *sources: Observable[Any]) -> Flowable[Any]:
        """See `penstock.ops.with_latest_from`."""
        return _by_ours(self, "with_latest_from", *sources)

    @overload
    def flat_map(
        self, mapper: Callable[[T_co], Observable[A] | Future[A]], max_concurrent: int = ...
    ) -> Flowable[A]: ...

    @overload
    def flat_map(
        self, mapper: Callable[[T_co], Iterable[A]], max_concurrent: int = ...
    ) -> Flowable[A]: ...

    @overload
    def flat_map(self, mapper: None = None, max_concurrent: int = ...) -> Flowable[object]: ...

    def flat_map(  # pyright: ignore[reportIncompatibleMethodOverride] - takes iterables too
        self, mapper: Any = None, max_concurrent: int = MOST_OPEN
    ) -> Flowable[Any]:
        """See `penstock.ops.flat_map`; without a `mapper` the values are streams."""
        return _by_ours(self, "flat_map", mapper or _itself, max_concurrent)

    @overload
    def concat_map(self, project: Callable[[T_co], Observable[A] | Future[A]]) -> Flowable[A]: ...

    @overload
    def concat_map(self, project: Callable[[T_co], Iterable[A]]) -> Flowable[A]: ...

    def concat_map(  # pyright: ignore[reportIncompatibleMethodOverride] - takes iterables too
        self, project: Any
    ) -> Flowable[Any]:
        """See `penstock.ops.concat_map`."""
        return _by_ours(self, "concat_map", project)

    @overload
    def switch_map(self, project: Callable[[T_co], Observable[A] | Future[A]]) -> Flowable[A]: ...

    @overload
    def switch_map(self, project: None = None) -> Flowable[Any]: ...

    def switch_map(self, project: Any = None) -> Flowable[Any]:
        """See `penstock.ops.switch_map`."""
        return _by_ours(self, "switch_map", project)

    @overload
    def switch_map_indexed(
        self, project: Callable[[T_co, int], Observable[A] | Future[A]]
    ) -> Flowable[A]: ...

    @overload
    def switch_map_indexed(
        self, *, mapper_indexed: Callable[[T_co, int], Observable[A] | Future[A]]
    ) -> Flowable[A]: ...

    @overload
    def switch_map_indexed(self, project: None = None) -> Flowable[Any]: ...

    def switch_map_indexed(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, project: Any = None, *, mapper_indexed: Any = None
    ) -> Flowable[Any]:
        """See `penstock.ops.switch_map_indexed`; `mapper_indexed` is reactivex's name."""
        chosen = mapper_indexed if project is None else project
        return _by_ours(self, "switch_map_indexed", chosen)

    def merge_all(self, max_concurrent: int = MOST_OPEN) -> Flowable[Any]:
        """See `penstock.ops.merge_all`."""
        return _by_ours(self, "merge_all", max_concurrent)

    def retry(
        self, retry_count: int | None = None, backoff: Backoff | None = None
    ) -> Flowable[T_co]:
        """See `penstock.ops.retry`."""
        return _by_ours(self, "retry", retry_count, backoff)

    def share(self, *, prefetch: int = PREFETCH) -> Flowable[T_co]:
        """See `penstock.ops.share`."""
        return _by_ours(self, "share", prefetch=prefetch)

    @overload  # type: ignore[override]
    def publish(self, prefetch: int, /) -> Connectable[T_co]: ...

    @overload
    def publish(self, mapper: None = None, *, prefetch: int = ...) -> Connectable[T_co]: ...

    @overload
    def publish(
        self, mapper: Callable[[Flowable[T_co]], Observable[A]], *, prefetch: int = ...
    ) -> Flowable[A]: ...

    def publish(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, mapper: Any = None, *, prefetch: int = PREFETCH
    ) -> Any:
        """See `penstock.ops.publish`."""
        return _by_ours(self, "publish", mapper, prefetch=prefetch)

    @overload  # type: ignore[override]
    def publish_value(
        self, initial_value: Any, mapper: None = None, *, prefetch: int = ...
    ) -> Connectable[T_co]: ...

    @overload
    def publish_value(
        self,
        initial_value: Any,
        mapper: Callable[[Flowable[T_co]], Observable[A]],
        *,
        prefetch: int = ...,
    ) -> Flowable[A]: ...

    def publish_value(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, initial_value: Any, mapper: Any = None, *, prefetch: int = PREFETCH
    ) -> Any:
        """See `penstock.ops.publish_value`."""
        return _by_ours(self, "publish_value", initial_value, mapper, prefetch=prefetch)

    @overload  # type: ignore[override]
    def replay(
        self,
        buffer_size: int | None = None,
        window: float | timedelta | None = None,
        *,
        mapper: None = None,
        scheduler: SchedulerBase | None = None,
        prefetch: int = ...,
    ) -> Connectable[T_co]: ...

    @overload
    def replay(
        self,
        buffer_size: int | None = None,
        window: float | timedelta | None = None,
        *,
        mapper: Callable[[Flowable[T_co]], Observable[A]],
        scheduler: SchedulerBase | None = None,
        prefetch: int = ...,
    ) -> Flowable[A]: ...

    def replay(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        buffer_size: int | None = None,
        window: float | timedelta | None = None,
        *,
        mapper: Any = None,
        scheduler: SchedulerBase | None = None,
        prefetch: int = PREFETCH,
    ) -> Any:
        """See `penstock.ops.replay`."""
        options: dict[str, Any] = {"mapper": mapper, "scheduler": scheduler, "prefetch": prefetch}
        return _by_ours(self, "replay", buffer_size, window, **options)

    @overload  # type: ignore[override]
    def multicast(self, subject: SubjectBase[Any], *, prefetch: int = ...) -> Connectable[T_co]: ...

    @overload
    def multicast(
        self,
        *,
        subject_factory: Callable[[SchedulerBase | None], SubjectBase[Any]],
        mapper: Callable[[Flowable[T_co]], Observable[A]],
        prefetch: int = ...,
    ) -> Flowable[A]: ...

    def multicast(  # pyright: ignore[reportIncompatibleMethodOverride] - without one it is refused
        self,
        subject: SubjectBase[Any] | None = None,
        *,
        subject_factory: Any = None,
        mapper: Any = None,
        prefetch: int = PREFETCH,
    ) -> Any:
        """See `penstock.ops.multicast`."""
        options: dict[str, Any] = {"mapper": mapper, "prefetch": prefetch}
        return _by_ours(self, "multicast", subject, subject_factory=subject_factory, **options)

    def __getitem__(self, key: slice | int) -> Flowable[T_co]:
        if isinstance(key, slice):
            return _through(self, "slice", key.start, key.stop, key.step)
        return _through(self, "slice", key, key + 1, 1)

    def __add__(self, other: Observable[A]) -> Flowable[T_co | A]:
        # One stage for all: streams that are read inside each other are calls inside each other,
        # and of those Python has a limit.
        first, *others = self._added or (self,)
        stream = _through(first, "concat", *others, other)
        stream._added = (first, *others, other)
        return stream

    __iadd__ = __add__

    def run(self, scheduler: SchedulerBase | None = None) -> NoReturn:
        """Refused: it would block the loop and start a thread."""
        raise BuildError(
            "run() of a stream waits on a thread of its own: use `async for value in flowable`, "
            "or end it with .to(sink) and `run(pipeline)`"
        )


class Connectable(Flowable[T]):
    """A stream whose readers share one reading of its source, which begins with `connect()`.

    Each event goes to every reader, and is finished when all have finished it. The source is asked
    for what the fastest reader requests, as long as no more than `prefetch` events wait for the
    slowest; a reader that leaves no longer counts. Without readers the events are dropped. With a
    `memory`, readers that come later get its values first; these acknowledge nothing.

    Where a pipeline reads it, the source is read as a part of the running of that pipeline, of the
    first one if there are several: its events count there once, however many readers there are,
    and a pause or a drain of that pipeline is one of the source. To each other pipeline it is a
    source, whose events count once in it too. When the first one ends before the source, the source
    is read on in a run of its own for the others; when it ends with the source, it waits up to
    its drain deadline until they have finished the events. A source that is connected before any
    pipeline reads it, or read by none, has a run of its own from the beginning.
    """

    def __init__(
        self,
        source: Flowable[T],
        info: StageInfo,
        prefetch: int,
        memory: Memory | None = None,
        subject: SubjectBase[Any] | None = None,
    ) -> None:
        if source.turns:
            raise BuildError(
                f"{info.name} after spread() would keep the groups' turns: put it after the stage "
                "that ends the turns (adaptive_flat_map or batch), or before group_by"
            )
        super().__init__(self._join, info._replace(shared=object()), source)
        from penstock.streams.rx.combining.sharing import Hub

        self.hub = Hub(source, self.info, prefetch, memory, subject)

    def _join(self, downstream: Subscriber[Any], run: Run) -> None:
        self.hub.join(downstream, run, keeps=False)

    def connect(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, subscriber: EventSubscriber[T] | SchedulerBase | None = None
    ) -> DisposableBase:
        """Without a subscriber: read the source for all readers, until it ends or the result is
        disposed of; nothing if that is so already. A scheduler is ignored.

        With a subscriber, attach it, as `Flowable.connect` does.
        """
        if subscriber is None or isinstance(subscriber, SchedulerBase):
            return self.hub.begin()
        super().connect(subscriber)
        return Disposable()

    def auto_connect(self, subscriber_count: int = 1) -> Flowable[T]:
        """The same stream, whose source is read from its n-th reader on, and to its end."""
        if subscriber_count == 0:
            self.hub.begin()

        def join(downstream: Subscriber[Any], run: Run) -> None:
            self.hub.join(downstream, run, keeps=False)
            if self.hub.joined == subscriber_count:
                run.attachments.then(self.hub.begin)

        return self.joined_by(join)

    def joined_by(self, join: Callable[[Subscriber[Any], Run], None]) -> Flowable[T]:
        """The same stage, whose readers join otherwise."""
        flowable: Flowable[T] = Flowable(join, self.info, self.above)
        flowable.info = self.info
        return flowable
