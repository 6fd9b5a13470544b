"""The base classes of stages of the user's own.

Each is the class named `Base...`, from which the library's own stages are made and which describes
its methods. To type checkers it has the types of its values, and it refuses a class that has an
async method in place of a plain one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.streams.base.errors import refuse_async_methods
from penstock.streams.protocol.stage import BaseStage
from penstock.streams.stages.demand_stage import BaseDemandStage
from penstock.streams.stages.sink_stage import BaseSinkStage
from penstock.streams.stages.source_stage import BaseSourceStage

__all__ = ["DemandStage", "SinkStage", "SourceStage", "Stage"]

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class _Own:
    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_async_methods(cls)


class Stage(_Own, BaseStage, Generic[A, B]):
    """A stage that keeps no events: it passes every signal on unchanged."""


class DemandStage(_Own, BaseDemandStage):
    """A stage that keeps events, with a state, the demand, and one drain loop."""

    __slots__ = ()


class SourceStage(_Own, BaseSourceStage, Generic[T]):
    """One run of a source: the subscription of the first stage, the origin of the events."""

    if TYPE_CHECKING:

        def emit(self, value: T, created: float, token: Any = None) -> None: ...

        def emit_all(self, values: Sequence[T], created: float) -> None: ...

        def produce_from(self, iterator: Iterator[T]) -> None: ...


class SinkStage(_Own, BaseSinkStage, Generic[T_contra]):
    """The last stage of a pipeline: it requests, and finishes each event it has accepted."""
