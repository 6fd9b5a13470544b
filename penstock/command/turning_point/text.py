"""The table, the last lines and the picture of `penstock turning-point`."""

from __future__ import annotations

from penstock.command.turning_point.climb import FACTOR, Climb, Step, turning_point
from penstock.streams.pictures.curves import as_svg

__all__ = ["as_picture", "as_row", "end_as_text", "heading"]

_WIDTHS = (10, 10, 10, 10, 8, 7, 13)


def heading(light: float) -> str:
    """The lines above the table; `light` is the response time of light load in seconds."""
    names = ("R/s", "ended/s", "T ms", "p95 ms", "batch", "limit", "utilisation")
    return f"light load, one event after the other: T = {_ms(light)} ms\n{_line(names)}"


def as_row(step: Step) -> str:
    """The line of one rate."""
    return _line(
        (
            _number(step.rate),
            _number(step.done),
            _ms(step.mean),
            _ms(step.p95),
            "" if step.batch is None else f"{step.batch:,.1f}",
            "" if step.limit is None else f"{step.limit:,}",
            f"{step.utilisation:.0%}",
        )
    )


def end_as_text(climb: Climb) -> str:
    """Where T turns up, of a climb with steps."""
    last, turning = climb.steps[-1], turning_point(climb.steps)
    if last.mean <= FACTOR * climb.light:
        return (
            f"T has not turned up at {_number(last.rate)}/s, where the events ended: give more, or "
            "--repeat\n"
        )
    return (
        f"T turns up at {_number(turning.rate)}/s: T = {_ms(turning.mean)} ms there, and "
        f"{_ms(last.mean)} ms at {_number(last.rate)}/s\n"
    )


def as_picture(name: str, climb: Climb) -> str:
    """The response time at each rate as SVG, for a climb with steps."""
    points = [(step.rate, step.mean * 1000) for step in climb.steps]
    turning = climb.steps.index(turning_point(climb.steps))
    title = f"{name}: response time in ms"
    return as_svg(title, "events per second", {"": points}, [turning])


def _line(cells: tuple[str, ...]) -> str:
    return "".join(cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True)) + "\n"


def _number(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _ms(seconds: float) -> str:
    return _number(seconds * 1000)
