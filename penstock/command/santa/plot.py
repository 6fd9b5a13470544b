"""The story as a picture: queue, in flight and limit above, the time in the system below."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.command.santa.story import Curve
from penstock.streams.errors import CannotOpen
from penstock.streams.extras import missing_extra

__all__ = ["check", "plot"]


def check(path: str) -> None:
    """Raise what `plot` would: the story takes a minute, too long to learn then that it cannot."""
    pyplot = _pyplot()
    forms = pyplot.figure().canvas.get_supported_filetypes()
    pyplot.close()
    place = Path(path)
    if place.suffix.removeprefix(".").lower() not in forms:
        raise CannotOpen(
            f"Cannot write {path}: the suffix says the form, and may be .svg, .png or .pdf"
        )
    if not place.parent.is_dir():
        raise CannotOpen(f"Cannot write {path}: there is no folder {place.parent}")


def plot(curve: Curve, title: str, path: str) -> None:
    """Draw to `path`, whose suffix (.svg, .png, .pdf) says the form.

    Raises MissingExtra without matplotlib, CannotOpen where the file cannot be written.
    """
    pyplot = _pyplot()
    figure: Any
    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(9, 6))
    above.step(curve.time, curve.queue, where="post", label="queue")
    above.step(curve.time, curve.in_flight, where="post", label="in flight")
    above.step(curve.time, curve.limit, where="post", label="limit", linestyle="--")
    above.set_ylabel("jobs")
    above.set_title(title)
    above.legend(loc="upper left")
    below.plot(curve.done_at, curve.total, ".", markersize=4)
    below.set_ylabel("seconds in the system")
    below.set_xlabel("seconds of the story")
    for axes in (above, below):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    figure.tight_layout()
    try:
        figure.savefig(Path(path))
    except (OSError, ValueError) as error:
        raise CannotOpen(f"Cannot write {path}: {error}") from error
    finally:
        pyplot.close(figure)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise missing_extra("Leave --plot out, for a plot needs matplotlib", "plots") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
