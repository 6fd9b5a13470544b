"""Stories as lines of a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.command.santa.sparks import race_lines, sparks
from penstock.command.santa.story import Curve


class _Counted(list[float]):
    """Counts how often one of its items is read."""

    reads = 0

    def __getitem__(self, place: Any) -> Any:
        self.reads += 1
        return super().__getitem__(place)

    def __iter__(self) -> Iterator[float]:
        self.reads += len(self)
        return super().__iter__()


def test_each_part_of_a_line_has_the_jobs_that_ended_in_it() -> None:
    curve = Curve(
        time=[0.0, 31.0, 60.0],
        queue=[2, 4, 0],
        in_flight=[1, 1, 0],
        limit=[1, 1, 1],
        done_at=[0.0, 31.0, 60.0],
        total=[8.0, 4.0, 2.0],
    )
    queue, _, _, total = sparks(curve).splitlines()
    # The queue lasts from one reading to the next; the last part has the end in it.
    assert queue.split("|")[1] == "▄" * 31 + "█" * 29
    assert total.split("|")[1] == "█" + " " * 30 + "▄" + " " * 27 + "▂"
    # Jobs that ended after the seconds of a race count in its last part.
    _, line = race_lines({"auto": curve}, 32.0)
    assert line.split("|")[1] == "█" + " " * 57 + "▅▁"


def test_a_long_story_is_drawn_without_reading_all_of_its_times() -> None:
    seconds = 100_000
    times = _Counted(map(float, range(seconds)))
    numbers = [1] * seconds
    curve = Curve(times, numbers, numbers, numbers, times, list(times), list(times))
    times.reads = 0
    sparks(curve)
    race_lines({"auto": curve}, 1000.0)
    assert times.reads < seconds / 10
