"""Streams whose readers share one reading of their source."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from reactivex.abc import DisposableBase, SchedulerBase, SubjectBase
from reactivex.disposable import Disposable

from penstock.streams.boundary.strict_subscriber import connect
from penstock.streams.clock import clock_of, running_loop
from penstock.streams.errors import BuildError
from penstock.streams.flowable import Flowable
from penstock.streams.protocol.acknowledgement import NOBODY, AckHook, Family
from penstock.streams.protocol.event import Ending, Event, Origin, end_all, give_back_all
from penstock.streams.protocol.source_stage import SourceStage
from penstock.streams.protocol.stage import (
    UNCONNECTED,
    EventSubscriber,
    StageInfo,
    Subscriber,
    Subscription,
)
from penstock.streams.runtime.context import Run
from penstock.streams.rx.inputs import as_stream

__all__ = ["Connectable", "Memory", "mapped", "shared"]

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
        """Those for a reader that comes now, oldest first."""
        self._expire(now)
        return [value for _, value in self._values]

    def _expire(self, now: float) -> None:
        if self._seconds is not None:
            while self._values and now - self._values[0][0] > self._seconds:
                self._values.popleft()


class Connectable(Flowable[T]):
    """A stream whose readers share one reading of its source, which begins with `connect()`.

    Each event goes to every reader, and is finished when all have finished it. The source is asked
    for what the fastest reader requests, as long as no more than `prefetch` events wait for the
    slowest; a reader that leaves no longer counts. Without readers the events are dropped. With a
    `memory`, readers that come later get its values first; these acknowledge nothing.

    The source has a running of its own, on the loop on which it is connected: its events are
    counted for each reader, as those of a source.
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
                f"{info.name} between spread() and the working stage would keep the groups' turns: "
                "put it after the working stage"
            )
        super().__init__(self._join, info, source)
        self.hub = Hub(source, self.info, prefetch, memory, subject)

    def _join(self, downstream: Subscriber[Any], run: Run) -> None:
        self.hub.join(downstream, run, keeps=False)

    def connect(  # type: ignore[override]
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
                self.hub.begin()

        return Flowable(join, self.info, self.above)


def shared(connectable: Connectable[T], info: StageInfo) -> Flowable[T]:
    """Read the source of `connectable` from its first reader on, and until the last has left."""

    def join(downstream: Subscriber[Any], run: Run) -> None:
        connectable.hub.join(downstream, run, keeps=True)

    return Flowable(join, info, connectable.above)


def mapped(
    make: Callable[[], Connectable[Any]],
    mapper: Callable[[Any], Any],
    info: StageInfo,
    source: Flowable[Any],
) -> Flowable[Any]:
    """What `mapper` returns for a connectable of its own for each running, which all that reads it
    shares."""

    def attach(downstream: Subscriber[Any], run: Run) -> None:
        connectable = make()
        hub = connectable.hub
        hub.waits = True
        as_stream(info.name, mapper(shared(connectable, connectable.info))).attach(downstream, run)
        hub.waits = False
        hub.begin_if_read()

    return Flowable(attach, info, source)


class Hub:
    """Reads the source of a `Connectable`, and gives what comes to every reader.

    `waits`: it does not begin yet, although it has such readers.
    """

    def __init__(
        self,
        source: Flowable[Any],
        info: StageInfo,
        prefetch: int,
        memory: Memory | None,
        subject: SubjectBase[Any] | None,
    ) -> None:
        self.prefetch = prefetch
        self.joined = 0
        self.waits = False
        self._source = source
        self._info = info
        self._memory = memory
        self._subject = subject
        self._readers: list[_Reader] = []
        self._reading: _Reading | None = None
        self._connection: DisposableBase = Disposable()
        # The clock of the newest reading.
        self._now: Callable[[], float] | None = None
        self._ended: tuple[BaseException | None] | None = None

    # Readers.

    def join(self, downstream: Subscriber[Any], run: Run, *, keeps: bool) -> None:
        """Attach one more reader; the source is read while one that `keeps` it is there."""
        self.joined += 1
        reader = _Reader(downstream, run, self._info, self, keeps=keeps)
        if self._memory is not None and (self._ended is None or self._memory.after_end):
            values = self._memory.values(run.now() if self._now is None else self._now())
            reader.waiting.extend(Event(value, run.now(), NOBODY) for value in values)
        self._readers.append(reader)
        reader.ending = self._ended
        reader.start()
        reader.deliver()
        if keeps:
            self.begin_if_read()

    def begin_if_read(self) -> None:
        """Begin if there is a reader for whom it is read."""
        if not self.waits and any(reader.keeps for reader in self._readers):
            self.begin()

    def left(self, reader: _Reader) -> None:
        """A reader has left: it has ended, or was cancelled."""
        self._readers.remove(reader)
        if reader.keeps and not any(other.keeps for other in self._readers):
            self.end()
            if self._ended is not None:
                # The next reader reads the source anew.
                self._ended = None
                if self._memory is not None:
                    self._memory.forget()
        else:
            self.pump()

    # The source.

    def begin(self) -> DisposableBase:
        """Read the source, unless it is being read or has ended; the result ends it."""
        if self._reading is None and self._ended is None:
            self._reading = _Reading(self)
            self._now = self._reading.now
            self._connection = Disposable(self.end)
            connect(self._source, self._reading)
        return self._connection

    def end(self) -> None:
        """Read the source no more; the readers stay."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.subscription.cancel()

    def pump(self) -> None:
        """Request what the fastest reader wants, as far as there is room for the slowest."""
        reading = self._reading
        if reading is None:
            return
        if self._readers:
            wanted = [reader.demand - len(reader.waiting) for reader in self._readers]
            n = min(max(wanted), min(wanted) + self.prefetch)
        else:
            n = max(1, self.prefetch)
        if n > reading.requested:
            missing = n - reading.requested
            reading.requested = n
            reading.subscription.request(missing)

    def came(self, reading: _Reading, event: Event[Any]) -> None:
        """An event of the source, for all readers."""
        value = event.value
        family = Family(event, self._info.name)
        if self._memory is not None:
            self._memory.remember(value, reading.now())
        readers = list(self._readers)
        for reader in readers:
            reader.waiting.append(family.child(value))
        if self._subject is not None and getattr(self._subject, "observers", True):
            self._subject.on_next(value)
        for reader in readers:
            reader.deliver()
        family.close()
        self.pump()

    def over(self, error: BaseException | None) -> None:
        """The source has ended."""
        self._reading = None
        self._ended = (error,)
        if self._subject is not None:
            if error is None:
                self._subject.on_completed()
            elif isinstance(error, Exception):
                self._subject.on_error(error)
        for reader in list(self._readers):
            reader.ending = (error,)
            reader.deliver()


class _Reading:
    """One reading of the source; what comes after another has begun is returned."""

    def __init__(self, hub: Hub) -> None:
        self.subscription: Subscription = UNCONNECTED
        self.requested = 0
        self.now = clock_of(running_loop())
        self._hub = hub

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


class _Reader(SourceStage[Any], AckHook):
    """One reader: a source in its own running, whose events are children of those of the hub.

    `waiting` are the children that are not requested yet; `ending` is how the source has ended.
    """

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, hub: Hub, *, keeps: bool
    ) -> None:
        super().__init__(downstream, run, info)
        self.keeps = keeps
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

    def deliver(self) -> None:
        """Send what is requested, and then the end."""
        self.wake()
        if self.ending is not None and not (self.waiting or self.done or self._producing):
            (error,) = self.ending
            if error is None:
                self.complete()
            else:
                self.error(error)

    def produce(self) -> None:
        while self.demand and self.waiting and not self.done:
            n = min(self.demand, len(self.waiting))
            self.send([self._event(self.waiting.popleft()) for _ in range(n)])

    def _event(self, child: Event[Any]) -> Event[Any]:
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
        SourceStage[Any].settle(self, events, ending, why)
        end_all(children, ending, why)

    def release(self) -> None:
        waiting = list(self.waiting)
        self.waiting.clear()
        self._hub.left(self)
        give_back_all(waiting)

    def statistics(self) -> dict[str, Any]:
        return {**super().statistics(), "buffered": len(self.waiting)}
