"""`pipe` and the fluent methods, where those of reactivex would lose demand or types.

Reactivex's fluent methods go through `pipe`, which lifts; a few call their operator directly, and
go through `pipe` here. The most common ones get types that say `Flowable`.

The type checkers infer a lambda's types in `pipe` in different ways. Mypy gives up on any argument
of an overloaded function that is generic itself, as operators are; it gets one signature whose
missing operators change nothing. Pyright would take a missing operator's type from its default; it
gets overloads, where each operator may read a Flowable (one of ours) or any Observable (a stock
one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from reactivex import Observable
from reactivex.abc import SchedulerBase

from penstock.streams.errors import BuildError

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from penstock.streams.flowable import Flowable

    # An operator that is missing leaves the type as it is.
    A = TypeVarWithDefault("A")
    B = TypeVarWithDefault("B", default=A)
    C = TypeVarWithDefault("C", default=B)
    D = TypeVarWithDefault("D", default=C)
    E = TypeVarWithDefault("E", default=D)
    F = TypeVarWithDefault("F", default=E)
    G = TypeVarWithDefault("G", default=F)
    H = TypeVarWithDefault("H", default=G)
    J = TypeVarWithDefault("J", default=H)

    # One of ours, or a stock one.
    _Operator = Callable[[Flowable[A]], Observable[B]] | Callable[[Observable[A]], Observable[B]]

__all__ = ["Fluent"]

# Mypy considers this name true, whatever it is set to.
MYPY = False

_ABSENT: Any = None
_NO_SEED = object()

T_co = TypeVar("T_co", covariant=True)


class Fluent(Observable[T_co]):
    """What a Flowable is read through: `pipe`, and a method for each of the stock operators."""

    # The operators may read more, or return more, than those of the `pipe` this overrides.

    if MYPY:

        def pipe(  # type: ignore[override]
            self,
            one: Callable[[Flowable[T_co]], Observable[A]],
            two: Callable[[Flowable[A]], Observable[B]] = _ABSENT,
            three: Callable[[Flowable[B]], Observable[C]] = _ABSENT,
            four: Callable[[Flowable[C]], Observable[D]] = _ABSENT,
            five: Callable[[Flowable[D]], Observable[E]] = _ABSENT,
            six: Callable[[Flowable[E]], Observable[F]] = _ABSENT,
            seven: Callable[[Flowable[F]], Observable[G]] = _ABSENT,
            eight: Callable[[Flowable[G]], Observable[H]] = _ABSENT,
            nine: Callable[[Flowable[H]], Observable[J]] = _ABSENT,
            /,
        ) -> Flowable[J]: ...

    else:

        @overload
        def pipe(self) -> Flowable[T_co]: ...

        @overload
        def pipe(self, one: _Operator[T_co, A], /) -> Flowable[A]: ...

        @overload
        def pipe(self, one: _Operator[T_co, A], two: _Operator[A, B], /) -> Flowable[B]: ...

        @overload
        def pipe(
            self, one: _Operator[T_co, A], two: _Operator[A, B], three: _Operator[B, C], /
        ) -> Flowable[C]: ...

        @overload
        def pipe(
            self,
            one: _Operator[T_co, A],
            two: _Operator[A, B],
            three: _Operator[B, C],
            four: _Operator[C, D],
            /,
        ) -> Flowable[D]: ...

        @overload
        def pipe(
            self,
            one: _Operator[T_co, A],
            two: _Operator[A, B],
            three: _Operator[B, C],
            four: _Operator[C, D],
            five: _Operator[D, E],
            /,
        ) -> Flowable[E]: ...

        @overload
        def pipe(
            self,
            one: _Operator[T_co, A],
            two: _Operator[A, B],
            three: _Operator[B, C],
            four: _Operator[C, D],
            five: _Operator[D, E],
            six: _Operator[E, F],
            /,
        ) -> Flowable[F]: ...

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
            /,
        ) -> Flowable[G]: ...

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
            eight: _Operator[G, H],
            /,
        ) -> Flowable[H]: ...

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
            eight: _Operator[G, H],
            nine: _Operator[H, J],
            /,
        ) -> Flowable[J]: ...

        def pipe(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, *operators: Callable[[Any], Any]
        ) -> Any:
            """Read this stream through operators, from left to right.

            Takes this library's operators and any stock `reactivex` operator, which is lifted
            so that demand is kept through it (see `penstock.lift`). Raises BuildError for one
            that cannot be bounded, or that is in an impossible place.
            """
            from penstock.streams.rx.lift import apply

            stream: Any = self
            return apply(operators, stream)

    def _through(self, operator: str, *arguments: Any) -> Flowable[Any]:
        # Imported here: slow to import, and most pipelines need none of them.
        from reactivex import operators

        return self.pipe(getattr(operators, operator)(*arguments))

    # The most common ones, for their types.

    def map(self, mapper: Callable[[T_co], A]) -> Flowable[A]:
        """See `reactivex.operators.map`."""
        return self._through("map", mapper)

    def filter(self, predicate: Callable[[T_co], bool]) -> Flowable[T_co]:
        """See `reactivex.operators.filter`."""
        return self._through("filter", predicate)

    @overload
    def flat_map(self, mapper: Callable[[T_co], Observable[A]]) -> Flowable[A]: ...

    @overload
    def flat_map(self, mapper: Callable[[T_co], Iterable[A]]) -> Flowable[A]: ...

    @overload
    def flat_map(self, mapper: None = None) -> Flowable[object]: ...

    def flat_map(  # pyright: ignore[reportIncompatibleMethodOverride] - takes iterables too
        self, mapper: Any = None
    ) -> Flowable[Any]:
        """See `reactivex.operators.flat_map`; over finished streams and iterables."""
        return self._through("flat_map", mapper)

    @overload
    def scan(self, accumulator: Callable[[T_co, T_co], T_co]) -> Flowable[T_co]: ...

    @overload
    def scan(self, accumulator: Callable[[A, T_co], A], seed: A) -> Flowable[A]: ...

    def scan(self, accumulator: Callable[[Any, Any], Any], seed: Any = _NO_SEED) -> Flowable[Any]:
        """See `reactivex.operators.scan`."""
        seeds = () if seed is _NO_SEED else (seed,)
        return self._through("scan", accumulator, *seeds)

    def take(self, count: int) -> Flowable[T_co]:
        """See `reactivex.operators.take`."""
        return self._through("take", count)

    def skip(self, count: int) -> Flowable[T_co]:
        """See `reactivex.operators.skip`."""
        return self._through("skip", count)

    def pairwise(self) -> Flowable[tuple[T_co, T_co]]:
        """See `reactivex.operators.pairwise`."""
        return self._through("pairwise")

    def do_action(
        self,
        on_next: Callable[[T_co], None] | None = None,
        on_error: Callable[[Exception], None] | None = None,
        on_completed: Callable[[], None] | None = None,
    ) -> Flowable[T_co]:
        """See `reactivex.operators.do_action`."""
        return self._through("do_action", on_next, on_error, on_completed)

    def start_with(self, *args: Any) -> Flowable[Any]:
        """See `reactivex.operators.start_with`."""
        return self._through("start_with", *args)

    # Those that reactivex does not send through `pipe`.

    @overload
    def sum(self) -> Flowable[float]: ...

    @overload
    def sum(self, key_mapper: Callable[[T_co], float]) -> Flowable[float]: ...

    def sum(self, key_mapper: Callable[[T_co], float] | None = None) -> Flowable[float]:
        """See `reactivex.operators.sum`."""
        return self._through("sum", key_mapper)

    def pluck(self, key: str) -> Flowable[Any]:
        """See `reactivex.operators.pluck`."""
        return self._through("pluck", key)

    def dematerialize(self) -> Flowable[Any]:
        """See `reactivex.operators.dematerialize`."""
        return self._through("dematerialize")

    def exclusive(self) -> Flowable[Any]:
        """Refused with what to use instead, as all that starts and abandons streams is."""
        return self._through("exclusive")

    def switch_latest(self) -> Flowable[Any]:
        """Refused with what to use instead, as all that starts and abandons streams is."""
        return self._through("switch_latest")

    def ref_count(self) -> Flowable[T_co]:
        """Refused with what to use instead: several readers share no demand."""
        return self._through("ref_count")

    def partition_indexed(self, predicate_indexed: Any) -> NoReturn:
        """Refused with what to use instead: several readers share no demand."""
        self._through("partition_indexed", predicate_indexed)
        raise AssertionError("the lift table refuses partition_indexed")

    def __getitem__(self, key: slice | int) -> Flowable[T_co]:
        if isinstance(key, slice):
            return self._through("slice", key.start, key.stop, key.step)
        return self._through("slice", key, key + 1, 1)

    def __add__(self, other: Observable[Any]) -> Flowable[Any]:
        return self._through("concat", other)

    def __iadd__(self, other: Observable[Any]) -> Flowable[Any]:
        return self._through("concat", other)

    def run(self, scheduler: SchedulerBase | None = None) -> NoReturn:
        """Refused: it would block the loop and start a thread."""
        raise BuildError(
            "run() of a stream waits on a thread of its own: use `async for value in flowable`, "
            "or end it with .to(sink) and `run(pipeline)`"
        )
