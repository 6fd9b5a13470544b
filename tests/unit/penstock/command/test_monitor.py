"""`penstock monitor` in a shell."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

Penstock = Callable[..., Any]

RULE = "G(paid -> X(!sent W packed))"
PROPS = [f"--prop={name}=type:{name}" for name in ("paid", "sent", "packed")]


@pytest.fixture
def lines(tmp_path: Any) -> Callable[..., str]:
    def write(*events: Any) -> str:
        path = tmp_path / "events.jsonl"
        path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
        return str(path)

    return write


def test_each_violation_is_a_line_of_json_and_the_status_is_1(
    penstock: Penstock, lines: Callable[..., str]
) -> None:
    events = [
        {"order": 1, "type": "paid"},
        {"order": 2, "type": "paid"},
        {"order": 1, "type": "sent"},
        {"order": 2, "type": "packed"},
    ]
    result = penstock("monitor", RULE, "--by", "order", *PROPS, "--input", lines(*events))
    assert result.status == 1
    assert [json.loads(line) for line in result.out.splitlines()] == [
        {
            "formula": RULE,
            "key": 1,
            "index": 2,
            "verdict": "false",
            "at_end": False,
            "evidence": [events[0], events[2]],
            "truncated": False,
        }
    ]
    assert result.err == ""


def test_events_that_keep_the_rule_give_status_0(
    penstock: Penstock, lines: Callable[..., str]
) -> None:
    result = penstock("monitor", "G a", "--prop=a=n:10", "--input", lines({"n": 10}, {"n": "10"}))
    assert (result.status, result.out) == (0, "")


def test_a_field_that_is_true_is_a_proposition_and_all_fields_may_be(
    penstock: Penstock, lines: Callable[..., str]
) -> None:
    path = lines({"ok": True, "n": True}, {"ok": 1, "n": False}, {})
    one = penstock("monitor", "G fine", "--prop=fine=ok", "--input", path, "--evidence=letters")
    assert json.loads(one.out)["index"] == 3
    assert json.loads(one.out)["evidence"] == [["fine"], ["fine"], []]
    every = penstock("monitor", "G n & F ok", "--fields", "--input", path, "--evidence=0")
    assert json.loads(every.out)["index"] == 2
    exact = penstock("monitor", "G n", "--prop=n=n:true", "--input", path)
    assert json.loads(exact.out)["index"] == 2


def test_bad_lines_give_status_3_where_nothing_was_violated(
    penstock: Penstock, tmp_path: Any
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"a": 1}\nbroken\n', encoding="utf-8")
    result = penstock("monitor", "G a", "--fields", "--input", str(path))
    assert result.status == 3
    assert "line 2 is not valid JSON" in result.err


def test_events_without_the_key_are_reported_and_give_status_3_where_nothing_was_violated(
    penstock: Penstock, lines: Callable[..., str]
) -> None:
    events: list[Any] = [{"a": 1}, {"a": 1, "k": 1}, {"a": 1, "k": [2]}]
    result = penstock("monitor", "G a", "--fields", "--by=k", "--input", lines(*events))
    assert (result.status, result.out) == (3, "")
    assert "the event has no field 'k'" in result.err
    assert "of type list, cannot be a key" in result.err
    worse = [*events, {"a": 0, "k": 1}]
    result = penstock("monitor", "G a", "--fields", "--by=k", "--input", lines(*worse))
    assert result.status == 1
    assert json.loads(result.out)["index"] == 2


def test_the_report_counts_the_violations_if_asked_for(
    penstock: Penstock, lines: Callable[..., str]
) -> None:
    path = lines({"a": 1}, {}, {"a": 1}, {})
    result = penstock("monitor", "G a", "--fields", "--restart", "--report=text", "--input", path)
    assert "stage 2 'violations': 2 violations" in result.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["G(paid -> )", *PROPS], "`)` stands at position 10, where a formula was expected"),
        (["G(paidd)", *PROPS], "Did you mean 'paid'?"),
        (["G(a -> X[30] b)", "--fields"], "the formula is too large"),
        (["G a", "--prop=a"], "it should be NAME=FIELD:VALUE"),
        (["G a", "--fields", "--", "x"], "takes nothing after `--`"),
    ],
)
def test_a_mistake_is_reported_in_one_line_without_a_traceback(
    penstock: Penstock, lines: Callable[..., str], arguments: list[str], said: str
) -> None:
    result = penstock("monitor", *arguments)
    assert result.status == 2
    assert said in result.err
    assert "Traceback" not in result.err


SOON = "G(paid -> F[<=10s] sent)"


def test_bounds_are_measured_by_the_field_of_time(
    penstock: Penstock, lines: Callable[..., str]
) -> None:
    events = [
        {"at": 0, "order": 1, "type": "paid"},
        {"at": 12, "order": 2, "type": "paid"},
        {"at": 9, "order": 1, "type": "sent"},
    ]
    path = lines(*events)
    arguments = ["monitor", SOON, "--by=order", *PROPS[:2], "--time=at", "--input", path]
    first, second = map(json.loads, penstock(*arguments).out.splitlines())
    assert (first["key"], first["deadline"], first["opened"]) == (1, 10.0, 1)
    assert "left" not in first
    assert (second["key"], second["deadline"], second["left"]) == (2, 22.0, 10.0)
    assert second["at_end"]
    (only,) = penstock(*arguments, "--lateness=3").out.splitlines()
    assert json.loads(only)["left"] == 13.0


def test_a_deadline_on_arrival_is_shown_in_seconds_since_1970(
    penstock: Penstock, lines: Callable[..., str]
) -> None:
    before = time.time()
    result = penstock("monitor", SOON, *PROPS[:2], "--input", lines({"type": "paid"}))
    (one,) = map(json.loads, result.out.splitlines())
    assert before + 9 < one["deadline"] < time.time() + 11
    assert 0 < one["left"] <= 10


def test_a_bound_that_cannot_be_watched_is_a_mistake_in_the_arguments(penstock: Penstock) -> None:
    result = penstock("monitor", "X F[<=10s] a", "--fields")
    assert result.status == 2
    assert "stands under `X`" in result.err
    result = penstock("monitor", "F a", "--fields", "--time=at")
    assert result.status == 2
    assert "a formula with a bound in time" in result.err
