"""Plays a marble diagram through an operator, and records the output with its times."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Any

from penstock.streams.base.errors import WrongType
from penstock.streams.base.validation import require_parameters
from penstock.streams.boundary.strict_subscriber import connect
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import UNBOUNDED, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.source_stage import BaseSourceStage
from penstock.streams.testing.leaks import no_leaks
from penstock.streams.testing.loop import HORIZON, VirtualTimeLoop
from penstock.streams.testing.marbles import Signal, parse_marbles
from penstock.streams.testing.probe import Probe, Received

__all__ = ["COMPLETED", "Completed", "VirtualClock", "play"]


class Completed:
    """The type of COMPLETED."""

    def __repr__(self) -> str:
        return "COMPLETED"


COMPLETED = Completed()
"""Stands for the completion in the result of `play`."""


def play(
    marbles: str | list[str] | tuple[str, ...],
    operator: Callable[..., Any] | None = None,
    *,
    tick: float = 1.0,
    request: int | None = None,
    lookup: Mapping[Any, Any] | None = None,
    error: Exception | None = None,
    until: float | None = None,
) -> list[tuple[float, Any]]:
    """The output of `operator` when it reads the diagrams: pairs (time in seconds, signal).

    A signal is a value, COMPLETED, or the exception that the stream failed with. The operator may
    be one of ours, a stock one, or a function that takes the stream through several. If there are
    several diagrams, in a list, it is a function that makes one stream of theirs. All of them begin
    at 0, whenever they are read. `tick`, `lookup` and `error` are those of `parse_marbles`.
    `request` is the whole demand, by default unbounded; items that are not requested yet wait in
    the source. `!`, in any diagram, cancels.

    Runs on a new `VirtualTimeLoop`, so it cannot be called while a loop is running. Ends when
    nothing can happen any more, or at the time `until`; fails if anything is left behind once the
    stream has ended.

    >>> play("-1-2|", lambda source: source)
    [(1.0, 1), (3.0, 2), (4.0, COMPLETED)]
    >>> play(["-1-3|", "--2|"], lambda one, other: one.merge(other))
    [(1.0, 1), (2.0, 2), (3.0, 3), (4.0, COMPLETED)]
    """
    if operator is None:
        raise WrongType(
            'play(diagram) lacks the operator that reads it: play("-a-b|", ops.map(f)), or '
            "play(diagram, lambda source: source) to see the diagram itself"
        )
    diagrams = [*marbles] if isinstance(marbles, list | tuple) else [marbles]
    if not diagrams:
        raise WrongType("play([], ...): give at least one diagram")
    if len(diagrams) > 1:
        require_parameters(operator, "play(diagrams, operator)", len(diagrams), "a stream of each")
    played = [parse_marbles(one, tick=tick, lookup=lookup, error=error) for one in diagrams]
    first, *others = map(_marbles, played)
    probe: Probe[Any] = Probe(request=UNBOUNDED if request is None else request)

    async def story() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _QuietLoop)
        async with no_leaks():
            run = Run()
            # Alone, an operator of reactivex is recognised.
            read: Callable[[Any], Any] = operator
            if others:
                read = partial(_read_all, operator, others)
            stream: Flowable[Any] = first.pipe(read)
            connect(stream, probe, run)
            for signal in chain.from_iterable(played):
                if signal.kind == "cancel":
                    loop.call_at(signal.time, probe.cancel)
            await loop.quiet(until)
            if not probe.ended:
                probe.cancel()
            await run.close()

    if until is not None and until > HORIZON:
        raise ValueError(f"until={until:g}: no diagram is longer than {HORIZON:g} seconds")
    # At the end, a stream that never ended is cancelled; that is not part of the result.
    seen: list[tuple[float, Any]] = []
    with asyncio.Runner(loop_factory=_QuietLoop) as runner:
        runner.run(story())
    for one in probe.signals:
        if (shown := _shown(one)) is not None:
            seen.append((one.time, shown[0]))
    return seen


def _read_all(operator: Callable[..., Any], others: list[Flowable[Any]], first: Any) -> Any:
    return operator(first, *others)


def _shown(one: Received) -> tuple[Any] | None:
    if one.name == "subscribe":
        return None
    return (COMPLETED if one.name == "completed" else one.value,)


class VirtualClock:
    """The fixture `clock`: plays diagrams, each on a fresh loop at time 0.0."""

    play = staticmethod(play)


class _QuietLoop(VirtualTimeLoop):
    """A virtual-time loop that reports when nothing can happen any more."""

    _quiet: asyncio.Future[None] | None = None

    async def quiet(self, until: float | None) -> None:
        """Wait until nothing is ready, no timer is set and no job is awaited; or for a time."""
        self._quiet = quiet = self.create_future()
        timer = None if until is None else self.call_at(until, self._be_quiet)
        await quiet
        if timer is not None:
            timer.cancel()

    def _be_quiet(self) -> None:
        quiet, self._quiet = self._quiet, None
        if quiet is not None:
            quiet.set_result(None)

    def _idle(self, wait: Any) -> Any:
        if self._quiet is not None and not self._held and not self._has_timer():
            self._be_quiet()
            return []
        return super()._idle(wait)


def _marbles(signals: list[Signal]) -> Flowable[Any]:
    info = StageInfo("marbles")

    def attach(downstream: Subscriber[Any], run: Run) -> None:
        _Playing(downstream, run, info, signals).start()

    return Flowable(attach, info)


class _Playing(BaseSourceStage):
    """A hot source: its signals come at their times, and wait for demand."""

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, signals: list[Signal]
    ) -> None:
        super().__init__(downstream, run, info)
        self._waiting: deque[tuple[Any, float]] = deque()
        self._ending: Signal | None = None
        self._timers = [
            run.loop.call_at(signal.time, self._arrived, signal)
            for signal in signals
            if signal.kind != "cancel"
        ]

    def _arrived(self, signal: Signal) -> None:
        if signal.kind == "next":
            self._waiting.append((signal.value, signal.time))
        else:
            self._ending = signal
        self.wake()
        self._end_if_empty()

    def produce(self) -> None:
        while self.demand and self._waiting:
            self.emit(*self._waiting.popleft())
        self._end_if_empty()

    def _end_if_empty(self) -> None:
        if self._ending is not None and not self._waiting:
            if self._ending.kind == "completed":
                self.complete()
            else:
                self.fail(self._ending.value)

    def release(self) -> None:
        for timer in self._timers:
            timer.cancel()
