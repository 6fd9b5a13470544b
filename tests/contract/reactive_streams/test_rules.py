"""Every rule of Reactive Streams 1.0.4 is tested here, or cannot apply for a stated reason."""

from __future__ import annotations

import re
from pathlib import Path

from tests.helpers.reactive_streams import between

RULES = {1: 11, 2: 13, 3: 17, 4: 2}
"""How many rules each chapter of the specification has."""

CANNOT_APPLY = {
    "2.2": "A pipe lives on one loop: there is no other thread to hand slow work to. A slow "
    "subscriber holds up the loop that it runs on, and is an asynchronous handler's business.",
    "2.11": "Signals are calls on one thread; there is nothing to publish safely. What a handler "
    "in a thread is given and returns goes through a Future, which does.",
    "3.4": "A bound in milliseconds would be a test of the machine. That request does no more "
    "than its demand is rule 1.1; that it calls nobody deeper and deeper is rule 3.3.",
    "3.14": "No stream is shared: each connection is a running of its own, which ends with it.",
}

ONLY_IN_PART = {
    "1.3": "never two threads, so what is tested is that no signal comes inside another",
    "1.8": "a stream stops in the call that cancels; only what was in flight is awaited",
    "1.10": "connections of MemorySource share its items, as a queue's consumers do",
    "1.11": "every connection is unicast, so no slow subscriber holds up another",
    "2.7": "calls on one thread cannot overlap, so what is tested is that all are made there",
    "3.5": "not from other threads: a subscription belongs to its loop",
    "3.8": "not from eight threads, but in hypothesis's orders",
}


def rules() -> set[str]:
    return {f"{chapter}.{i}" for chapter, last in RULES.items() for i in range(1, last + 1)}


def rules_tested() -> set[str]:
    found: set[str] = set()
    for file in Path(__file__).parent.glob("test_*.py"):
        for name in re.findall(
            r"^(?:async )?def test_rule_((?:\d_\d\d_)+)", file.read_text(), re.M
        ):
            found |= {f"{chapter}.{int(i)}" for chapter, i in re.findall(r"(\d)_(\d\d)_", name)}
    return found


def test_every_rule_is_tested_or_has_a_reason_why_it_cannot_apply() -> None:
    assert rules_tested() | set(CANNOT_APPLY) == rules()


def test_no_rule_that_is_tested_is_said_not_to_apply() -> None:
    assert not rules_tested() & set(CANNOT_APPLY)
    assert set(ONLY_IN_PART) <= rules_tested()


def test_the_protocol_between_stages_is_known_in_one_place() -> None:
    knows = re.compile(
        r"streams\.protocol\.(event|source_stage|stage) import (?!StageInfo$)"
        r"|\.(_?attach|finish|drop|give_back)\(|\.(upstream|on_events|ledger)\b",
        re.M,
    )
    folders = (Path(__file__).parent, Path(between.__file__).parent)
    files = [file for folder in folders for file in folder.glob("*.py")]
    assert [file.name for file in files if knows.search(file.read_text())] == ["between.py"]
