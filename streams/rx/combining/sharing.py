"""Multicasting: the readers of a stream share one reading of its source."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from reactivex.abc import DisposableBase, SubjectBase
from reactivex.disposable import Disposable

from penstock.streams.base.errors import BuildError, counted
from penstock.streams.boundary.strict_subscriber import connect
from penstock.streams.protocol.acknowledgement import NOBODY, AckHook, Family
from penstock.streams.protocol.event import Ending, Event, Origin, end_all, give_back_all
from penstock.streams.protocol.stage import (
    UNCONNECTED,
    Subscriber,
    Subscription,
)
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.tasks import new_task
from penstock.streams.stages.source_stage import BaseSourceStage
from penstock.streams.stages.stream import Stream

__all__ = ["Hub", "Memory", "kept_note"]

T = TypeVar("T")


class Memory:
    """The newest `size` values, at most `seconds` old, for readers that come later.

    `initial` is there before the first. `after_end`: they are also for readers that come after the
    end. Old ones are forgotten when another comes or is read.
    """

    def __init__(
        self,
        size: int,
        seconds: float | None = None,
        *,
        initial: tuple[Any, ...] = (),
        after_end: bool = True,
    ) -> None:
        self.size = size
        self.after_end = after_end
        self._seconds = seconds
        self._initial = initial
        self._values: deque[tuple[float, Any]] = deque(maxlen=size)
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._values.clear()
        self._values.extend((0.0, value) for value in self._initial)

    def remember(self, value: Any, now: float) -> None:
        """`value` is the newest."""
        self._values.append((now, value))
        self._expire(now)

    def values(self, now: float) -> list[Any]:
        """The values for a reader that comes now, oldest first."""
        self._expire(now)
        return [value for _, value in self._values]

    def _expire(self, now: float) -> None:
        if self._seconds is not None:
            while self._values and now - self._values[0][0] > self._seconds:
                self._values.popleft()


def kept_note(size: int) -> str:
    """The note in a picture of a stage with a memory, whose values are not events of the source."""
    values = counted(size, "value")
    return f"keeps {values}, and as many for each reader that comes later"


class Hub:
    """Reads the source of a `Connectable`, and gives what comes to every reader."""

    def __init__(
        self,
        source: Stream[Any],
        info: StageInfo,
        prefetch: int,
        memory: Memory | None,
        subject: SubjectBase[Any] | None,
    ) -> None:
        self.prefetch = prefetch
        self.joined = 0
        self._source = source
        self.info = info
        self._memory = memory
        self._subject = subject
        self._readers: list[_Reader] = []
        self._reading: _Reading | None = None
        self._connection: DisposableBase = Disposable()
        # Readings that have ended, and whose events perhaps have not.
        self._ended_readings: list[_Reading] = []
        # The clock of the newest reading.
        self._now: Callable[[], float] | None = None
        self._ended: tuple[BaseException | None] | None = None
        # The run of the newest reading.
        self._listed: Run | None = None
        # By the pipeline that reads, but not the source.
        self._counts: dict[Run, _Count] = {}

    def begin_after(self, before: Hub | None) -> None:
        """List its stages in place of those of the one before, if that reads no more."""
        if before is not None and before._reading is None:
            self._listed = before._listed

    # Readers.

    def join(self, downstream: Subscriber[Any], run: Run, *, keeps: bool) -> None:
        """Attach one more reader; the source is read while one that `keeps` it is there."""
        self._check_loop(run)
        self.joined += 1
        reader = _Reader(downstream, run, self.info, self, keeps=keeps)
        if self._memory is not None and (self._ended is None or self._memory.after_end):
            values = self._memory.values(run.now() if self._now is None else self._now())
            reader.waiting.extend(Event(value, run.now(), NOBODY) for value in values)
        self._readers.append(reader)
        if self._reading is not None:
            self._reading.joined(reader)
        reader.ending = self._ended
        reader.start()
        reader.deliver()
        if keeps:
            # Not before all readers that are being attached have joined.
            run.attachments.then(self._begin_if_read)

    def _check_loop(self, run: Run) -> None:
        runs = [reader.joining for reader in self._readers]
        runs += [] if self._reading is None else [self._reading.run]
        loops = {one.loop for one in runs if one.has_loop}
        if run.has_loop and loops - {run.loop}:
            raise BuildError(
                f"{self.info.name} is read on another event loop: all readers of a shared stream "
                "must be on one loop; share a stream on each, or pass values on through an inbox"
            )

    def _begin_if_read(self) -> None:
        if any(reader.keeps for reader in self._readers):
            self.begin()

    def left(self, reader: _Reader) -> None:
        """A reader has left: it has ended, or was cancelled."""
        self._readers.remove(reader)
        self._uncount(reader)
        if reader.keeps and not any(other.keeps for other in self._readers):
            self.end()
            if self._ended is not None:
                # The next reader reads the source anew.
                self._ended = None
                if self._memory is not None:
                    self._memory.forget()
        else:
            self.pump()

    def count(self, reader: _Reader) -> None:
        """Count what this reader gets once in its pipeline, in which the source is not read."""
        root = reader.joining.root
        if root not in self._counts:
            self._counts[root] = _Count(reader.joining.part(of_root=True), self.info, self)
        reader.run.nesting.discount()
        self._counts[root].join(reader)

    def discount(self, reader: _Reader) -> None:
        """Do not count what this reader gets: it is counted in its pipeline at the source."""
        reader.run.nesting.discount()
        self._uncount(reader)

    def _uncount(self, reader: _Reader) -> None:
        count, reader.count = reader.count, None
        if count is not None:
            count.readers.remove(reader)
            if not count.readers:
                del self._counts[reader.joining.root]
                count.leave_if_over()

    # The source.

    def begin(self) -> DisposableBase:
        """Read the source, unless it is being read or has ended; the result ends it."""
        if self._reading is None and self._ended is None:
            runs = (reader.joining for reader in self._readers if reader.joining.root.is_pipeline)
            reading = self._reading = _Reading(self, next(runs, None), self._listed)
            self._listed = reading.run
            self._now = reading.run.now
            self._connection = Disposable(self.end)
            reading.run.add_stage(reading.run.placed(self.info), self.shared_statistics)
            for reader in list(self._readers):
                reading.joined(reader)
            connect(self._source, reading, reading.run)
        return self._connection

    def end(self) -> None:
        """Read the source no more; the readers stay."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            self._left(reading)

    def stopped_for(self, readers: list[_Reader]) -> bool:
        """Stop the source, so that what it has is still read, if it has a run of its own, and
        only these readers read it and keep it. Returns whether it does."""
        reading = self._reading
        if reading is None or not reading.is_alone:
            return False
        if any(not each.keeps or each not in readers for each in self._reading_on()):
            return False
        reading.run.stop_sources()
        return True

    def pump(self) -> None:
        """Request what the fastest reader wants, as far as there is room for the slowest, and for
        one that comes later: what is on its way cannot be taken back."""
        reading = self._reading
        if reading is None or reading.subscription is UNCONNECTED:
            return
        if self._readers:
            readers = self._reading_on()
            if not readers:
                return
            wanted = [reader.demand - len(reader.waiting) for reader in readers]
            n = min(max(wanted), min(wanted) + self.prefetch, self.prefetch)
        else:
            n = max(1, self.prefetch)
        # By halves, not one by one.
        if n > reading.requested and n >= 2 * reading.requested:
            missing = n - reading.requested
            reading.requested = n
            reading.subscription.request(missing)

    def came(self, reading: _Reading, event: Event[Any]) -> None:
        """An event of the source, for all readers."""
        readers = self._reading_on()
        if self._readers and not readers:
            event.give_back()
            return
        value = event.value
        family = Family(event, self.info.name)
        if self._memory is not None:
            self._memory.remember(value, reading.run.now())
        families: dict[_Count, Family] = {}
        for reader in readers:
            count, its = reader.count, family
            if count is not None:
                its = families.get(count) or count.family(family.child(value))
                families[count] = its
            reader.waiting.append(its.child(value))
        if self._subject is not None and getattr(self._subject, "observers", True):
            self._subject.on_next(value)
        for reader in readers:
            reader.deliver()
        for its in families.values():
            its.close()
        family.close()
        self.pump()

    def over(self, error: BaseException | None) -> None:
        """The source has ended."""
        reading, self._reading = self._reading, None
        self._ended = (error,)
        if self._subject is not None:
            if error is None:
                self._subject.on_completed()
            elif isinstance(error, Exception):
                self._subject.on_error(error)
        for reader in list(self._readers):
            reader.ending = (error,)
            reader.deliver()
        if reading is not None:
            self._left(reading)

    @property
    def is_read(self) -> bool:
        """Whether there are readers."""
        return bool(self._readers)

    def _reading_on(self) -> list[_Reader]:
        """The readers that get what comes: none that has been told to stop."""
        return [reader for reader in self._readers if reader.ending is None]

    def _left(self, reading: _Reading) -> None:
        self._ended_readings.append(reading)
        self.settled()

    def settled(self) -> None:
        """Events have ended: close what the stages above opened, if they need it no longer."""
        if self._ended_readings:
            for reading in list(self._ended_readings):
                if not reading.run.nesting.is_unfinished:
                    self._ended_readings.remove(reading)
                    reading.close()

    def shared_statistics(self) -> dict[str, Any]:
        """The readers, and the events that wait for their demand."""
        waiting = sum(reader.buffered for reader in self._readers)
        return {"buffered": waiting, "readers": len(self._readers)}


