"""The table and the plots of `python -m benchmarks.limits`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from benchmarks.limits.__main__ import LIMITERS, table
from benchmarks.limits.plots import draw, require_matplotlib
from benchmarks.limits.scenarios import EXTRAS
from penstock.streams.base.errors import MissingExtra


def test_the_table_has_a_mean_for_each_plant_and_limiter_and_the_worst_of_the_default() -> None:
    results = [{name: [0.5, 0.7] for name in LIMITERS}, {name: [1.0, 0.8] for name in LIMITERS}]
    heading, _, one, other, last = table("plant", ["one", "other"], results).splitlines()
    assert heading.split()[0] == "plant"
    assert one.split() == ["one", *["0.60"] * len(LIMITERS), "0.50"]
    assert other.split() == ["other", *["0.90"] * len(LIMITERS), "0.80"]
    assert last.split() == ["mean", *["0.75"] * len(LIMITERS), "0.60"]


def test_a_plot_is_drawn_as_png_and_as_svg_the_same_each_time(tmp_path: Path) -> None:
    scenario = next(s for s in EXTRAS if s.name == "one server")
    first = draw(scenario, tmp_path / "first")
    assert [path.name for path in first] == ["one-server.png", "one-server.svg"]
    assert first[0].read_bytes().startswith(b"\x89PNG")
    svg = first[1].read_text(encoding="utf-8")
    for word in ("limit", "in flight", "latency", "seconds"):
        assert word in svg
    assert svg == draw(scenario, tmp_path / "second")[1].read_text(encoding="utf-8")


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"\[plots\]"):
        require_matplotlib()
