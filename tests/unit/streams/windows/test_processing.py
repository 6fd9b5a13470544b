"""Windows by processing time: by the clock at which events come, against their definition."""

from __future__ import annotations

import asyncio
import random
from math import floor
from typing import Any

from penstock import Store, agg, collect, for_each, from_iterable, inbox, run, tumbling, window
from penstock.streams.testing import run_virtual
from penstock.streams.windows.shapes import session, sliding
from tests.helpers.walks import seeds

_Event = tuple[float, str, int]
_Result = tuple[float, str, float, float, int]


class Story:
    """Events with the seconds at which they come, in some runs that are each drained."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.length = float(chance.choice([2, 10, 15]))
        self.every = min(self.length, float(chance.choice([1, 5, 15])))
        self.is_session = chance.random() < 0.3
        self.runs: list[tuple[float, float, list[_Event]]] = []
        clock, number = 0.25, 0
        for _ in range(chance.randint(1, 4)):
            began, events = clock, list[_Event]()
            for _ in range(chance.randint(0, 6)):
                clock += chance.choice([0.5, 1, 2.5, 12])
                events.append((clock, chance.choice("ab"), number))
                number += 1
            clock += chance.choice([0.5, 1, 30])
            # Not with the end of a window.
            self.runs.append((began, clock + 0.1, events))
            clock += chance.choice([1, 3, 40])

    @property
    def shape(self) -> Any:
        if self.is_session:
            return session(self.length)
        return sliding(self.length, every=self.every)

    def expected(self) -> list[_Result]:
        found: dict[tuple[str, float, float], int] = {}
        for _, _, events in self.runs:
            for at, key, number in events:
                for begin, end in self._windows(at, key):
                    found[key, begin, end] = found.get((key, begin, end), 0) + number + 1
        closed = [(self._closes(end), key, begin, end, n) for (key, begin, end), n in found.items()]
        return sorted(one for one in closed if one[0] >= 0)

    def _windows(self, at: float, key: str) -> list[tuple[float, float]]:
        if self.is_session:
            first = last = at
            times = sorted(
                time for _, _, events in self.runs for time, of, _ in events if of == key
            )
            for time in reversed(times):
                if time < first < time + self.length:
                    first = time
            for time in times:
                if last < time < last + self.length:
                    last = time
            return [(first, last + self.length)]
        last_begin = floor(at / self.every)
        begins = [n * self.every for n in range(last_begin - 15, last_begin + 1)]
        return [(one, one + self.length) for one in begins if one <= at < one + self.length]

    def _closes(self, end: float) -> float:
        """The second at which a window with this end closes: in a run, or when the next begins."""
        for began, ended, _ in self.runs:
            if end < ended:
                return max(began, end)
        return -1.0

    def play(self) -> list[_Result]:
        found: list[_Result] = []
        store = Store.memory()

        async def main(began: float, ended: float, events: list[_Event]) -> None:
            loop, box = asyncio.get_running_loop(), inbox(100)
            await asyncio.sleep(began)

            def note(one: Any) -> None:
                found.append((round(loop.time(), 3), one.key, one.start, one.end, one.value))

            sums = window(
                self.shape, agg.sum(lambda event: event[1] + 1), 0, time="processing", store=store
            )
            running = box.pipe(sums).to(for_each(note)).start()
            for at, key, number in events:
                await asyncio.sleep(at - loop.time())
                await box.put((key, number))
            await asyncio.sleep(ended - loop.time())
            await running.drain()

        for one in self.runs:
            run_virtual(main(*one))
        return sorted(found)


@seeds(300)
def test_windows_close_by_the_clock_also_those_due_while_nothing_ran(seed: int) -> None:
    story = Story(seed)
    assert story.play() == story.expected()


def test_the_end_of_the_input_closes_them() -> None:
    found: list[Any] = []
    counts = window(tumbling(1e9), agg.count(), time="processing")
    run(from_iterable(range(3)).pipe(counts).to(collect(found)))
    assert [one.value for one in found] == [3]