class _Reading:
    """One reading of the source; what comes after another has begun is returned.

    It is a part of the running of the pipeline that reads it first, in the reader's run `first`:
    its events are counted there, once for all readers, and it is paused and drained with it.
    Without a pipeline it has a run of its own. It is closed when all of its events have ended.
    """

    def __init__(self, hub: Hub, first: Run | None, before: Run | None) -> None:
        self.subscription: Subscription = UNCONNECTED
        self.requested = 0
        self.run = Run() if first is None else first.part(instead_of=before, of_root=True)
        self._root = self.run.root
        self._hub = hub
        if self._root.is_pipeline:
            self._root.on_flush(self._root_ends)
        self._all_ended: asyncio.Future[None] | None = None

    @property
    def is_alone(self) -> bool:
        """Whether it has a run of its own."""
        return self.run is self._root

    def joined(self, reader: _Reader) -> None:
        """A reader gets what comes, which counts once in its pipeline."""
        root = reader.joining.root
        if root is self._root:
            self._hub.discount(reader)
        elif root.is_pipeline and reader.count is None:
            self._hub.count(reader)

    def cancel(self) -> None:
        """Read no more."""
        self.subscription.cancel()
        if self.is_alone:
            self.run.hurry()

    async def _root_ends(self) -> None:
        """The pipeline that reads the source ends: the others read on."""
        if self._is_present:
            if self._hub.is_read:
                self._root = self.run
                self.run.go_on_alone()
                return
            self._hub.end()
        if self.run.nesting.is_unfinished:
            self._all_ended = self.run.loop.create_future()
            await asyncio.wait([self._all_ended], timeout=self.run.drain_deadline)

    def close(self) -> None:
        """Close what the stages opened."""
        run = self.run
        if not self.is_alone:
            self._root.not_on_flush(self._root_ends)
        if self._all_ended is not None:
            if not self._all_ended.done():
                self._all_ended.set_result(None)
        elif not self.is_alone:
            run.nesting.leave()
        elif run.is_open and run.has_loop and run.loop.is_running():
            # The loop itself remembers a task only weakly.
            self._closing = new_task(self._close(), "penstock close", run.loop)

    async def _close(self) -> None:
        try:
            await self.run.close()
        except Exception as error:
            self.run.failed(error)

    @property
    def _is_present(self) -> bool:
        return self._hub._reading is self  # pyright: ignore[reportPrivateUsage] - its own hub

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self.subscription = subscription
        if self._is_present:
            self._hub.pump()
        else:
            # All readers have left while it was being connected.
            subscription.cancel()

    def on_next(self, event: Event[Any], /) -> None:
        self.requested -= 1
        if self._is_present:
            self._hub.came(self, event)
        else:
            event.give_back()

    def on_error(self, error: BaseException, /) -> None:
        if self._is_present:
            self._hub.over(error)

    def on_completed(self) -> None:
        if self._is_present:
            self._hub.over(None)


