"""`penstock monitor` in a shell."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from penstock import inbox
from penstock.command.temporal.monitor_picture import MonitorPicture
from penstock.operators.violations import violations_of
from penstock.streams.monitoring.watching import Rule
from penstock.streams.temporal import Monitor
from penstock.streams.testing import MemorySink
from penstock.streams.testing.plugin import Run

Penstock = Callable[..., Any]

SVG = "{http://www.w3.org/2000/svg}"

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
    result = penstock("monitor", RULE, "--by", "order", *PROPS, lines(*events))
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
    result = penstock("monitor", "G a", "--prop=a=n:10", lines({"n": 10}, {"n": "10"}))
    assert (result.status, result.out) == (0, "")


def test_how_a_formula_is_read_is_said_where_it_may_surprise(
    penstock: Penstock, lines: Callable[..., str]
) -> None:
    path = lines({"Foo": True, "up": True})
    read = penstock("monitor", "G Foo", "--fields", path)
    assert "read Foo as F oo; write a name that begins with F, G or X in quotes" in read.err
    quoted = penstock("monitor", 'G "Foo"', "--fields", path)
    assert (quoted.status, quoted.err) == (0, "")
    weak = penstock("monitor", "next up", "--fields", path)
    assert "next is weak" in weak.err


def test_a_field_that_is_true_is_a_proposition_and_all_fields_may_be(
    penstock: Penstock, lines: Callable[..., str]
) -> None:
    path = lines({"ok": True, "n": True}, {"ok": 1, "n": False}, {})
    one = penstock("monitor", "G fine", "--prop=fine=ok", path, "--evidence=letters")
    assert json.loads(one.out)["index"] == 3
    assert json.loads(one.out)["evidence"] == [["fine"], ["fine"], []]
    every = penstock("monitor", "G n & F ok", "--fields", path, "--evidence=0")
    assert json.loads(every.out)["index"] == 2
    exact = penstock("monitor", "G n", "--prop=n=n:true", path)
    assert json.loads(exact.out)["index"] == 2


def test_a_field_that_no_event_has_is_reported(
    penstock: Penstock, lines: Callable[..., str]
) -> None:
    props = ("--prop=paid=typ:paid", "--prop=sent=sent", "--prop=lost=lost")
    path = lines({"type": "paid"}, {"type": "sent", "sent": True})
    result = penstock("monitor", "G(paid -> F sent) & F sent", *props, path)
    assert (result.status, result.out) == (0, "")
    said = "--prop paid=typ:paid: no event that was judged has the field 'typ'; the first has: type"
    assert said in result.err
    assert "--prop sent" not in result.err
    assert "--prop lost" not in result.err


@pytest.mark.parametrize("command", ["monitor", "learn"])
def test_two_meanings_of_a_name_are_a_mistake(
    penstock: Penstock, lines: Callable[..., str], command: str
) -> None:
    path = lines({"type": "paid"})
    words = ["G a", path] if command == "monitor" else [path, path, "--by=type"]
    result = penstock(command, *words, "--prop=a=type:paid", "--prop=a=type:sent")
    assert (result.status, result.out) == (2, "")
    assert "--prop a=type:sent: there is a --prop of that name already" in result.err


def test_bad_lines_give_status_3_where_nothing_was_violated(
    penstock: Penstock, tmp_path: Any
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"a": 1}\nbroken\n', encoding="utf-8")
    result = penstock("monitor", "G a", "--fields", str(path))
    assert result.status == 3
    assert "line 2 is not valid JSON" in result.err


def test_events_without_the_key_are_reported_and_give_status_3_where_nothing_was_violated(
    penstock: Penstock, lines: Callable[..., str]
) -> None:
    events: list[Any] = [{"a": 1}, {"a": 1, "k": 1}, {"a": 1, "k": [2]}]
    result = penstock("monitor", "G a", "--fields", "--by=k", lines(*events))
    assert (result.status, result.out) == (3, "")
    assert "event 1 has no field 'k' (--by), left out: {'a': 1}" in result.err
    assert "of type list, cannot be a key" in result.err
    worse = [*events, {"a": 0, "k": 1}]
    result = penstock("monitor", "G a", "--fields", "--by=k", lines(*worse))
    assert result.status == 1
    assert json.loads(result.out)["index"] == 2


def test_the_report_counts_the_violations_if_asked_for(
    penstock: Penstock, lines: Callable[..., str]
) -> None:
    path = lines({"a": 1}, {}, {"a": 1}, {})
    result = penstock("monitor", "G a", "--fields", "--restart", "--report=text", path)
    assert "stage 2 'violations': 2 violations" in result.err
    once = penstock("monitor", "G a", "--fields", "--report=text", path)
    assert "stage 2 'violations': 1 violation\n" in once.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["G(paid -> )", *PROPS], "`)` stands at position 10, where a formula was expected"),
        (["G(paidd)", *PROPS], "Did you mean 'paid'?"),
        (["G(a -> X[30] b)", "--fields"], "the formula is too large"),
        (["G a", "--prop=a"], "it should be NAME=FIELD:VALUE"),
        (["G a", "--fields", "--max-ahead=3600"], "times of --time, so give that"),
        (["G a", "--fields", "--max-ahead=none"], "times of --time, so give that"),
        (["G a", "--fields", "--lateness=2"], "times of --time, so give that"),
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
    arguments = ["monitor", SOON, "--by=order", *PROPS[:2], "--time=at", path]
    first, second = map(json.loads, penstock(*arguments).out.splitlines())
    assert (first["key"], first["deadline"], first["opened"]) == (1, 10.0, 1)
    assert "left" not in first
    assert (second["key"], second["deadline"], second["left"]) == (2, 22.0, 10.0)
    assert second["at_end"]
    late = penstock(*arguments, "--lateness=1", "--report=text")
    assert "late events: 1, in stage 4 'violations'" in late.err
    (only,) = penstock(*arguments, "--lateness=3").out.splitlines()
    assert json.loads(only)["left"] == 13.0


def test_a_deadline_on_arrival_is_shown_in_seconds_since_1970(
    penstock: Penstock, lines: Callable[..., str]
) -> None:
    before = time.time()
    result = penstock("monitor", SOON, *PROPS[:2], lines({"type": "paid"}))
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


@pytest.fixture
def drawn(
    penstock: Penstock, lines: Callable[..., str], tmp_path: Path
) -> Callable[..., ElementTree.Element]:
    def draw(formula: str, events: list[Any], *options: str) -> ElementTree.Element:
        path = tmp_path / "live.svg"
        arguments = [*PROPS, "--by=order", "--evidence=0", f"--draw={path}"]
        assert penstock("monitor", formula, *arguments, *options, lines(*events))
        assert [one.name for one in tmp_path.iterdir() if "svg" in one.name] == ["live.svg"]
        return ElementTree.fromstring(path.read_text(encoding="utf-8"))

    return draw


def texts(picture: ElementTree.Element, looks: str) -> list[str]:
    return [one.text or "" for one in picture.iter(f"{SVG}text") if one.get("class") == looks]


def marked(picture: ElementTree.Element) -> int:
    return sum("edge on" in one.get("class", "") for one in picture.iter(f"{SVG}path"))


def steps(order: Any, *types: str) -> list[Any]:
    return [{"order": order, "type": kind} for kind in types]


def test_the_picture_counts_the_keys_in_each_state(drawn: Callable[..., Any]) -> None:
    events = [*steps(1, "paid", "sent"), *steps(2, "paid"), *steps(3, "x"), *steps(4, "x")]
    picture = drawn(RULE, events)
    assert texts(picture, "title") == [RULE]
    assert texts(picture, "name") == ["?", "?", "⊥"]
    assert texts(picture, "count") == ["2", "1", "1"]
    assert texts(picture, "key") == []
    assert marked(picture) == 0


def test_named_keys_are_shown_with_the_steps_they_have_taken(drawn: Callable[..., Any]) -> None:
    events = [*steps(7, "x", "paid", "packed", "paid"), *steps("a<b", "x"), *steps(2, "paid")]
    picture = drawn(RULE, events, "--key=7", "--key=a<b", "--key=none")
    # Packed and paid by turns, and the loop of the first state.
    assert sorted(texts(picture, "key")) == ["7", "a<b"]
    assert marked(picture) == 3
    circles = [one.get("class") for one in picture.iter(f"{SVG}circle") if one.get("r") == "20"]
    assert circles == ["state on", "state on", "state"]


def test_each_named_key_has_its_own_path_in_its_own_colour(drawn: Callable[..., Any]) -> None:
    events = [*steps(1, "x", "paid", "sent"), *steps(2, "paid", "packed"), *steps(3, "paid")]
    picture = drawn(RULE, events, "--key=1", "--key=2", "--key=3", "--key=none")

    def of(mark: int) -> list[Any]:
        groups = [one for one in picture.iter(f"{SVG}g") if one.get("class") == f"mark{mark}"]
        return [element for group in groups for element in group]

    def text(mark: int) -> list[str | None]:
        return [one.text for one in of(mark) if one.get("class") == "key"]

    def walked(mark: int) -> list[str]:
        return [one.get("class") for one in of(mark) if "edge" in one.get("class")]

    # The first key has the colour of all that is marked.
    assert [text(mark) for mark in range(4)] == [[], ["2"], ["3"], []]
    assert walked(1) == ["edge also on", "edge on"]
    assert walked(2) == ["edge also on"]
    # One step was taken by all three, whose colours alternate in it.
    (shared, *_) = [
        one
        for one in picture.iter(f"{SVG}path")
        if one.get("class") == "edge on" and one.get("style") is not None
    ]
    other = [one for mark in (1, 2) for one in of(mark) if one.get("class") == "edge also on"]
    assert {one.get("d") for one in other} == {shared.get("d")}
    assert [one.get("style") for one in (shared, *other)] == [
        f"stroke-dasharray: 8 16; stroke-dashoffset: {place}" for place in (0, -8, -16)
    ]


def test_a_key_that_begins_anew_shows_its_new_steps_only(drawn: Callable[..., Any]) -> None:
    events = steps(7, "paid", "sent")
    assert marked(drawn(RULE, events, "--key=7", "--restart")) == 2
    assert marked(drawn(RULE, [*events, *steps(7, "x")], "--key=7", "--restart")) == 1


def test_a_missed_deadline_is_a_dashed_step_to_violated(drawn: Callable[..., Any]) -> None:
    events = [
        {"order": 1, "type": "paid", "at": 0},
        {"order": 2, "type": "paid", "at": 20},
        {"order": 3, "type": "sent", "at": 20},
    ]
    picture = drawn(SOON, events, "--time=at", "--key=1")
    assert texts(picture, "name") == ["?", "?", "⊥"]
    assert texts(picture, "count") == ["1", "1", "1"]
    looks = [one.get("class", "") for one in picture.iter(f"{SVG}path")]
    assert looks.count("edge on dashed") == 1
    assert marked(picture) == 2
    assert "bound in time" in [one.text for one in picture.iter(f"{SVG}text")]


def test_a_key_that_keeps_a_bound_for_good_stands_at_true(drawn: Callable[..., Any]) -> None:
    events = [{"order": 1, "type": "sent", "at": 0}, {"order": 2, "type": "x", "at": 0}]
    picture = drawn("F[<=10s] sent", events, "--time=at", "--key=1")
    assert dict(zip(texts(picture, "name"), texts(picture, "count"), strict=True))["⊥"] == "0"
    assert texts(picture, "name")[-1] == "\N{DOWN TACK}"
    assert texts(picture, "count")[-1] == "1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["G a", "--draw=live.png"], "give a name in .svg"),
        (["G a", "--key=7"], "it goes with --draw and --by"),
        (["G a", "--key=7", "--draw=live.svg"], "it goes with --draw and --by"),
        (["G a", "--draw=nowhere/live.svg"], "Cannot write nowhere/live.svg: No such file"),
        (["G(a -> X X X X X X b)", "--draw=live.svg"], "states are too many to draw"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_refused_before_the_first_event(
    penstock: Penstock, tmp_path: Path, monkeypatch: Any, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = penstock("monitor", *arguments, "--fields")
    assert result.status == 2
    assert said in result.err
    assert list(tmp_path.iterdir()) == []


def test_the_picture_is_drawn_once_a_second_and_at_the_end(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "live.svg"
    written: list[tuple[float, list[str]]] = []
    replace = os.replace

    def noted(new: str, old: str) -> None:
        replace(new, old)
        whole = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        written.append((asyncio.get_running_loop().time(), texts(whole, "count")))

    async def story() -> None:
        rule = Rule(
            stage="violations",
            formula="G(a -> X b)",
            by=0,
            mode="ltl3",
            evidence=0,
            idle=None,
            max_keys=None,
            restart=False,
            strict=True,
            tests={"a": lambda event: event[1] == "a", "b": lambda event: event[1] == "b"},
        )
        picture = MonitorPicture(str(path), rule.monitor, rule.text)
        monkeypatch.setattr(os, "replace", noted)
        source = inbox(9)
        operator = violations_of(dataclasses.replace(rule, begun=picture.begin), "stop")
        running = source.pipe(operator).to(MemorySink()).start()
        with picture.kept(running):
            await source.put("xa")
            await asyncio.sleep(1.5)
            await source.put("ya")
            await source.put("xx")
            await asyncio.sleep(1)
            await running.drain()

    run(story())
    assert written == [
        (1.0, ["0", "1", "0"]),
        (2.0, ["0", "1", "1"]),
        (2.5, ["0", "1", "1"]),
    ]


def test_a_picture_that_cannot_be_written_any_more_is_reported_once(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    picture = MonitorPicture(str(folder / "live.svg"), Monitor("G a"), "G a")

    async def story() -> None:
        running: Any = None
        with picture.kept(running):
            shutil.rmtree(folder)
            await asyncio.sleep(5)

    run(story())
    assert capfd.readouterr().err.count("cannot write") == 1


def test_a_wrong_name_of_the_key_is_told_once_with_a_count(
    penstock: Penstock, lines: Callable[..., str]
) -> None:
    path = lines({"a": 0}, {}, {"K": 1}, {"a": 0})
    result = penstock("monitor", "G a", "--fields", "--by=k", path)
    assert (result.status, result.out) == (3, "")
    assert result.err.splitlines() == [
        "penstock: event 1 has no field 'k' (--by), left out: {'a': 0}",
        "penstock: 3 more events have no field 'k' (--by), left out",
    ]


def test_events_without_their_time_are_left_out_and_counted(
    penstock: Penstock, lines: Callable[..., str]
) -> None:
    path = lines({"p": 1, "at": 0}, {"p": 1}, {"p": 1}, {"q": 1, "at": 9})
    result = penstock(
        "monitor", "G(p -> F[<=5s] q)", "--fields", "--time=at", "--report=none", path
    )
    assert json.loads(result.out)["deadline"] == 5
    assert (result.status, result.err.splitlines()) == (
        1,
        [
            "penstock: event 2 has no field 'at' (--time), left out: {'p': 1}",
            "penstock: 1 more event has no field 'at' (--time), left out",
        ],
    )


def test_a_formula_that_nothing_decides_is_told_once_with_a_picture_too(
    penstock: Penstock, lines: Callable[..., str], tmp_path: Path
) -> None:
    words = ["--fields", "--draw", str(tmp_path / "live.svg"), lines({"a": 1, "b": 1})]
    result = penstock("monitor", "G(a -> F b)", *words)
    assert result.err.count("nothing that follows can decide") == 1


def test_a_key_to_be_marked_that_no_event_had_is_told_at_the_end(
    penstock: Penstock, lines: Callable[..., str], tmp_path: Path
) -> None:
    path = lines(*steps(7, "x", "paid", "sent"), *steps("8", "x"))
    words = ["--prop=paid=type:paid", "--prop=sent=type:sent", "--by=order", path]
    words += ["--draw", str(tmp_path / "live.svg"), "--key=7", "--key=8", "--key=9"]
    for more in ([], ["--restart"]):
        result = penstock("monitor", "G(paid -> X !sent)", *words, *more)
        assert result.err == "penstock: --key 9: no event had this key\n"
