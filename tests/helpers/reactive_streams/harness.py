"""Connects a case for the tests of the rules, and waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec

import pytest

from penstock import Flowable
from penstock.streams.boundary.strict_subscriber import connect
from penstock.streams.runtime.context import Run
from penstock.streams.testing import ManualPublisher, Probe, no_leaks, run_virtual
from tests.helpers.reactive_streams.between import Below, attached
from tests.helpers.reactive_streams.case import Case
from tests.helpers.reactive_streams.operator_cases import OPERATORS
from tests.helpers.reactive_streams.rx_cases import RX
from tests.helpers.reactive_streams.source_cases import SOURCES

__all__ = [
    "CASES",
    "Link",
    "connected",
    "every",
    "every_case",
    "every_failing_case",
    "every_failing_operator",
    "every_operator",
    "every_pulling_case",
    "manual",
    "standing_below",
    "virtual",
]

P = ParamSpec("P")

_OPERATORS = [*OPERATORS, *RX]
CASES = [*SOURCES, *_OPERATORS]


def every(**rows: Sequence[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with each of these values of a parameter, or of several, as in `a__b=[(1, 2)]`.

    It is one test, since thousands would take longer to collect and to report than to run. It goes
    on after a failure; the error names all values that fail, and `--case` chooses some.
    """
    ((joined, values),) = rows.items()
    names = joined.split("__")

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(request: pytest.FixtureRequest, **others: Any) -> None:
            wanted = request.config.option.case
            errors: dict[str, Exception] = {}
            tried = 0
            for row in values:
                given = dict(zip(names, row if len(names) > 1 else (row,), strict=True))
                name = ", ".join(map(str, given.values()))
                if wanted is not None and wanted not in name:
                    continue
                tried += 1
                try:
                    test(**given, **others)
                except Exception as error:
                    error.add_note(f"with {name}")
                    errors[name] = error
            if errors:
                raise ExceptionGroup(f"fails with {'; '.join(errors)}", list(errors.values()))
            if not tried:
                pytest.skip(f"it has no case {wanted!r}")

        parameters = [
            Parameter("request", Parameter.POSITIONAL_OR_KEYWORD),
            *(own for name, own in signature(test).parameters.items() if name not in names),
        ]
        run.__signature__ = signature(test).replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return decorate


every_case = every(case=CASES)
every_operator = every(case=_OPERATORS)
every_failing_operator = every(case=[case for case in _OPERATORS if not case.resumes])
_PULLING = [case for case in CASES if case.pulls]
every_pulling_case = every(case=_PULLING)
every_failing_case = every(case=[case for case in _PULLING if not case.resumes])


def virtual(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an asynchronous test on a new virtual-time loop.

    Processes that start and end on a busy machine get a minute.
    """

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(test(*args, **kwargs), stall=60.0)

    return run


class Link:
    """A connection under test."""

    def __init__(self, run: Run, in_pool: bool) -> None:
        self.run = run
        self._told: list[Any] = []
        self._in_pool = in_pool
        self.run.loop.set_exception_handler(
            lambda _, context: self._told.append(context.get("exception", context))
        )

    async def settle(self, seconds: float = 30.0) -> None:
        """Let everything happen that can happen in `seconds` of virtual time."""
        await asyncio.sleep(seconds)
        while self._in_pool and self._in_flight():
            # A pool lives in real time, which the virtual loop must wait for. Its threads get
            # the interpreter meanwhile.
            with self.run.loop.hold():  # type: ignore[attr-defined]
                while self._in_flight():
                    time.sleep(0.0001)  # noqa: ASYNC251
                    await asyncio.sleep(0)
            # There may be as many rounds as events, and the loop has a horizon.
            await asyncio.sleep(min(seconds, 30.0))

    def unfinished(self) -> int:
        """How many events of the sources have not ended."""
        unfinished = 0
        for source in self.run.nesting.sources:
            numbers = source.statistics()
            ended = sum(numbers[name] for name in ("finished", "failed", "returned"))
            unfinished += numbers["in"] - ended - sum(numbers["dropped"].values())
        return unfinished

    def told(self) -> list[Any]:
        """The errors reported to the loop; one that the test does not expect fails it."""
        told, self._told = self._told, []
        return told

    def _in_flight(self) -> int:
        return sum(numbers().get("in_flight", 0) for _, numbers in self.run.nesting.stages)


@asynccontextmanager
async def connected(
    stream: Flowable[Any], *probes: Any, case: Case | None = None
) -> AsyncIterator[Link]:
    """Connect subscribers; afterwards cancel them, and check that nothing is left behind."""
    async with no_leaks():
        run = Run()
        link = Link(run, case is not None and case.calls_in_pool)
        for probe in probes:
            connect(stream, probe, run)
        try:
            yield link
        finally:
            for probe in probes:
                if probe.subscription is not None:
                    probe.subscription.cancel()
            await run.close()
        assert link.told() == []


@asynccontextmanager
async def standing_below(
    stream: Flowable[Any], below: Below, case: Case | None = None
) -> AsyncIterator[Link]:
    """Attach `below` to a stream's last stage; afterwards as `connected` does."""
    async with no_leaks():
        run = Run()
        link = Link(run, case is not None and case.calls_in_pool)
        attached(stream, below, run)
        try:
            yield link
        finally:
            below.cancel()
            await run.close()
        assert link.told() == []


@asynccontextmanager
async def manual(
    case: Case, probe: Probe[Any], publisher: ManualPublisher[int]
) -> AsyncIterator[Link]:
    """An operator between a publisher that is driven by hand and a probe."""
    assert case.operator is not None
    async with connected(publisher.pipe(case.operator), probe, case=case) as link:
        yield link
