"""Which consumer of a file is tried, and what is said if there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.command.kata.solutions.consumer import Candidate, load_consumer
from penstock.streams.base.errors import BuildError

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, clean: None) -> Write:
    def write(code: str) -> Path:
        path = tmp_path / "my.py"
        path.write_text(code)
        return path

    return write


CLASS = """
class Consumer:
    def submit(self, event): ...
"""
FUNCTION = """
def consume(event): ...
"""


def found(candidate: Candidate) -> str:
    return candidate.name.rpartition(":")[2]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (FUNCTION, "consume"),
        (CLASS, "Consumer"),
        (CLASS + FUNCTION, "Consumer"),
        (f"{CLASS}\n_hidden = Consumer()\n", "Consumer"),
        ("from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)", "pool"),
        (f"from random import choice\nimport asyncio\n{FUNCTION}", "consume"),
        (f"{FUNCTION}\ndef _helper(a, b): ...\n", "consume"),
        ("async def consume(event): ...\n", "consume"),
    ],
)
def test_the_one_consumer_of_a_file_is_found(write: Write, code: str, name: str) -> None:
    assert found(load_consumer(str(write(code)))) == name


def test_a_class_makes_an_object_for_each_trial_and_an_object_is_taken_as_it_is(
    write: Write,
) -> None:
    path = write(f"{CLASS}\nanother = Consumer()\n")
    candidate = load_consumer(f"{path}:Consumer")
    one, other = candidate.make(), candidate.make()
    assert one is not other
    taken = load_consumer(f"{path}:another")
    assert taken.make() is taken.make()


def test_a_name_says_which_and_may_be_any(write: Write) -> None:
    path = write(f"{CLASS}{FUNCTION}\ndef _other(event): ...\n")
    assert found(load_consumer(f"{path}:consume")) == "consume"
    assert found(load_consumer(f"{path}:_other")) == "_other"


def test_the_words_after_two_dashes_are_the_files(write: Write) -> None:
    path = write("import sys\nwords = sys.argv[1:]\ndef consume(event, words=words): ...\n")
    consume: Any = load_consumer(str(path), ["--threads", "3"]).make()
    assert consume.__defaults__ == (["--threads", "3"],)


@pytest.mark.parametrize(
    ("code", "name", "complaint"),
    [
        ("x = 1", "", "has no consumer: it needs a function of one event, or a class"),
        (f"{FUNCTION}\ndef other(event): ...", "", "has 2 candidates: consume, other. Say which"),
        (CLASS + CLASS.replace("Consumer", "Other"), "", "candidates: Consumer, Other"),
        (FUNCTION, ":missing", "has no 'missing'"),
        ("x = 1", ":x", "'x' of .* is neither a function nor a class or object"),
        ("def consume(): ...", "", "'consume' cannot be called with one event: too many"),
        ("def consume(a, b): ...", "", "'consume' cannot be called with one event: missing"),
        ("def consume(event): yield", "", "'consume' is a generator"),
        ("async def consume(event): yield", "", "'consume' is a generator"),
        ("class C:\n  def submit(self): ...\nc = C()", ":c", "'c.submit' cannot be called with"),
        (f"{CLASS}    def __init__(self, n): ...", "", "'Consumer' cannot be made without"),
        ("1 / 0", "", "my.py:1: .* raised an error while it was loaded"),
        ("def consume(event)", "", "my.py:1: expected ':'"),
    ],
)
def test_a_file_without_a_consumer_is_refused(
    write: Write, code: str, name: str, complaint: str
) -> None:
    path = write(code)
    with pytest.raises(BuildError, match=complaint):
        load_consumer(f"{path}{name}")
