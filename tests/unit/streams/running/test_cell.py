"""What a notebook shows of a run."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType
from typing import Any

import pytest

from penstock import Report, adaptive_flat_map, from_iterable, read_lines
from penstock.streams.base.errors import BuildError
from penstock.streams.testing import MemorySink
from penstock.streams.testing.plugin import Run


class Notebook:
    """What a notebook's IPython has, as far as a display needs it, and what it has shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[float, str]] = []
        self.kernel = "a kernel"

    def display(self, value: Any, *, display_id: bool) -> Notebook:
        assert display_id
        self.update(value)
        return self

    def update(self, value: Any) -> None:
        self.shown.append((round(asyncio.get_running_loop().time(), 3), value._repr_html_()))


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    found, ipython, display = Notebook(), ModuleType("IPython"), ModuleType("IPython.display")
    ipython.__dict__["get_ipython"] = lambda: found
    display.__dict__["display"] = found.display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return found


async def work(number: int) -> int:
    await asyncio.sleep(1)
    return number


PIPELINE = from_iterable([1, 2]).pipe(adaptive_flat_map(work, 1)).to(MemorySink())


def test_progress_is_shown_twice_a_second_and_then_the_report(run: Run, notebook: Notebook) -> None:
    report = run(PIPELINE.run(progress=True))
    begun = notebook.shown[0][0]
    assert [round(at - begun, 3) for at, _ in notebook.shown] == [0, 0.5, 1, 1.5, 2, 2]
    assert "not ended (running)" in notebook.shown[1][1]
    assert notebook.shown[-1][1] == report._repr_html_() == f"<pre>{report}</pre>"


def test_an_interrupted_cell_shows_the_report_which_is_on_the_error_too(
    run: Run, notebook: Notebook
) -> None:
    async def story() -> asyncio.CancelledError:
        cell = asyncio.ensure_future(PIPELINE.run(progress=True))
        await asyncio.sleep(1.2)
        cell.cancel()
        with pytest.raises(asyncio.CancelledError) as raised:
            await cell
        shown = len(notebook.shown)
        await asyncio.sleep(5)
        assert len(notebook.shown) == shown
        return raised.value

    (note,) = run(story()).__notes__
    assert ": cancelled after 1.2 s" in note
    assert notebook.shown[-1][1] == f"<pre>{note}</pre>"


def test_progress_is_refused_where_there_is_no_notebook(
    run: Run, notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    del notebook.kernel  # As in a terminal.
    with pytest.raises(BuildError, match="in the cell of a notebook, and this is not one"):
        run(PIPELINE.run(progress=True))
    monkeypatch.delitem(sys.modules, "IPython")
    with pytest.raises(BuildError, match="in the cell of a notebook, and this is not one"):
        run(PIPELINE.run(progress=True))


@pytest.mark.parametrize("every", [0, -1, "x", True])
def test_seconds_between_updates_must_be_positive(run: Run, notebook: Notebook, every: Any) -> None:
    async def story() -> None:
        async with PIPELINE.start() as running:
            running.show_progress(every)

    with pytest.raises(BuildError, match=r"show_progress\(every="):
        run(story())


def test_a_running_pipeline_shows_its_numbers_and_how_much_of_the_input_is_done(
    run: Run, tmp_path: Any
) -> None:
    path = tmp_path / "lines"
    path.write_text("a\nb\nc\nd\n")

    async def wait(_: str) -> None:
        await asyncio.sleep(1)

    async def story() -> None:
        pipeline = read_lines(path).pipe(adaptive_flat_map(wait, 1)).to(MemorySink())
        async with pipeline.start() as running:
            await asyncio.sleep(1.5)
            shown = running._repr_html_()
            assert shown == running.report()._repr_html_()
            assert shown.startswith('<progress value="0.250"></progress><pre>')
            assert "1 finished" in shown
        assert "<progress" not in running._repr_html_()

    run(story())


def test_the_text_of_a_report_is_text_in_a_notebook_too() -> None:
    numbers = PIPELINE_NUMBERS | {"dropped": {"<b>": 1}}
    assert "dropped (&lt;b&gt;)" in Report("completed", numbers)._repr_html_()


PIPELINE_NUMBERS: dict[str, Any] = {
    "seconds": 2.0,
    **dict.fromkeys(("in", "finished", "failed", "returned", "waiting", "in_flight"), 0),
    "bad_lines": 0,
    "closed_early": {},
    "latency": None,
    "stages": [],
}
