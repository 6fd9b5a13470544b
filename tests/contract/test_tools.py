"""What Python's own tools see of handlers: the same, whether or not the library is compiled."""

from __future__ import annotations

import ast
import asyncio
import copy
import io
import linecache
import pdb
import pickle
import sys
import trace
import traceback
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from reactivex import operators as rx

from penstock import (
    Event,
    Fixed,
    adaptive_flat_map,
    batch,
    collect,
    distinct_within,
    for_each,
    from_iterable,
    group_by,
    spread,
)
from penstock.command.explain import explain
from penstock.streams.protocol.acknowledgement import NOBODY, Nobody
from penstock.streams.protocol.event import Decoded
from penstock.streams.testing.plugin import Run

HOME = Path(__file__).parents[2]


def plain(value: int) -> int:
    doubled = value * 2
    return doubled


async def awaited(value: int) -> int:
    doubled = value * 2
    await asyncio.sleep(0)
    return doubled


async def several(value: int) -> AsyncIterator[int]:
    doubled = value * 2
    yield doubled


HANDLERS: list[Callable[[int], Any]] = [plain, awaited, several]


def lines_of(function: Callable[..., Any]) -> list[int]:
    """The numbers of the lines in the body of a function."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    (found,) = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name == function.__name__
    ]
    return [statement.lineno for statement in found.body]


def works_with(handler: Callable[[int], Any], run: Run) -> list[int]:
    into: list[int] = []
    grouped = group_by(lambda value: value), spread(), adaptive_flat_map(handler, Fixed(2))
    run(from_iterable([1, 2]).pipe(*grouped).to(collect(into)).run())
    return into


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_trace_function_sees_each_line_of_a_handler(
    handler: Callable[[int], Any], run: Run
) -> None:
    seen: list[int] = []

    def traced(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code is not handler.__code__:
            return None
        if event == "line":
            seen.append(frame.f_lineno)
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        works_with(handler, run)
    finally:
        sys.settrace(before)
    assert sorted(set(seen)) == lines_of(handler)


@pytest.mark.parametrize("handler", HANDLERS)
def test_coverage_counts_each_line_of_a_handler(handler: Callable[[int], Any], run: Run) -> None:
    tracer = trace.Trace(count=True, trace=False)
    before = sys.gettrace()
    try:
        tracer.runfunc(works_with, handler, run)
    finally:
        sys.settrace(before)
    counts = tracer.results().counts
    assert [counts.get((__file__, line)) for line in lines_of(handler)] == [2] * len(
        lines_of(handler)
    )


@pytest.mark.parametrize("handler", HANDLERS)
def test_pdb_in_a_handler_shows_its_variables_and_its_line_and_goes_on(
    handler: Callable[[int], Any], run: Run
) -> None:
    said = io.StringIO()
    debugger = pdb.Pdb(
        stdin=io.StringIO("p value\nnext\np doubled\nup\ncontinue\n" * 9), stdout=said
    )
    debugger.use_rawinput = False
    debugger.prompt = ""

    def stopped(value: int) -> Any:
        debugger.set_trace(sys._getframe())
        doubled = value * 2
        return doubled

    async def stopped_later(value: int) -> Any:
        await asyncio.sleep(0)
        debugger.set_trace(sys._getframe())
        doubled = value * 2
        return doubled

    async def stopped_between(value: int) -> AsyncIterator[Any]:
        debugger.set_trace(sys._getframe())
        doubled = value * 2
        yield doubled

    of = {plain: stopped, awaited: stopped_later, several: stopped_between}
    before = sys.gettrace()
    try:
        assert sorted(works_with(of[handler], run)) == [2, 4]
    finally:
        sys.settrace(before)
    lines = said.getvalue().splitlines()
    assert "-> doubled = value * 2" in lines
    assert lines.count("1") == 1
    assert {"2", "4"} <= set(lines)
    assert any(f"{__file__}(" in line and "stopped" in line for line in lines)


def raises(value: Any) -> Any:
    raise ValueError(value)


async def raises_later(value: Any) -> Any:
    await asyncio.sleep(0)
    raise ValueError(value)


def _functions(path: Path) -> dict[str, list[range]]:
    """The lines of each function of a module, by its name."""
    found: dict[str, list[range]] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            name = getattr(node, "name", "<lambda>")
            assert node.end_lineno is not None
            found.setdefault(name, []).append(range(node.lineno, node.end_lineno + 1))
    return found


FAILING: dict[str, tuple[Any, ...]] = {
    "plain": (adaptive_flat_map(raises),),
    "async": (adaptive_flat_map(raises_later),),
    "batch": (batch(raises_later),),
    "map": (rx.map(raises),),
    "group_by": (group_by(raises), spread()),
    "distinct_within": (distinct_within(60, by=raises),),
    "for_each": (),
}


@pytest.mark.parametrize("where", FAILING)
def test_a_traceback_has_the_files_and_lines_of_the_library_s_functions(
    where: str, run: Run
) -> None:
    sink: Any = for_each(raises if where == "for_each" else bool)
    with pytest.raises(ValueError, match="7") as raised:
        run(from_iterable([7]).pipe(*FAILING[where]).to(sink).run())
    *_, caller, last = traceback.extract_tb(raised.value.__traceback__)
    assert (last.filename, last.line) == (__file__, "raise ValueError(value)")
    linecache.checkcache()
    # A compiled module names its source relative to the folder of the package, and its functions
    # with module and class.
    path = HOME / caller.filename
    assert path.is_file()
    name = caller.name.rpartition(".")[2]
    assert any(caller.lineno in lines for lines in _functions(path)[name])
    assert caller.line is not None
    assert "(" in caller.line or "await " in caller.line


@pytest.mark.parametrize("where", FAILING)
def test_the_command_shows_only_the_user_s_frames(where: str, run: Run) -> None:
    sink: Any = for_each(raises if where == "for_each" else bool)
    with pytest.raises(ValueError, match="7") as raised:
        run(from_iterable([7]).pipe(*FAILING[where]).to(sink).run())
    shown = explain(raised.value)
    assert "raise ValueError(value)" in shown
    assert "streams/" not in shown
    assert "sinks/" not in shown


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
@pytest.mark.parametrize("kind", [Event, Decoded])
def test_an_event_can_be_copied_and_pickled(kind: Any, again: Callable[[Any], Any]) -> None:
    event = kind([1, "two"], 0.5, NOBODY, "token")
    event.started, event.ended = 0.75, 1.0
    made = again(event)
    assert type(made) is kind
    assert isinstance(made.origin, Nobody)
    names = "value", "created", "token", "started", "ended", "pending", "level", "turn", "outer"
    assert [getattr(made, name) for name in names] == [getattr(event, name) for name in names]
