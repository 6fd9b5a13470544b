from __future__ import annotations

import logging
import tracemalloc
from asyncio import Future, new_event_loop
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from functools import partial
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Flowable, from_iterable, route, violations
from penstock.streams.base.errors import BuildError
from penstock.streams.monitoring.watching import Rule, Watch
from penstock.streams.protocol.acknowledgement import Nobody
from penstock.streams.protocol.event import new_events
from penstock.streams.temporal import (
    FormulaSyntaxError,
    FormulaTooLarge,
    UnknownProposition,
    Verdict,
    Violation,
)
from penstock.streams.temporal.formula.parser import parse
from penstock.streams.testing import (
    COMPLETED,
    MemorySink,
    MemorySource,
    Probe,
    VirtualClock,
    run_virtual,
)
from penstock.streams.testing.plugin import Run
from tests.helpers.brute_force import holds_finitely

REPLIED = "G(a -> X b)"


def stay(names: str) -> dict[str, Any]:
    """Each proposition is one letter, and the event is a string."""
    return {name: partial(lambda name, event: name in event, name) for name in names}


def watch_rule(formula: str, **options: Any) -> Rule:
    """A rule by the first item of each event, whose propositions are its other items."""
    names = [name for name in options if len(name) == 1]
    tests = {name: itemgetter(options.pop(name)) for name in names}
    usual: dict[str, Any] = {"mode": "ltl3", "evidence": 16, "idle": None, "max_keys": None}
    usual |= {"restart": False, "strict": True, "by": 0, **options}
    return Rule(stage="violations", formula=formula, tests=tests, **usual)


def found(events: list[Any], formula: str, **options: Any) -> list[Violation[Any]]:
    probe = Probe[Any](request=1_000)
    from_iterable(events).pipe(violations(formula, **options)).connect(probe)
    if probe.error is not None:
        raise probe.error
    assert probe.completed
    return probe.values


def test_a_violation_shows_what_decided_it_and_comes_at_its_time(clock: VirtualClock) -> None:
    operator = violations(REPLIED, a=lambda event: event == "a", b=lambda event: event == "b")
    one = Violation(REPLIED, None, 4, Verdict.FALSE, ("a", "b", "a", "c"), False, False)
    assert clock.play("--a-b--a-c-b|", operator) == [(9, one), (12, COMPLETED)]


def test_each_key_is_watched_on_its_own() -> None:
    events = [("x", "a"), ("y", "a"), ("x", "b"), ("y", "c"), ("x", "a"), ("x", "c")]
    tests = {"a": lambda event: event[1] == "a", "b": lambda event: event[1] == "b"}
    told = [(one.key, one.index) for one in found(events, REPLIED, by=0, **tests)]
    assert told == [("y", 2), ("x", 4)]


def test_what_is_still_owed_at_the_end_is_a_violation_of_the_end() -> None:
    (one,) = found(["b", "a"], REPLIED, **stay("ab"))
    assert (one.at_end, one.index, one.evidence) == (True, 2, ("b", "a"))
    assert str(one) == "G(a -> X b) is violated at the end of the stream, after 2 events: 'a'"


def test_without_any_event_a_formula_is_judged_on_the_empty_trace() -> None:
    (one,) = found([], "F a", **stay("a"))
    assert (one.at_end, one.index, one.evidence) == (True, 0, ())
    assert found([], "G a", **stay("a")) == []


def test_an_error_of_the_source_says_nothing_of_the_end(clock: VirtualClock) -> None:
    ends = clock.play("-a-#", violations("F b", **stay("b")))
    assert [type(value).__name__ for _, value in ends] == ["Exception"]


def test_a_key_is_silent_after_its_violation_and_restart_begins_again() -> None:
    events = ["a", "a", "b", "a", "c"]
    assert [one.index for one in found(events, REPLIED, **stay("ab"))] == [2]
    again = found([*events, "a", "b"], REPLIED, restart=True, **stay("ab"))
    assert [(one.index, one.evidence) for one in again] == [(2, ("a", "a")), (3, ("b", "a", "c"))]


@pytest.mark.parametrize(
    ("evidence", "kept", "truncated"),
    [
        (2, ("d", "e"), True),
        (0, (), True),
        (5, ("a", "b", "c", "d", "e"), False),
        ("full", ("a", "b", "c", "d", "e"), False),
        ("letters", tuple(frozenset({"e"} & {letter}) for letter in "abcde"), False),
    ],
)
def test_evidence_is_what_was_asked_for(evidence: Any, kept: Any, truncated: bool) -> None:
    (one,) = found(list("abcde"), "G !e", evidence=evidence, **stay("e"))
    assert (one.evidence, one.truncated) == (kept, truncated)


