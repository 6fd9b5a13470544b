from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    Fixed,
    adaptive_flat_map,
    chunk,
    dead_letters,
    for_each,
    from_iterable,
    group_by,
    ops,
    route,
    spread,
    write_jsonl,
)
from penstock.streams.base.compiled import library
from penstock.streams.telemetry.document import Document, difference
from penstock.streams.testing.plugin import Run

values = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
)
documents = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


def merged(old: Any, patch: Any) -> Any:
    """RFC 7396, chapter 2."""
    if not isinstance(patch, dict):
        return patch
    made = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = merged(made.get(name), value)
    return made


@given(documents, documents)
def test_a_difference_makes_the_new_document_of_the_old_one(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert merged(old, difference(old, new)) == new


@given(documents)
def test_documents_that_are_equal_have_no_difference(document: dict[str, Any]) -> None:
    assert difference(document, json.loads(json.dumps(document))) == {}


def test_only_what_has_changed_is_sent() -> None:
    old = {"in": 1, "stages": {"1": {"in": 1, "name": "a"}, "2": {"waiting": 0}}}
    new = {"in": 2, "stages": {"1": {"in": 2, "name": "a"}, "2": {"waiting": 0}}}
    assert difference(old, new) == {"in": 2, "stages": {"1": {"in": 2}}}


async def fail(value: Any) -> Any:
    raise ValueError(f"cannot take {value['card']}")


def shown(run: Run, *, show_values: bool, name: str = "work") -> tuple[dict[str, Any], str]:
    """What never changes, and all of a document as text, while events wait and one has failed."""
    events = [{"card": "4111-1111"}] + [{"card": "4222-2222"}] * 3

    async def work(value: Any) -> Any:
        if value["card"] == "4111-1111":
            raise ValueError(f"cannot take {value['card']}")
        looking.append((document.fixed(), repr((document.fixed(), document.now()))))
        return value

    work.__name__ = name
    stream = from_iterable(events).pipe(
        group_by("card"), spread(), adaptive_flat_map(work, Fixed(1), on_error="skip")
    )
    looking: list[tuple[dict[str, Any], str]] = []

    async def story() -> None:
        nonlocal document
        async with stream.to(for_each(bool)).start() as running:
            document = Document(running, running.record(), None, show_values)

    document: Any = None
    run(story())
    return looking[0]


def test_values_of_events_are_in_it_only_if_they_are_asked_for(run: Run) -> None:
    _, text = shown(run, show_values=True)
    assert "4222-2222" in text
    assert "cannot take 4111-1111" in text
    _, text = shown(run, show_values=False)
    assert "4222" not in text
    assert "4111" not in text
    assert "in stage 4 'adaptive_flat_map'" in text


@pytest.mark.parametrize("show_values", [True, False])
def test_the_last_dead_letter_is_in_it_its_value_only_if_asked_for(
    run: Run, show_values: bool, tmp_path: Path
) -> None:
    async def story() -> dict[str, Any]:
        letters = route(dead_letters(tmp_path / "letters.jsonl"))
        stream = from_iterable([{"card": "4111"}, {"card": "4222"}]).pipe(
            adaptive_flat_map(fail, Fixed(1), on_error=letters)
        )
        async with stream.to(for_each(bool)).start() as running:
            document = Document(running, running.record(), None, show_values)
        return document.now()

    letter = run(story())["letter"]
    assert letter["stage"] == "stage 2 'adaptive_flat_map'"
    assert (letter["error"], letter["attempts"]) == ("ValueError", 1)
    if show_values:
        assert letter["text"] == "cannot take 4222"
        assert letter["value"] == "{'card': '4222'}"
    else:
        assert "4222" not in repr(letter)


def test_a_stage_shows_the_other_streams_that_it_reads(run: Run) -> None:
    async def story() -> tuple[dict[str, Any], dict[str, Any]]:
        stream = from_iterable(range(2)).pipe(ops.merge(from_iterable(range(5))))
        async with stream.to(for_each(bool)).start() as running:
            document = Document(running, running.record(), None, False)
        return document.fixed(), document.now()

    fixed, now = run(story())
    shown = [(s["stage"], s["kind"], s["reads"], s["readers"]) for s in fixed["stages"]]
    assert shown == [
        (1, "source", "", [3]),
        (2, "source", "", []),
        (3, "stage", "reads 1 and 2", []),
        (4, "sink", "", []),
    ]
    assert [(s.get("row"), s.get("lane")) for s in fixed["stages"]] == [
        *((0, 0), (0, 1), (1, 0), (None, None))
    ]
    assert fixed["arrows"] == [[1, 3, 0, 0, 0, []], [2, 3, 1, 0, 16, [[0, 0]]]]
    assert (fixed["lanes"], fixed["tracks"]) == (2, [1, 0])
    assert [now["stages"][number]["in"] for number in "12"] == [2, 5]
    assert [now["stages"][number].get("sent") for number in "1234"] == [2, 5, 7, None]


def test_a_long_name_is_cut(run: Run) -> None:
    fixed, _ = shown(run, show_values=False, name="n" * 5_000)
    assert len(fixed["stages"][3]["detail"]) == 300


def test_the_bound_of_a_stage_counts_its_own_events_as_what_waits_does(run: Run) -> None:
    async def story() -> dict[str, Any]:
        stream = from_iterable([]).pipe(chunk(100))
        async with stream.to(for_each(bool), for_each(bool)).start() as running:
            document = Document(running, running.record(), "orders.py", False)
            running.cancel()
        return document.fixed()

    assert [stage["holds"] for stage in run(story())["stages"]][2:] == [256, 256]


def test_stages_are_described_with_their_bounds_and_dead_letters(run: Run) -> None:
    async def story() -> dict[str, Any]:
        stream = from_iterable([]).pipe(
            adaptive_flat_map(fail, Fixed(4), on_error=route(write_jsonl("letters.jsonl")))
        )
        async with stream.to(for_each(bool), for_each(bool)).start() as running:
            document = Document(running, running.record(), "orders.py", False)
            running.cancel()
        return document.fixed()

    fixed = run(story())
    assert fixed["title"] == "orders.py"
    assert fixed["library"] == library()
    assert [stage["kind"] for stage in fixed["stages"]] == ["source", "stage", "sink", "sink"]
    assert fixed["stages"][1]["routes"] == ["letters.jsonl"]
    assert fixed["stages"][1]["holds"] > 4
