"""The page of statistics has a line for every number and every reason, and no others."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from penstock.streams.diagnostics.histogram import Summary
from penstock.streams.groups.closed_early import _ADVICE  # pyright: ignore[reportPrivateUsage]
from penstock.streams.running.report import (
    _HOW_IT_ENDED,  # pyright: ignore[reportPrivateUsage]
    Outcome,
    Report,
)
from penstock.streams.runtime.sources import TOTALS

HOME = Path(__file__).parents[2]
PAGE = (HOME / "docs/statistics.md").read_text(encoding="utf-8")
PACKAGES = ("streams", "operators", "sources", "sinks")
LIMITS = HOME / "streams/limits"

# The heading, and the stage, under which the page has the numbers of a function.
STAGES = {
    "streams/running/report.py:snapshot": ("The whole pipeline", ""),
    "streams/running/report.py:numbers_of": ("Every stage", ""),
    "streams/runtime/context.py:_placed_statistics": ("Every stage", ""),
    "streams/recording/arrows.py:counted_statistics": ("Every stage", ""),
    "streams/workers/numbers.py:stage_statistics": ("Every stage that runs in workers", ""),
    "streams/failures/error_policy.py:statistics": ("Every stage with `on_error`", ""),
    "streams/stages/source_stage.py:statistics": ("Sources", "every source"),
    "streams/io/line_source.py:statistics": ("Sources", "`read_lines`, `read_jsonl`, `read_csv`"),
    "streams/sql_queue/reader.py:statistics": ("Sources", "`read_table`"),
    "streams/sql_queue/growing_reader.py:statistics": ("Sources", "`read_table(from_id=)`"),
    "streams/sql_queue/growing_ids.py:statistics": ("Sources", "`read_table(from_id=)`"),
    "streams/sql_queue/growing_times.py:statistics": ("Sources", "`read_table(from_id=)`"),
    "streams/nats/streams/reading.py:statistics": ("Sources", "`read_jetstream`"),
    "streams/nats/streams/whole.py:statistics": ("Sources", "`read_jetstream`"),
    "streams/nats/cluster/deliveries.py:statistics": ("Sources", "`jetstream` of `run --on`"),
    "streams/kafka/reading.py:statistics": ("Sources", "`read_kafka`"),
    "streams/work_pulling/jetstream_worker.py:statistics": ("Sources", "`WorkPool.work`"),
    "streams/inbox/reader.py:statistics": ("Sources", "`inbox`"),
    "streams/boundary/from_iterable.py:statistics": (
        "Sources",
        "`from_iterable`, `from_async_iterable`, `queue_stats`",
    ),
    "streams/boundary/from_observable.py:statistics": ("Sources", "`Flowable.of`"),
    "streams/keyed/distinct.py:statistics": ("Operators", "`distinct_within`"),
    "streams/keyed/overflow.py:statistics": ("Operators", "`group_by`"),
    "streams/keyed/stage.py:group_statistics": ("Operators", "`group_by`"),
    "streams/groups/substreams.py:group_statistics": ("Operators", "`group_by`"),
    "streams/keyed/stage.py:spread_statistics": ("Operators", "`spread` of groups"),
    "streams/rx/combining/spreader.py:statistics": ("Operators", "`spread` of iterables"),
    "streams/execution/worker_stage.py:statistics": (
        "Operators",
        "`adaptive_flat_map`, `WorkPool.work`",
    ),
    "streams/limits/shared.py:statistics": ("Operators", "a shared limit"),
    "streams/execution/batch_stage.py:statistics": ("Operators", "`batch`"),
    "streams/work_pulling/offering.py:statistics": ("Operators", "`WorkPool.offer`"),
    "operators/chunk.py:statistics": ("Operators", "`chunk`"),
    "operators/rate_limit.py:statistics": ("Operators", "`rate_limit`"),
    "streams/state/stage.py:statistics": ("Operators", "`stateful`"),
    "streams/event_time/line.py:statistics": ("Operators", "`event_time`"),
    "streams/event_time/source_time.py:statistics": ("Operators", "`event_time`"),
    "streams/windows/stage.py:statistics": ("Operators", "`window`"),
    "streams/joins/join_stage.py:statistics": ("Operators", "`join`"),
    "streams/joins/lookup_stage.py:statistics": ("Operators", "`lookup`"),
    "streams/joins/whole_stage.py:statistics": ("Operators", "`lookup` in a `table(whole=True)`"),
    "streams/joins/database_stage.py:statistics": ("Operators", "`lookup` in a `database_table`"),
    "streams/joins/sides.py:statistics": (
        "Operators",
        "`stateful`, `window`, `join`, `lookup`, `count_over_time`, others with a store",
    ),
    "streams/state/held_stage.py:statistics": (
        "Operators",
        "`stateful`, `window`, `join`, `lookup`, `count_over_time`, others with a store",
    ),
    "streams/monitoring/watching.py:statistics": ("Operators", "`monitor`, `violations`"),
    "streams/monitoring/timed_watching.py:statistics": (
        "Operators",
        "`monitor`, `violations`",
    ),
    "streams/monitoring/kept_watching.py:statistics": ("Operators", "`monitor`, `violations`"),
    "operators/violations.py:statistics": ("Operators", "`monitor`, `violations`"),
    "streams/monitoring/counting.py:statistics": ("Operators", "`count_over_time`"),
    "streams/monitoring/watermarks.py:statistics": (
        "Operators",
        "`watermarks`, in front of `count_over_time`",
    ),
    "streams/rx/lifted.py:statistics": ("Operators", "operators of reactivex"),
    "streams/rx/lists.py:statistics": ("Operators", "operators of reactivex"),
    "streams/rx/combining/flat_map.py:statistics": ("Operators", "operators of reactivex"),
    "operators/rx/combine_latest.py:statistics": ("Operators", "operators of reactivex"),
    "operators/rx/sample.py:statistics": ("Operators", "operators of reactivex"),
    "operators/rx/sequence_equal.py:statistics": ("Operators", "operators of reactivex"),
    "operators/rx/with_latest_from.py:statistics": ("Operators", "operators of reactivex"),
    "streams/rx/combining/several.py:statistics": ("Operators", "operators of reactivex"),
    "streams/rx/combining/switching.py:statistics": ("Operators", "operators of reactivex"),
    "streams/rx/combining/sharing.py:shared_statistics": ("Operators", "a shared stream"),
    "streams/rx/combining/sharing.py:statistics": ("Sources", "a reader of a shared stream"),
    "streams/rx/combining/succession.py:statistics": (
        "Operators",
        "`concat`, `catch`, `retry` and their like",
    ),
    "streams/io/line_writer.py:statistics": ("Sinks", "`write_jsonl`, `write_csv`"),
    "streams/io/rotating_writer.py:statistics": ("Sinks", "`write_jsonl`, `write_csv`"),
    "streams/sql_queue/writer.py:statistics": ("Sinks", "`write_table`"),
    "streams/nats/streams/writing.py:statistics": ("Sinks", "`write_jetstream`"),
    "streams/kafka/writing.py:statistics": ("Sinks", "`write_kafka`"),
    "streams/kafka/transactional.py:statistics": ("Sinks", "`write_kafka` with `transactional`"),
    "streams/execution/for_each_stage.py:statistics": ("Sinks", "`for_each`"),
    "streams/stages/latency_stage.py:statistics": ("Sinks", "`latency_histogram`"),
    "streams/diagnostics/key_latencies.py:statistics": ("Sinks", "`latency_histogram`"),
    "streams/stages/objective_stage.py:statistics": ("Sinks", "`objective`"),
    "streams/diagnostics/objective.py:statistics": ("Sinks", "`objective`"),
    "streams/work_pulling/working.py:statistics": ("Sinks", "the reports of `WorkPool.work`"),
}
_FUNCTIONS = re.compile(r"statistics|\w+_statistics|snapshot|numbers_of")


# Not while tests are collected, which each process does for itself; and once, for it takes seconds.
@cache
def trees(folder: Path) -> list[tuple[Path, ast.Module]]:
    return [
        (path, ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(folder.rglob("*.py"))
        if "testing" not in path.parts
    ]


def texts_of(node: ast.AST | None) -> set[str]:
    """A string, or both of a conditional expression."""
    if isinstance(node, ast.IfExp):
        return texts_of(node.body) | texts_of(node.orelse)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    return set()


def keys_in(function: ast.FunctionDef) -> set[str]:
    """The names that a function gives to numbers."""
    keys: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Dict):
            keys |= {key for one in node.keys for key in texts_of(one)}
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            keys |= texts_of(node.slice)
    return keys


@cache
def numbers_in_the_code() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for package in PACKAGES:
        for path, tree in trees(HOME / package):
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef) and _FUNCTIONS.fullmatch(node.name):
                    name = f"{path.relative_to(HOME)}:{node.name}"
                    if keys := keys_in(node):
                        found[name] = found.get(name, set()) | keys
    # These come from a constant.
    found["streams/running/report.py:snapshot"] |= set(TOTALS)
    of_both = found.pop("streams/execution/calling_stage.py:statistics")
    for stage in ("worker", "batch"):
        found[f"streams/execution/{stage}_stage.py:statistics"] |= of_both
    return found


def rows_of(heading: str) -> list[list[str]]:
    """The cells of all rows under a heading, without the head of a table."""
    _, found, section = PAGE.partition(f"# {heading}\n")
    assert found, heading
    section = re.split(r"^#", section, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line[:1] == "|"]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    heads = {i - 1 for i, row in enumerate(rows) if set(row[0]) == {"-"}}
    return [row for i, row in enumerate(rows) if i not in heads and i - 1 not in heads]


def quoted(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


def numbers_on_the_page() -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    everywhere = "Every stage", "Every stage that runs in workers", "Every stage with `on_error`"
    for heading in ("The whole pipeline", *everywhere):
        found[heading, ""] = {name for row in rows_of(heading) for name in quoted(row[0])}
    for heading in ("Sources", "Operators", "Sinks"):
        stage = ""
        for first, names, _ in rows_of(heading):
            stage = first or stage
            found.setdefault((heading, stage), set()).update(quoted(names))
    return found


# What the page says once for all.
OF_EVERY_SOURCE = set(TOTALS) | {"dropped"}


def test_every_function_of_statistics_has_a_place_on_the_page() -> None:
    assert set(numbers_in_the_code()) == set(STAGES)


@pytest.mark.parametrize("stage", sorted(set(STAGES.values())), ids=" ".join)
def test_a_stage_s_lines_are_those_of_its_numbers(stage: tuple[str, str]) -> None:
    code = numbers_in_the_code()
    numbers: set[str] = set()
    for name, place in STAGES.items():
        if place == stage:
            numbers |= code[name]
    of_faults = code["streams/failures/error_policy.py:statistics"]
    said_of_all = {"Sources": OF_EVERY_SOURCE, "Operators": of_faults, "Sinks": of_faults}
    listed = numbers_on_the_page()[stage]
    assert listed <= numbers
    assert numbers - said_of_all.get(stage[0], set()) <= listed


def test_the_page_has_no_other_stages() -> None:
    assert set(numbers_on_the_page()) == set(STAGES.values())


def test_every_cause_of_a_dropped_event_has_a_line() -> None:
    causes: set[str] = set()
    modules = [tree for package in PACKAGES for _, tree in trees(HOME / package)]
    constants = {
        getattr(node.targets[0], "id", ""): texts_of(node.value)
        for tree in modules
        for node in tree.body
        if isinstance(node, ast.Assign)
    }

    def named(cause: ast.expr) -> set[str]:
        return constants.get(cause.id, set()) if isinstance(cause, ast.Name) else texts_of(cause)

    for tree in modules:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in ("drop", "drop_all") and node.args:
                    causes |= named(node.args[-1])
                elif name == "Family":
                    causes |= named(node.args[1])
                elif name == "count_ends":
                    causes |= texts_of(node.args[3])
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "cause":
                causes |= texts_of(node.value) - {""}
            elif (
                isinstance(node, ast.Subscript)
                and isinstance(node.ctx, ast.Store)
                and getattr(node.value, "attr", "") == "drops"
            ):
                causes |= texts_of(node.slice)
    rows = rows_of("Why an event was dropped")
    assert {"duplicate", "no results", "overflow"} <= causes
    assert {name for row in rows for name in quoted(row[0])} == causes


def parameters(*modules: ast.Module) -> dict[str, int]:
    """The position of the reason among the arguments of each function of these modules."""
    places: dict[str, int] = {}
    for tree in modules:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                names = [arg.arg for arg in node.args.args if arg.arg != "self"]
                if "reason" in names:
                    places[node.name] = names.index("reason")
    return places


def reasons_in(tree: ast.AST, places: dict[str, int]) -> set[str]:
    """The strings that are assigned to a `reason`, or passed as one."""
    reasons: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            place = places.get(getattr(node.func, "attr", ""))
            if place is not None and len(node.args) > place:
                reasons |= texts_of(node.args[place])
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=True))
                for one, value in pairs:
                    if getattr(one, "attr", getattr(one, "id", "")) == "reason" or (
                        isinstance(one, ast.Subscript) and texts_of(one.slice) == {"limit_reason"}
                    ):
                        reasons |= texts_of(value)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if texts_of(key) == {"limit_reason"}:
                    reasons |= texts_of(value)
    return reasons


def reasons(*, of_sizes: bool) -> set[str]:
    # Reasons common to limiters are in their base class, and those of the stage in these.
    base = ast.parse((LIMITS / "windowed.py").read_text(encoding="utf-8"))
    stages = {
        HOME / "streams" / name
        for name in (
            "execution/limit_control.py",
            "execution/worker_stage.py",
        )
    }
    found: set[str] = set()
    for path, tree in trees(HOME / "streams"):
        is_one = path.parent == LIMITS or path in stages
        if is_one and (path.name == "batch_size.py") is of_sizes:
            found |= reasons_in(tree, parameters(base, tree))
    return found


@pytest.mark.parametrize(("head", "of_sizes"), [("reason", False), ("size reason", True)])
def test_every_reason_has_a_line(head: str, of_sizes: bool) -> None:
    _, _, table = PAGE.partition(f"\n| {head} |")
    rows = table.partition("\n\n")[0].splitlines()[2:]
    found = reasons(of_sizes=of_sizes)
    assert "start" in found
    assert {name for row in rows for name in quoted(row.split("|")[1])} == found


def test_every_number_of_a_latency_has_a_line() -> None:
    listed = {name for row in rows_of("Latency") for name in quoted(row[0])}
    assert listed == {field.name for field in fields(Summary)}


def test_every_field_of_the_report_and_every_outcome_has_a_line() -> None:
    listed = {name: row for row in rows_of("The report") for name in quoted(row[0])}
    outcomes = set(get_args(Outcome))
    assert set(listed) == outcomes | set(Report._fields) | {"exit_status"}
    assert {name: listed[name][1] for name in outcomes} == _HOW_IT_ENDED


def test_every_cause_of_a_group_closed_early_is_named() -> None:
    (line,) = [row for row in rows_of("The whole pipeline") if row[0] == "`closed_early`"]
    assert set(_ADVICE) <= quoted(line[1])