def test_sixteen_events_are_kept_where_nothing_else_is_said() -> None:
    (one,) = found([*range(40)], "G !late", late=lambda number: number == 39)
    assert one.evidence == tuple(range(24, 40))


def test_rv_reports_each_time_a_formula_becomes_presumably_false() -> None:
    told = found(["a", "x", "b", "a", "b", "a"], "G(a -> F b)", mode="rv", **stay("ab"))
    assert [(one.index, one.verdict, one.at_end) for one in told] == [
        (1, Verdict.PRESUMABLY_FALSE, False),
        (4, Verdict.PRESUMABLY_FALSE, False),
        (6, Verdict.PRESUMABLY_FALSE, False),
        (6, Verdict.FALSE, True),
    ]


def test_fields_of_an_event_can_be_a_proposition() -> None:
    events: list[Any] = [{"type": "soi"}, {"type": "input", "n": 1}, {"other": 1}, {"type": []}]
    rules = {"soi": {"type": "soi"}, "input": {"type": {"input", "tweak"}}}
    (one,) = found(events, "G soi | F(soi & X X input)", **rules)
    assert one.at_end
    both = {"one": {"type": "input", "n": 1}, "soi": {"type": "soi"}}
    assert found(events, "F one & F soi", **both) == []


class Step:
    def __init__(self, name: str) -> None:
        self.name = name
        self.done = name == "last"


def test_fields_are_attributes_where_events_are_objects() -> None:
    steps = [Step("first"), Step("last")]
    assert found(steps, "F last", last={"name": "last"}) == []
    assert found(steps, "F(done)", strict=False) == []
    assert found([{"done": 0}, {}], "G !done", strict=False) == []


def test_names_that_are_not_python_names_are_given_as_a_mapping() -> None:
    where: dict[str, Any] = {"paid at all": lambda event: event == "p", "by": {"x": 1}}
    assert found(["p"], '"paid at all" & !by', where=where) == []


def test_every_proposition_is_asked_once_for_an_event() -> None:
    asked: list[Any] = []

    def a(event: Any) -> bool:
        asked.append(event)
        return True

    found([1, 2, 3], "G a & F a & X a", a=a)
    assert asked == [1, 2, 3]


def test_an_error_names_the_proposition_the_event_and_the_stage() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        found([1, 0], "G a", a=lambda n: 1 / n)
    notes = " ".join(raised.value.__notes__)
    assert "in the proposition 'a'" in notes
    assert "in stage 2 'violations', on the event 0" in notes


def test_an_error_names_the_key_by_itself() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        found([("x", 1), ("y", 0)], "G a", by=0, a=lambda event: 1 / event[1])
    assert "of the key 'y'" in raised.value.__notes__


def test_an_event_without_its_key_is_reported_as_such() -> None:
    with pytest.raises(KeyError) as raised:
        found([{"case": 1}, {"kase": 1}], "G a", by="case", a=bool)
    notes = " ".join(raised.value.__notes__)
    assert "the event has no field 'case'" in notes
    assert "of the key" not in notes


def test_a_proposition_that_runs_out_of_what_it_iterates_over_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="StopIteration") as raised:
        found([[1], []], "G a", a=lambda event: next(iter(event)))
    assert "on the event []" in " ".join(raised.value.__notes__)


@pytest.mark.parametrize("events", [4, 5, 6, 7])
def test_of_limited_evidence_the_last_events_are_kept_in_order(events: int) -> None:
    (one,) = found([*range(events), "end"], "G !e", evidence=3, e=lambda event: event == "end")
    assert one.evidence == (*range(events - 2, events), "end")
    assert one.truncated


def test_an_event_that_cannot_be_judged_is_left_out_if_wanted(run: Run) -> None:
    dead, sink = MemorySink(), MemorySink()
    operator = violations(REPLIED, on_error=route(dead), **stay("ab"))
    run(MemorySource(["a", 7, "c"]).pipe(operator).to(sink).run())
    assert [letter.value for letter in dead.values] == [7]
    assert [one.evidence for one in sink.values] == [("a", "c")]


def test_a_missing_key_is_named() -> None:
    with pytest.raises(KeyError) as raised:
        found([{"t": 1}], "G a", by="client", a=lambda event: True)
    assert any("has no field 'client'" in note for note in raised.value.__notes__)


def numbers(operator: Any, events: list[Any]) -> dict[str, Any]:
    async def story() -> dict[str, Any]:
        report = await MemorySource(events).pipe(operator).to(MemorySink()).run()
        return dict(report.statistics["stages"][1])

    return run_virtual(story())


