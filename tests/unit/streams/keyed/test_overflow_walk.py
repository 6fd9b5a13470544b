"""A random walk over a `group_by` whose keys spill: what comes, is taken or withdrawn, and ends."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict, deque
from typing import Any

from penstock import Flowable, group_by, spread
from penstock.streams.keyed.stage import KeyedStage
from penstock.streams.protocol.event import Ending, Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.own import SourceStage
from penstock.streams.testing import Probe, run_virtual
from tests.helpers.walks import seeds

Value = tuple[str, int]


class _Pushed(SourceStage[Value]):
    """A source that emits what is pushed, in lists, and notes how each event ended."""

    def __init__(self, downstream: Subscriber[Value], run: Run, info: StageInfo) -> None:
        super().__init__(downstream, run, info)
        self.pending: deque[Value] = deque()
        self.endings: dict[int, Ending] = {}
        self.is_last = False

    def push(self, values: list[Value]) -> None:
        self.pending += values
        self.wake()

    def produce(self) -> None:
        while self.pending and self.demand:
            n = min(len(self.pending), self.demand)
            values = [self.pending.popleft() for _ in range(n)]
            events = [Event(value, 0.0, self, value[1]) for value in values]
            self.send_all(events)
        if self.is_last and not self.pending:
            self.complete()

    def wake(self) -> None:
        if self.is_last and not self.pending:
            self.complete()
        super().wake()

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        super().settle(events, ending, why)
        for event in events:
            assert event.token not in self.endings, f"{event.token} ended twice"
            assert event.value[1] == event.token, "an event has the value of another"
            self.endings[event.token] = ending


class _Walk:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.buffer = rng.choice([1, 2, 4, 16, 40])
        self.share = rng.choice([None, 1, rng.randint(1, self.buffer), self.buffer])
        self.most = rng.choice([1, 10, 1000])
        self.unpicklable = rng.random() < 0.2
        self.pushed = self.withdrawn = 0
        self.taken: dict[str, list[int]] = defaultdict(list)
        self.probe: Probe[Value] = Probe(hold=True)
        self.sources: list[_Pushed] = []

    def connect(self) -> None:
        def start(downstream: Subscriber[Value], run: Run) -> None:
            self.sources.append(_Pushed(downstream, run, StageInfo("pushed")))
            self.sources[0].start()

        stream: Any = Flowable(start, StageInfo("pushed"))
        grouped = group_by(0, self.buffer, share=self.share, spill_events=self.most)
        stream.pipe(grouped, spread()).connect(self.probe)
        (self.source,) = self.sources
        stage: Any = self.source.downstream
        self.stage: KeyedStage = stage

    def push(self) -> None:
        keys = self.rng.choice(["h", "h", "hhhhhc", "abcdefgh", "hi" * 9 + "abc"])
        values: list[Any] = []
        for _ in range(self.rng.choice([1, 3, 30])):
            self.pushed += 1
            more = (lambda: 0,) if self.unpicklable and self.rng.random() < 0.1 else ()
            values.append((self.rng.choice(keys), self.pushed, *more))
        self.source.push(values)

    def end(self, event: Event[Any]) -> None:
        self.rng.choice([event.finish, event.finish, event.finish, event.give_back])()

    def withdraw(self) -> None:
        part = self.rng.choice([0.1, 0.9])

        def is_gone(event: Event[Any]) -> bool:
            gone = self.rng.random() < part
            self.withdrawn += gone
            return gone

        self.stage.withdraw(is_gone)

    def look(self) -> None:
        queues = self.stage.queues
        in_memory = queues.waiting - queues.overflow.on_disk
        assert in_memory >= 0, "a count is wrong"
        assert sum(queue.size for queue in queues.all) == queues.waiting, "a size is wrong"
        assert in_memory + self.stage.asked <= self.buffer, "more than fits"
        if not self.stage.state:
            free = self.stage._freed  # pyright: ignore[reportPrivateUsage]
            places = in_memory + queues.overflow.reserved + free + self.stage.asked
            assert places == self.buffer, "a place is lost, or counted twice"
        assert queues.overflow.on_disk <= self.most
        alive = [event for event in self.probe.events if event.pending > 0]
        keys = [event.value[0] for event in alive]
        assert len(keys) == len(set(keys)), "two of a key at once"
        for key, n, *_ in self.probe.values[sum(map(len, self.taken.values())) :]:
            assert not self.taken[key] or self.taken[key][-1] < n, f"{n} of {key} was overtaken"
            self.taken[key].append(n)
        self.probe.events[:] = alive

    async def run(self, steps: int) -> None:
        rng, probe = self.rng, self.probe
        self.connect()
        for _ in range(steps):
            step = rng.random()
            if step < 0.4:
                self.push()
            elif step < 0.6:
                probe.request(rng.choice([1, 2, 20]))
            elif step < 0.95:
                if probe.events:
                    self.end(rng.choice(probe.events))
            elif step < 0.99:
                await asyncio.sleep(rng.choice([0, 0.03, 0.1]))
            else:
                self.withdraw()
            self.look()
        if rng.random() < 0.5:
            probe.cancel()
        else:
            probe.request(10**6)
            self.source.is_last = True
            self.source.wake()
            while not probe.ended:
                self.look()
                if probe.events:
                    self.end(probe.events[0])
                else:
                    await asyncio.sleep(0.1)
            self.look()
            assert sum(map(len, self.taken.values())) == self.pushed - self.withdrawn
        for event in probe.events:
            event.finish()
        came = self.pushed - len(self.source.pending)
        assert sorted(self.source.endings) == list(range(1, came + 1))


@seeds(300)
def test_whatever_comes_and_ends_no_event_is_lost_doubled_or_overtaken(seed: int) -> None:
    run_virtual(_Walk(seed).run(150))
