"""R -> T: the response time T of a pipeline as a function of the rate R of its events.

The rate rises by a quarter every few seconds, until T is five times that of light load. T is
measured from the arrival of an event to its end, so it includes the time that events wait for
demand. Where T turns up is the rate with the largest R / T, the "power" of L. Kleinrock (Power and
deterministic rules of thumb for probabilistic problems in computer communications, 1979).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from penstock.command.turning_point.load import Load
from penstock.streams.base import clock
from penstock.streams.base.errors import PenstockError
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.pipelines.pipeline import Engine, Pipeline
from penstock.streams.pipelines.running import Running
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run

__all__ = ["FACTOR", "Climb", "Held", "Step", "turning_point"]

FACTOR = 5.0
"""How many times the response time of light load ends the climb."""

_GROWTH = 1.25
_FIRST = 0.25  # of the rate at which events one after the other would come
_LIGHT = 31  # events at light load, one after the other, without the first
_SILENT = 10.0  # seconds within which an event has to end at light load
_LEAST = 0.002  # seconds between two events at light load
_LATENCIES = 10.0  # a step lasts so many times the response time of light load
_SAMPLES = 60  # looks at the statistics, per step


class Held(PenstockError):
    """No response time can be measured at light load."""


@dataclass(frozen=True, slots=True)
class Step:
    """One rate: `rate` events per second came, and `done` ended.

    `mean` and `p95` are the seconds from arrival to end; an event that has not ended counts with
    its age, if that exceeds the mean of light load. `batch` is the mean number of events of a
    call, None without a stage that takes batches. `limit` is that of the stage with the largest
    share of its slots in use, and `utilisation` that share, or the share of a core that the event
    loop uses, if it is larger.
    """

    rate: float
    done: float
    mean: float
    p95: float
    batch: float | None
    limit: int | None
    utilisation: float


@dataclass(slots=True)
class _Sample:
    """What the stages did during a step, in looks at their statistics."""

    looks: int = 0
    busy: dict[int, float] = field(default_factory=dict[int, float])
    limits: dict[int, int] = field(default_factory=dict[int, int])
    calls: int = 0
    events: int = 0
    has_batches: bool = False

    def look(self, stages: list[dict[str, Any]]) -> None:
        self.looks += 1
        for number, stage in enumerate(stages):
            if "size" in stage:
                self.has_batches = True
                share = stage["calls"] / stage["parallel"]
                self.calls += stage["calls"]
                self.events += stage["in_flight"]
            elif "limit" in stage:
                share = stage["in_flight"] / stage["limit"]
                self.limits[number] = stage["limit"]
            else:
                continue
            self.busy[number] = self.busy.get(number, 0.0) + share

    def busiest(self) -> tuple[float, int | None]:
        """The largest share of slots in use, and the limit of that stage, if it has one."""
        share, number = max(((share, n) for n, share in self.busy.items()), default=(0.0, -1))
        return share / max(1, self.looks), self.limits.get(number)


class Climb:
    """One measurement of `pipeline`, fed with `values` in place of its own source.

    `seconds` is the least duration of a step, `first` the first rate (by default a quarter of what
    one event after the other makes). `light` is the mean response time at light load, `steps` are
    the rates so far.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        values: Iterator[Any],
        *,
        seconds: float = 3.0,
        first: float | None = None,
    ) -> None:
        self.light = 0.0
        self.steps: list[Step] = []
        self._pipeline = pipeline
        self._values = values
        self._seconds = seconds
        self._first = first
        self._load: Load | None = None

    def start(self, drain_deadline: float = 20.0) -> Running:
        """Start the pipeline, whose events `climb` then sends."""
        info = StageInfo("load", "--input")

        def attach(downstream: Subscriber[Any], run: Run) -> None:
            self._load = Load(downstream, run, info, self._values)
            self._load.start()

        engine = Engine(Flowable(attach, info), on_error="stop")
        return self._pipeline.start(drain_deadline=drain_deadline, engine=engine)

    async def climb(
        self, running: Running, on_light: Callable[[float], None], on_step: Callable[[Step], None]
    ) -> bool:
        """Raise the rate until T is five times that of light load, or the stream has ended.

        Returns whether T was reached. Raises Held where nothing ends at light load. The pipeline
        is left running, without a source of events.
        """
        # The stream begins in the next iteration of the loop.
        await asyncio.sleep(0)
        load = self._load
        if load is None:
            return False
        await self._measure_light(load)
        if load.state:
            return False
        on_light(self.light)
        rate = self._first or _FIRST / max(self.light, _LEAST)
        while not load.state:
            step = await self._step(running, load, rate)
            if step is not None and step.mean > FACTOR * self.light:
                # Once more, because another program may have been the cause: an overload stays.
                step = await self._step(running, load, rate)
            if step is None:
                break
            self.steps.append(step)
            on_step(step)
            if step.mean > FACTOR * self.light:
                load.complete()
                return True
            rate *= _GROWTH
        return False

    async def _measure_light(self, load: Load) -> None:
        """Send one event after the other, and wait for each."""
        now = load.run.now
        began = now()
        pause = _LEAST
        while len(load.ended) <= _LIGHT and (len(load.ended) < 2 or now() - began < self._seconds):
            load.stirred.clear()
            if load.state:
                break
            load.one_at(now() + pause)
            try:
                async with asyncio.timeout(_SILENT):
                    await load.stirred.wait()
            except TimeoutError:
                raise Held(
                    f"an event has not ended after {_SILENT:g} s without others: a stage of this "
                    "pipeline holds events until more come, so they have no response time at light "
                    "load"
                ) from None
            if load.dropped > _LIGHT and not load.ended:
                raise Held(
                    f"the first {load.dropped} events were all dropped by a stage, so there is no "
                    "response time"
                )
            pause = max(_LEAST, load.ended[-1][1] - load.ended[-1][0] if load.ended else 0.0)
        # The first one waits for imports and connections.
        times = [end - at for at, end in load.ended]
        times = times[1:] or times
        self.light = sum(times) / len(times) if times else 0.0

    async def _step(self, running: Running, load: Load, rate: float) -> Step | None:
        """Measure one rate; None if the stream ended before there was anything to measure."""
        now = load.run.now
        lasts = max(self._seconds, _LATENCIES * self.light)
        load.ended.clear()
        sample = _Sample()
        began, used = now(), time.thread_time()
        load.at_rate(rate)
        for look in range(1, _SAMPLES + 1):
            await asyncio.sleep(max(0.0, began + lasts * look / _SAMPLES - now()))
            if load.state:
                break
            sample.look(running.statistics()["stages"])
        end = now()
        took = max(end - began, 1e-9)
        times = [done - at for at, done in load.ended if at >= began]
        late = [end - at for at in (*load.open.values(), *load.waiting) if at >= began]
        times += [age for age in late if age > self.light]
        if not times or (load.state and took < lasts / 2):
            return None
        times.sort()
        busy, limit = sample.busiest()
        # On a loop of virtual time the time that the thread used has no meaning.
        virtual = clock.is_virtual(asyncio.get_running_loop())
        loop_used = 0.0 if virtual else (time.thread_time() - used) / took
        return Step(
            rate,
            len(load.ended) / took,
            sum(times) / len(times),
            times[ceil(0.95 * len(times)) - 1],
            sample.events / max(1, sample.calls) if sample.has_batches else None,
            limit,
            min(1.0, max(busy, loop_used)),
        )


def turning_point(steps: list[Step]) -> Step:
    """The step with the largest rate per response time, of one or more."""
    return max(steps, key=lambda step: step.rate / step.mean)