def test_more_keys_than_allowed_forget_the_one_that_was_used_longest_ago() -> None:
    events = [("x", "a"), ("y", "a"), ("x", "b"), ("z", "a"), ("y", "c")]
    tests = {"a": lambda event: event[1] == "a", "b": lambda event: event[1] == "b"}
    operator = violations("a -> X b", by=0, max_keys=2, **tests)
    stage = numbers(operator, events)
    assert (stage["keys"], stage["evicted"]) == (2, 2)
    # y has been forgotten, so its c begins a new trace.
    assert stage["violations"] == 1


def test_an_idle_key_is_forgotten_and_gives_no_verdict(clock: VirtualClock) -> None:
    told = clock.play("a---------c--a---a|", violations(
        REPLIED, by=lambda event: 1, idle=5, **stay("ab")
    ))  # fmt: skip
    # The first a is forgotten after five ticks; of the last two, the second violates.
    assert [(at, value.index) for at, value in told if value is not COMPLETED] == [(17, 3)]


def test_a_key_that_is_idle_when_the_stream_ends_gives_no_verdict_either(
    clock: VirtualClock,
) -> None:
    operator = violations(REPLIED, by=lambda event: 1, idle=5, **stay("ab"))
    assert clock.play("a---------|", operator) == [(10, COMPLETED)]


def test_idle_keys_are_forgotten_while_no_event_comes() -> None:
    time = 0.0
    watch = Watch(rule("G a", by=0, idle=5), lambda: time)
    watch.look(new_events([(1, "a"), (2, "a")], 0.0, Nobody()), 0)
    assert (watch.statistics()["keys"], watch.statistics()["expired"]) == (2, 0)
    time = 6.0
    assert (watch.statistics()["keys"], watch.statistics()["expired"]) == (0, 2)


def test_no_key_expires_while_the_violations_of_the_end_are_taken() -> None:
    time = 0.0
    watch = Watch(rule("F b", by=0, idle=5), lambda: time)
    watch.look(new_events([(1, "a"), (2, "a")], 0.0, Nobody()), 0)
    last = watch.at_end()
    assert next(last).key == 1
    time = 6.0
    assert watch.statistics()["expired"] == 0
    assert [violation.key for violation in last] == [2]


def rule(formula: str, by: Any, idle: float | None = None) -> Rule:
    tests: dict[str, Any] = {"a": lambda event: True, "b": lambda event: False}
    return Rule(
        stage="violations",
        formula=formula,
        by=by,
        mode="ltl3",
        evidence=0,
        idle=idle,
        max_keys=None,
        restart=False,
        strict=True,
        tests=tests,
    )


def test_a_key_costs_at_most_200_bytes_without_evidence() -> None:
    watch = Watch(rule("F b", by=0), lambda: 0.0)
    events = new_events([(key, "a") for key in range(20_000)], 0.0, Nobody())
    tracemalloc.start()
    try:
        watch.look(events, 0)
        cost, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cost / len(events) < 200


@given(st.lists(st.sampled_from(["", "a", "b", "ab"]), max_size=12))
def test_a_violation_is_the_first_prefix_that_is_false_and_the_end_is_a_finite_trace(
    events: list[str],
) -> None:
    told = found(events, "(a W b) & F a", **stay("ab"))
    trace = [frozenset(event) for event in events]
    decided = next((at + 1 for at, event in enumerate(events)
                    if not event and all(seen == "a" for seen in events[:at])), None)  # fmt: skip
    if decided is not None:
        assert [(one.index, one.at_end) for one in told] == [(decided, False)]
    else:
        owed = not holds_finitely(parse("(a W b) & F a"), trace)
        assert [(one.index, one.at_end) for one in told] == [(len(events), True)] * owed


@given(st.lists(st.booleans(), max_size=20), st.integers(1, 4))
def test_no_violation_comes_without_demand_not_even_at_the_end(keys: list[bool], n: int) -> None:
    events = [(at, good) for at, good in enumerate(keys)]
    flow: Flowable[Any] = from_iterable(events).pipe(
        violations("X a | g", by=0, a=lambda event: False, g=lambda event: event[1])
    )
    probe = Probe[Any](request=n)
    flow.connect(probe)
    bad = keys.count(False)
    assert len(probe.values) == min(n, bad)
    probe.request(100)
    assert len(probe.values) == bad
    assert probe.completed


def test_a_formula_that_nothing_can_decide_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penstock"):
        violations("G F a", **stay("a"))
        violations("G a & F !a", **stay("a"))
    assert "judged at the end of the stream" in caplog.messages[0]
    assert "is false whatever happens" in caplog.messages[1]