class _Passing(BaseSourceStage, AckHook):
    """A source whose events are made of others, which end as they do."""

    def made_of(self, child: Event[Any]) -> Event[Any]:
        """An event of this source."""
        event = Event(child.value, child.created, self, child.token)
        event.started = child.started
        if child.started is not None:
            event.ended = child.ended
        event.outer = child
        return event

    def behind(self, outer: Any, /) -> tuple[Origin, Any]:
        return outer.origin, outer.outer

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        children = [event.outer for event in events]
        super().settle(events, ending, why)
        end_all(children, ending, why)
        self.settled()

    def settled(self) -> None:
        """Events have ended."""


class _Count(_Passing):
    """The source in a pipeline that reads the stream and not its source: counts each event once,
    however many `readers` the pipeline has, and pauses and stops them."""

    def __init__(self, run: Run, info: StageInfo, hub: Hub) -> None:
        self.readers: list[_Reader] = []
        self._hub = hub
        super().__init__(_NOTHING_BELOW, run, info)
        self._has_left = False

    def join(self, reader: _Reader) -> None:
        self.readers.append(reader)
        reader.count = self
        if self.demand_withheld:
            reader.pause()

    def family(self, child: Event[Any]) -> Family:
        """The family of what the readers get of one event, which is counted."""
        self.received += 1
        return Family(self.made_of(child), self.info.name)

    def pause(self) -> None:
        super().pause()
        for reader in self.readers:
            reader.pause()

    def resume(self) -> None:
        super().resume()
        for reader in list(self.readers):
            reader.resume()

    def stop(self) -> None:
        if not self._hub.stopped_for(self.readers):
            for reader in list(self.readers):
                reader.stop()

    def settled(self) -> None:
        self.leave_if_over()

    def leave_if_over(self) -> None:
        """Leave the pipeline when the readers have left and all events have ended."""
        if not (self.readers or self._has_left or self.run.nesting.is_unfinished):
            self._has_left = True
            self.run.nesting.leave()


