"""The types of `pipe`, for mypy and for pyright.

The two checkers infer a lambda's types in different ways. Mypy gives up on any argument of an
overloaded function that is generic itself, as operators are; it gets one signature whose missing
operators change nothing. Pyright would take a missing operator's type from its default; it gets
overloads, where each operator may read a Flowable (one of ours) or any Observable (a stock one).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from reactivex import Observable

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

__all__ = ["Piping"]

# Mypy considers this name true, whatever it is set to.
MYPY = False

_ABSENT: Any = None

T_co = TypeVar("T_co", covariant=True)


class Piping(Observable[T_co]):
    """A stream that is read through operators, from left to right."""

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