def test_what_is_wrong_with_the_formula_is_said_when_the_operator_is_built() -> None:
    with pytest.raises(FormulaSyntaxError):
        violations("G (", **stay("a"))
    with pytest.raises(UnknownProposition) as raised:
        violations("G (paid -> X b)", payed={}, **stay("b"))
    assert (raised.value.name, raised.value.position) == ("paid", 3)
    assert "given are: b, payed. Did you mean 'payed'?" in str(raised.value)
    with pytest.raises(FormulaTooLarge):
        violations("G(a -> X[30] b)", **stay("ab"))


def test_anything_but_a_formula_is_a_type_error() -> None:
    wrong: Any = 3
    with pytest.raises(TypeError, match="a formula is a text, not int"):
        violations(wrong, **stay("ab"))


def test_propositions_that_the_formula_does_not_have_are_shown_with_the_stage() -> None:
    stream = from_iterable(["a"]).pipe(violations("G a", **stay("abc")))
    assert stream.info.note == "given and not in the formula: b, c"


@pytest.mark.parametrize(
    "options",
    [
        {"evidence": -1},
        {"evidence": "some"},
        {"evidence": True},
        {"mode": "ltl4"},
        {"by": "k", "idle": 0},
        {"by": "k", "max_keys": 0},
        {"idle": 5},
        {"a": "event['type'] == 'SOI'"},
    ],
    ids=str,
)
def test_nonsense_is_refused_when_the_operator_is_built(options: dict[str, Any]) -> None:
    with pytest.raises(BuildError):
        violations("G a", **{"a": len, **options})


EVENTS = st.lists(st.tuples(st.sampled_from("xyz"), st.booleans()), max_size=20)


@given(EVENTS, st.integers(1, 3))
def test_a_key_that_begins_again_is_forgotten_until_it_comes_again(
    events: list[tuple[str, bool]], most: int
) -> None:
    rule = watch_rule("G(p -> X !p)", restart=True, max_keys=most, p=1)
    watch = Watch(rule, lambda: 0.0)
    # The keys in the order of their last use, each with its events since it began.
    remembered: dict[str, list[bool]] = {}
    evicted = 0
    for event in events:
        key, p = event
        mine = [*remembered.pop(key, []), p]
        violated = mine[-2:] == [True, True]
        assert (watch.look(new_events([event], 0.0, Nobody()), 0)[1] is not None) == violated
        remembered[key] = mine
        if len(remembered) > most:
            del remembered[next(iter(remembered))]
            evicted += 1
        if violated:
            del remembered[key]
    assert watch.statistics()["keys"] == len(remembered)
    assert watch.statistics()["evicted"] == evicted


async def coming(event: Any) -> bool:
    return False


async def many(event: Any) -> AsyncIterator[bool]:
    yield False


def lazily(event: Any) -> Iterator[bool]:
    yield False


@pytest.mark.parametrize("test", [coming, many, lazily, partial(coming)])
def test_a_proposition_whose_answer_nobody_would_wait_for_is_refused(test: Any) -> None:
    with pytest.raises(BuildError, match=r"the proposition 'p' .* plain function"):
        violations("G !p", p=test)
    # Whether or not the formula asks for it.
    with pytest.raises(BuildError, match=r"the proposition 'p' .* plain function"):
        violations("G !q", q=bool, p=test)


def soon(event: Any) -> Future[bool]:
    with closing(new_event_loop()) as loop:
        return loop.create_future()


@pytest.mark.parametrize("test", [coming, many, lazily, soon])
def test_an_answer_that_nobody_would_wait_for_is_an_error_of_its_event(test: Any) -> None:
    with pytest.raises(TypeError, match=r"is of type .*, which is never awaited") as raised:
        found([1], "G !p", p=lambda event: test(event))
    assert "in the proposition 'p'" in raised.value.__notes__


def test_a_proposition_that_names_no_field_is_refused() -> None:
    with pytest.raises(BuildError, match="the proposition 'p' names no field"):
        violations("G !p", p={})


def test_a_proposition_that_is_given_twice_is_refused() -> None:
    with pytest.raises(BuildError, match="'p' is given in where and as a keyword"):
        violations("G !p", where={"p": {"x": 1}}, p={"x": 2})


def test_a_stopiteration_of_a_key_function_is_reported_as_its_error() -> None:
    def key(event: Any) -> Any:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        found([1], "G !p", by=key, p=bool)
    assert found([1], "G !p", by=key, p=bool, on_error="skip") == []