# What a source that only counts sends to: nothing.
_NOTHING_BELOW: Any = None


class _Reader(_Passing):
    """One reader: a source in its own running, whose events are children of those of the hub.

    `waiting` are the children that are not requested yet; `ending` is how the source has ended.
    """

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, hub: Hub, *, keeps: bool
    ) -> None:
        # Left out of the statistics where the events are counted at their source.
        part = run.part()
        part.on_failed = run.failed
        super().__init__(downstream, part, info)
        self.joining = run
        self.keeps = keeps
        self.count: _Count | None = None
        self.waiting: deque[Event[Any]] = deque()
        self.ending: tuple[BaseException | None] | None = None
        self._hub = hub

    def request(self, n: int, /) -> None:
        super().request(n)
        self.deliver()
        self._hub.pump()

    def resume(self) -> None:
        super().resume()
        self._hub.pump()

    def stop(self) -> None:
        """Send what has come, and then the end."""
        if self.ending is None:
            self.ending = (None,)
            self.deliver()

    def deliver(self) -> None:
        """Send what is requested, and then the end."""
        self.wake()
        if self.ending is not None and not (self.waiting or self.state):
            (error,) = self.ending
            if error is None:
                self.complete()
            else:
                self.fail(error)

    def produce(self) -> None:
        while self.demand and self.waiting and not self.state:
            n = min(self.demand, len(self.waiting))
            self.send_all([self.made_of(self.waiting.popleft()) for _ in range(n)])

    def settled(self) -> None:
        self._hub.settled()

    def release(self) -> None:
        waiting = list(self.waiting)
        self.waiting.clear()
        self._hub.left(self)
        give_back_all(waiting)

    def statistics(self) -> dict[str, Any]:
        return {**super().statistics(), "buffered": self.buffered}

    @property
    def buffered(self) -> int:
        """The events that wait for a request: not those which it is just about to send."""
        return max(0, len(self.waiting) - self.demand)
