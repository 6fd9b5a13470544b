"""`pipe` and the fluent methods, where those of reactivex would lose demand or types.

Reactivex's fluent methods go through `pipe`, which lifts; a few call their operator directly, and
go through `pipe` here. The types of the others are in `penstock.streams.rx.chained`.

For mypy `pipe` has one signature, in which the type of a missing operator is that of one that
changes nothing, by the defaults of the type variables. Overloads would not work: mypy infers no
type for an argument of an overloaded function that is itself generic, as operators are. For pyright
there is one for each number of operators, by which what the last one returns keeps its type, such
as that of a connectable stream; where mypy cannot know that, see `Flowable.connect`.
"""

# Mypy refuses the default of the parameters, although it fits where it is used.
# mypy: disable-error-code="assignment"

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, overload

from reactivex import Observable
from reactivex.abc import SchedulerBase, SubjectBase

from penstock.streams.errors import BuildError
from penstock.streams.rx.bounds import MOST_OPEN, PREFETCH

if TYPE_CHECKING:
    from asyncio import Future
    from datetime import timedelta

    from typing_extensions import TypeVar as TypeVarWithDefault

    from penstock.streams.failures.policy import Backoff
    from penstock.streams.flowable import Flowable
    from penstock.streams.rx.chained import Chained
    from penstock.streams.rx.combining.sharing import Connectable

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
    _Operator = Callable[[Flowable[A]], Observable[B]] | Callable[[Observable[A]], Observable[B]]

    # The last one: what ours returns is what pipe returns.
    _Last = (
        Callable[[Observable[A]], Observable[B]]
        | Callable[[Flowable[A]], S]
        | Callable[[Flowable[A]], Observable[B]]
    )

    class _Missing:
        # A class: strict pyright complains of a function where the type of the element is unknown.
        def __call__(self, stream: Observable[A], /) -> Observable[A]: ...

    _MISSING = _Missing()

else:
    Chained = Observable

__all__ = ["Fluent"]

_NO_SEED = object()

T_co = TypeVar("T_co", covariant=True)


def _through(stream: Fluent[Any], operator: str, *arguments: Any) -> Flowable[Any]:
    # Imported here: slow to import, and most pipelines need none of them.
    from reactivex import operators

    return stream.pipe(getattr(operators, operator)(*arguments))


def _by_ours(stream: Fluent[Any], operator: str, *arguments: Any, **options: Any) -> Flowable[Any]:
    """`stream` through an operator of Rx that this library has."""
    # By name, because the operators import this room.
    ours = import_module("penstock.operators.rx")
    return stream.pipe(getattr(ours, operator)(*arguments, **options))


def _itself(value: Any) -> Any:
    return value


# No stream, and of any type.
_last_of: Any = _by_ours


class Fluent(Chained[T_co]):
    """What a Flowable is read through: `pipe`, and a method for each of the stock operators."""

    _added: tuple[Any, ...] = ()
    """The streams that it is the sum of."""

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
            self,
            one: _Operator[T_co, A],
            two: _Operator[A, B],
            three: _Last[B, C, RC],
            /,
        ) -> RC: ...

        @overload
        def pipe(
            self,
            one: _Operator[T_co, A],
            two: _Last[A, B, RB],
            /,
        ) -> RB: ...

        @overload
        def pipe(
            self,
            one: _Last[T_co, A, RA],
            /,
        ) -> RA: ...

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
            from penstock.streams.rx.lift import apply

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

    # Those that end a pipe: what they return is no stream.

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
