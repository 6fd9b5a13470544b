"""`penstock learn` in a shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Penstock = Callable[..., Any]
Files = Callable[..., tuple[Path, Path]]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Write good and bad lines."""

    def write(good: list[Any], bad: list[Any]) -> tuple[Path, Path]:
        paths = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
        for path, lines in zip(paths, (good, bad), strict=True):
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return paths

    return write


def steps(*cases: str) -> list[dict[str, Any]]:
    """One event for each step; the cases take turns."""
    left = [case.split() for case in cases]
    longest = max(map(len, left))
    return [
        {"k": number, "do": case[at]}
        for at in range(longest)
        for number, case in enumerate(left, 1)
        if at < len(case)
    ]


def lists(*cases: str) -> list[list[dict[str, Any]]]:
    return [[{"do": step} for step in case.split()] for case in cases]


GOOD = ("pay pack send", "pay send", "wait", "pay wait send")
BAD = ("pay", "send pay", "pay send pay wait", "wait pay")
RESPONSE = (
    "4 good and 4 bad traces, 4 propositions, 742 patterns tried\n"
    "G(pay -> F send)\n"
    "    refuted by: {pay}\n"
)


def test_formulas_come_smallest_first_each_with_a_trace_that_refutes_it(
    penstock: Penstock, files: Files
) -> None:
    result = penstock("learn", *files(steps(*GOOD), steps(*BAD)), "--by", "k", "--step", "do")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith(RESPONSE)


def test_a_line_may_be_a_whole_trace(penstock: Penstock, files: Files) -> None:
    result = penstock("learn", *files(lists(*GOOD), lists(*BAD)), "--step=do")
    assert result.out.startswith(RESPONSE)


def test_propositions_may_be_given_or_be_fields_that_are_true_or_false(
    penstock: Penstock, files: Files
) -> None:
    good = [[{"a": True, "n": 1, "t": "x"}, {"b": True}], [{"b": False, "a": False}]]
    bad = [[{"a": True}], [{"a": True, "b": False}, {"a": False}]]
    out = penstock("learn", *files(good, bad), "--fields").out
    assert out.startswith("2 good and 2 bad traces, 2 propositions, 81 patterns tried\n")
    assert "G(a -> F b)\n    refuted by: {a}\n" in out
    out = penstock("learn", *files(good, bad), "--prop", "one=n:1", "--prop=b=b").out
    assert "2 propositions" in out
    both = penstock("learn", *files(good, bad), "--prop=x=t:x", "--fields", "--step=n").out
    assert "4 propositions" in both


def test_a_step_that_is_not_a_text_is_named_as_prop_of_monitor_has_it(
    penstock: Penstock, files: Files
) -> None:
    good, bad = files([[{"n": True}, {"n": ["\xe4"]}]], [[{"n": 5}]])
    out = penstock("learn", good, bad, "--step=n").out
    assert '"true"' in out
    assert 'F "[\\"\xe4\\"]"' in out


def test_a_name_that_a_prop_defines_means_that_only(penstock: Penstock, files: Files) -> None:
    # As steps, or as a field, both cases have an "x".
    good, bad = [[{"s": "x", "x": True, "n": 1}]], [[{"s": "x", "x": True, "n": 2}]]
    result = penstock("learn", *files(good, bad), "--step=s", "--fields", "--prop=x=n:1")
    assert (result.status, result.err) == (0, "")
    assert "1 proposition," in result.out


def test_a_step_and_a_field_of_one_name_are_not_taken_for_one_proposition(
    penstock: Penstock, files: Files
) -> None:
    good, bad = [[{"s": "x", "x": False}]], [[{"s": "y", "x": True}]]
    result = penstock("learn", *files(good, bad), "--step=s", "--fields")
    assert (result.status, result.out) == (2, "")
    assert "'x' is a step of 's' (--step) and a field (--fields)" in result.err


def test_where_nothing_separates_the_traces_that_are_wrong_are_named_and_the_status_is_1(
    penstock: Penstock, files: Files
) -> None:
    good, bad = files(steps(*GOOD), steps(*BAD, "pay send"))
    result = penstock("learn", good, bad, "--by=k", "--step=do")
    assert result.status == 1
    assert result.out.splitlines()[1:5] == [
        "none separates them, and no two together; these get the fewest wrong:",
        "G(pay -> F send)",
        "    holds on bad: 5",
        "    refuted by: {pay}",
    ]
    assert result.out.count("refuted by") == 3


def test_of_many_wrong_traces_ten_are_named(penstock: Penstock, files: Files) -> None:
    good, bad = files(lists(*["a"] * 15), lists(*["a"] * 12))
    out = penstock("learn", good, bad, "--step=do").out
    assert "    holds on bad: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more\n" in out


def test_bad_lines_are_named_and_left_out_and_the_status_is_3(
    penstock: Penstock, files: Files
) -> None:
    good, bad = files(lists(*GOOD), lists(*BAD))
    good.write_text(good.read_text() + '[]\n{"do": "pay"}\n[1]\n')
    result = penstock("learn", good, bad, "--step=do")
    assert result.status == 3
    assert result.out.startswith(RESPONSE)
    for number in (5, 6, 7):
        assert (
            f"line {number} is not a trace: a list of one or more events is needed, or --by FIELD"
            in result.err
        )
    keyed = penstock("learn", *files([*steps(*GOOD), {"do": "pay"}, []], steps(*BAD)), "--by=k",
                     "--step=do")  # fmt: skip
    assert keyed.status == 3
    assert "has no field 'k' (--by), left out: {'do': 'pay'}" in keyed.err
    assert keyed.out.startswith(RESPONSE)


def test_the_formulas_can_be_written_to_a_file(
    penstock: Penstock, files: Files, tmp_path: Path
) -> None:
    target = tmp_path / "rules.txt"
    pair = files(lists(*GOOD), lists(*BAD))
    assert penstock("learn", *pair, "--step=do", "--output", target).out == ""
    assert target.read_text().startswith(RESPONSE)


@pytest.mark.parametrize(
    ("good", "options", "said"),
    [
        (lists("a"), [], "there are no propositions: give --prop, --step or --fields"),
        ([], ["--step=do"], "good.jsonl has no traces"),
        (lists("a"), ["--prop=x"], "it should be NAME=FIELD:VALUE"),
        (lists(" ".join(f"s{n}" for n in range(21))), ["--step=do"], "more than 20 propositions"),
        (lists("a"), ["--step=do", "--", "x"], "takes nothing after `--`: x"),
    ],
)
def test_a_mistake_is_reported_without_a_traceback(
    penstock: Penstock, files: Files, good: list[Any], options: list[str], said: str
) -> None:
    result = penstock("learn", *files(good, lists("b")), *options)
    assert (result.status, result.out) == (2, "")
    assert said in result.err
    assert "Traceback" not in result.err


def test_a_file_that_is_missing_is_named(penstock: Penstock, tmp_path: Path) -> None:
    result = penstock("learn", tmp_path / "none.jsonl", tmp_path / "none.jsonl", "--step=do")
    assert result.status == 2
    assert "none.jsonl" in result.err


def test_a_proposition_about_a_field_that_no_event_has_is_told(
    penstock: Penstock, files: Files
) -> None:
    pair = files(lists(*GOOD), lists(*BAD))
    result = penstock("learn", *pair, "--prop=p=do:pay", "--prop=q=Do:send")
    assert result.err.splitlines() == [
        "penstock: --prop q=Do:send: no event has the field 'Do'; the first has: do"
    ]
