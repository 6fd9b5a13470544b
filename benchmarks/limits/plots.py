"""Plots of limit, in flight, queue and latency over time, for the default on one plant.

    python -m benchmarks.limits.plots "P5 shifting" build/limits

draws that plant alone.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.limits.scenarios import EXTRAS, PLANTS, Scenario
from benchmarks.limits.score import Oracle, oracle
from benchmarks.limits.simulate import Completion, simulate
from penstock.streams.base.extras import missing_extra
from penstock.streams.limits import default

__all__ = ["draw", "require_matplotlib"]

_POINTS = 240  # enough for the width of a picture, and a small file
_SEED = 1


def require_matplotlib() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise missing_extra("Plots need matplotlib", "plots")


def draw(scenario: Scenario, folder: Path) -> list[Path]:
    """Write a PNG and an SVG about one run into `folder`; return their paths."""
    run = simulate(scenario, default(), 1.0, _SEED)
    # Not a figure of pyplot: no window system, no state.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    name = scenario.name.lower().replace(" ", "-").replace("/", "")
    # The same run gives the same file, and text stays text.
    settings: Any = {
        "svg.hashsalt": name,
        "svg.fonttype": "none",
        "font.size": 8,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with rc_context(settings):
        figure: Any = Figure(figsize=(7, 4.2), layout="constrained")
        FigureCanvasAgg(figure)
        upper, middle, lower = figure.subplots(3, 1, sharex=True, height_ratios=(3, 1, 1))
        _limits(upper, scenario, run)
        waits = scenario.arrivals is not None
        queue = _means(run, lambda completion: completion.waiting)
        if not waits:
            # All other work waits from the start; only the queue in the plant can grow.
            queue = _means(run, lambda completion: _beyond(scenario, completion))
        middle.plot(*queue, color="tab:orange", linewidth=0.8)
        middle.set_ylabel("waiting" if waits else "beyond\nthe best")
        lower.plot(*_means(run, lambda completion: completion.latency), "tab:green", linewidth=0.8)
        lower.set_ylabel("latency (s)")
        lower.set_xlabel("seconds")
        for axes in (upper, middle, lower):
            axes.set_ylim(bottom=0)
        paths = [folder / f"{name}.{kind}" for kind in ("png", "svg")]
        figure.savefig(paths[0], dpi=120)
        figure.savefig(paths[1], metadata={"Date": None})
    return paths


def _limits(axes: Any, scenario: Scenario, run: Sequence[Completion]) -> None:
    for phase, best in zip(scenario.phases, oracle(scenario, 1.0), strict=True):
        if best is not None:
            times = (phase.begins, phase.ends)
            axes.fill_between(times, best.low, best.high, color="0.88", linewidth=0)
            axes.hlines(best.level, *times, color="0.4", linestyle="dashed", linewidth=0.8)
    axes.plot(*_means(run, lambda completion: completion.limit), "tab:blue", linewidth=1)
    axes.plot(*_means(run, lambda completion: completion.in_flight), "tab:red", linewidth=0.7)
    axes.set_title(
        f"{scenario.name}: limit (blue), in flight (red), best constant limit (dashed) "
        "and its equals (grey)",
        fontsize=8,
    )
    axes.set_ylabel("at once")


def _beyond(scenario: Scenario, completion: Completion) -> float:
    return max(0, completion.in_flight - _best(scenario, completion.time).level)


def _best(scenario: Scenario, time: float) -> Oracle:
    best = Oracle(0, 0, 0)
    for phase, found in zip(scenario.phases, oracle(scenario, 1.0), strict=True):
        if phase.begins <= time:
            best = found or Oracle(0, 0, 0)
    return best


def _means(
    run: Sequence[Completion], value: Callable[[Completion], float]
) -> tuple[list[float], list[float]]:
    """Times and mean values, at most `_POINTS`; none where nothing was completed."""
    width = run[-1].time / _POINTS
    slices: dict[int, list[float]] = {}
    for completion in run:
        slices.setdefault(int(completion.time / width), []).append(value(completion))
    return (
        [round((number + 0.5) * width, 3) for number in slices],
        [round(fmean(values), 4) for values in slices.values()],
    )


def main(name: str, folder: str) -> None:
    """Draw the plant of this name into a folder."""
    (scenario,) = [plant for plant in (*PLANTS, *EXTRAS) if plant.name == name]
    for path in draw(scenario, Path(folder)):
        print(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
