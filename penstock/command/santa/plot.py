"""The article's two plots, one below the other, and those of a race."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from penstock.command.santa.story import Curve
from penstock.streams.base.errors import CannotOpen
from penstock.streams.base.extras import missing_extra

__all__ = ["check", "plot", "plot_race"]

# Enough for the width of a picture, and a small file.
_POINTS = 240

# Matplotlib has others, some of them only with further packages.
_FORMS = (".svg", ".png", ".pdf")

_SETTINGS = {
    # The same story gives the same file, and text stays text.
    "svg.hashsalt": "santa",
    "svg.fonttype": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def check(path: str) -> None:
    """Raise what `plot` would: the story takes a minute, too long to learn then that it cannot."""
    _pyplot()
    place = Path(path)
    if place.suffix.lower() not in _FORMS:
        raise CannotOpen(
            f"Cannot write {path}: the suffix says the form, and may be .svg, .png or .pdf"
        )
    if not place.parent.is_dir():
        raise CannotOpen(f"Cannot write {path}: there is no folder {place.parent}")


def plot(curve: Curve, title: str, path: str, shift: float | None = None) -> None:
    """Draw to `path`, whose suffix (.svg, .png, .pdf) says the form.

    Queue and parallelism above, time in the system and time processing below. At the second
    `shift` of the story there is a line. Raises MissingExtra without matplotlib, CannotOpen where
    the file cannot be written.
    """
    pyplot = _pyplot()
    with pyplot.rc_context(_SETTINGS):
        above, below = _axes(pyplot, title, ("jobs", "seconds"))
        above.step(*_minutes(curve.time, curve.queue), where="post", label="queue")
        above.step(*_minutes(curve.time, curve.in_flight), where="post", label="in flight")
        # A limit that no number of jobs ever reached, as a naive one, would flatten the rest.
        if min(curve.limit) <= max(curve.in_flight):
            above.step(
                *_minutes(curve.time, curve.limit), where="post", label="parallelism", color="0.3"
            )
        below.plot(*_means(curve.done_at, curve.total), label="time in the system")
        below.plot(*_means(curve.done_at, curve.processing), label="time processing")
        _draw_shift((above, below), shift)
        above.legend(loc="upper right")
        below.legend(loc="upper right")
        _save(pyplot, (above, below), path)


def plot_race(curves: dict[str, Curve], title: str, path: str, shift: float | None = None) -> None:
    """Draw several stories in one picture: queues, jobs in flight and times in the system.

    The arguments and errors are those of `plot`.
    """
    pyplot = _pyplot()
    with pyplot.rc_context(_SETTINGS):
        labels = ("queue", "in flight", "seconds in the system")
        queues, in_flight, totals = rows = _axes(pyplot, title, labels)
        for name, curve in curves.items():
            queues.plot(*_means(curve.time, curve.queue), label=name)
            in_flight.plot(*_means(curve.time, curve.in_flight), label=name)
            totals.plot(*_means(curve.done_at, curve.total), label=name)
        totals.set_yscale("log")
        totals.yaxis.set_major_formatter("{x:g}")
        _draw_shift(rows, shift)
        queues.legend(loc="upper left")
        _save(pyplot, rows, path)


def _axes(pyplot: Any, title: str, labels: Sequence[str]) -> Any:
    """One below the other, with the label of each axis."""
    _, rows = pyplot.subplots(
        len(labels), 1, sharex=True, figsize=(9, 1 + 2.5 * len(labels)), layout="constrained"
    )
    rows[0].set_title(title)
    rows[-1].set_xlabel("minutes of the story")
    for axes, label in zip(rows, labels, strict=True):
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    return rows


def _draw_shift(rows: Sequence[Any], shift: float | None) -> None:
    if shift is not None:
        for axes in rows:
            axes.axvline(shift / 60, color="0.5", linestyle="dashed", label="cores taken away")


def _save(pyplot: Any, rows: Sequence[Any], path: str) -> None:
    for axes in rows:
        if axes.get_yscale() == "linear":
            axes.set_ylim(bottom=0)
    figure = rows[0].figure
    undated = {"Date": None} if path.lower().endswith(".svg") else None
    try:
        figure.savefig(Path(path), metadata=undated)
    except (OSError, ValueError) as error:
        raise CannotOpen(f"Cannot write {path}: {error}") from error
    finally:
        pyplot.close(figure)


def _minutes(times: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    return [time / 60 for time in times], list(values)


def _means(times: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Times and mean values of at most `_POINTS` parts of the story."""
    parts: dict[int, list[float]] = {}
    for time, value in zip(times, values, strict=True):
        parts.setdefault(int(time / times[-1] * _POINTS) if times[-1] else 0, []).append(value)
    middles = [(part + 0.5) * times[-1] / _POINTS for part in parts]
    return _minutes(middles, [fmean(values) for values in parts.values()])


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise missing_extra("Leave --plot out, for a plot needs matplotlib", "plots") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
