"""The story as four lines of a terminal: queue, in flight, limit, and the time in the system."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.command.santa.story import Curve

__all__ = ["sparks"]

_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH = 60


def sparks(curve: Curve) -> str:
    """A line for each, from the beginning of the story to its end, all of the same height."""
    end = max(curve.time[-1], curve.done_at[-1])
    rows: list[tuple[str, Sequence[float], Sequence[float], bool]] = [
        ("queue", curve.time, curve.queue, True),
        ("in flight", curve.time, curve.in_flight, True),
        ("limit", curve.time, curve.limit, True),
        ("seconds in the system", curve.done_at, curve.total, False),
    ]
    lines: list[str] = []
    for name, times, values, lasts in rows:
        most = max(values)
        line = "".join(
            _BARS[round(value / most * 8) if most else 0]
            for value in _highest(times, values, end, lasts)
        )
        lines.append(f"{name:>21} |{line}| at most {most:.0f}")
    return "\n".join(lines)


def _highest(
    times: Sequence[float], values: Sequence[float], end: float, lasts: bool
) -> list[float]:
    """The highest value in each part of the time. What `lasts` is there until the next; the first,
    from the beginning."""
    parts: list[list[float]] = [[] for _ in range(_WIDTH)]
    for time, value in zip(times, values, strict=True):
        parts[min(_WIDTH - 1, int(time / end * _WIDTH)) if end else 0].append(value)
    found: list[float] = []
    before = values[0]
    for part in parts:
        found.append(max([before, *part] if lasts else part, default=0.0))
        before = part[-1] if part else before
    return found
