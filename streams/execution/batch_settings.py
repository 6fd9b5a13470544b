"""The options of a batch stage, and the contract of its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, cast

from penstock.streams.errors import BatchContractError, describe
from penstock.streams.execution.handler import tells_of_its_type, unfinished
from penstock.streams.execution.iterators import is_iterator
from penstock.streams.failures.policy import OnError

__all__ = ["BatchSettings", "by_contract"]


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """The arguments of `penstock.batch`, which documents each."""

    handler: Callable[[list[Any]], Any]
    name: str
    max_size: int
    max_wait: float
    latency: float | None
    parallel: int
    timeout: float | None
    on_error: OnError

    @property
    def limit(self) -> int:
        """Events that may be in calls at once."""
        return self.max_size * self.parallel


def by_contract(
    handler: Callable[[list[Any]], Any], name: str
) -> Callable[[list[Any]], Coroutine[Any, Any, Sequence[Any]]]:
    """`handler` as a coroutine function that returns as many results as it is given values.

    BatchContractError where it returns anything else; None stands for a None each.
    """

    async def call(values: list[Any]) -> Sequence[Any]:
        count = len(values)
        results = handler(values)
        if isinstance(results, Awaitable):
            results = await cast(Any, results)
        if results is None:
            return [None] * count
        if isinstance(results, str | bytes) or not isinstance(results, Sequence):
            if (error := unfinished(results, name)) is not None:
                raise BatchContractError(str(error))
            what = "an async iterator" if is_iterator(results) else describe(results, 80)
            raise BatchContractError(
                f"'{name}' returned {what} for {_many(count, 'event')}: return a list of as many "
                "results, or None"
            )
        given: Sequence[Any] = cast(Any, results)
        if len(given) != count:
            raise BatchContractError(
                f"'{name}' returned {_many(len(given), 'result')} for "
                f"{_many(count, 'event')}: return one for each, in their order; an exception in "
                "the place of one that failed"
            )
        if finished.issuperset(map(type, given)):
            return given
        errors = [unfinished(result, name) for result in given]
        if not any(errors):
            finished.update(map(type, filter(tells_of_its_type, given)))
        return [error or result for error, result in zip(errors, given, strict=True)]

    # Types of results that need not be awaited.
    finished: set[type] = set()
    return call


def _many(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
