"""How many random runs a test makes: some in `make test`, all in `make test-walks`.

`--walks` says how many there would be of a test that makes 1,000: 100 by default, and 10,000 in
`make soak`. The mark `walks`, and `hypothesis`, which Hypothesis itself sets, choose these tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import settings

__all__ = ["ask_for", "examples", "seeds", "some_of"]

T = TypeVar("T", bound=Callable[..., None])

_ALL = 1_000
_asked = _ALL


def ask_for(walks: int) -> None:
    """Take what `--walks` says, before tests are collected."""
    global _asked
    _asked = walks


def some_of(number: int) -> int:
    """How many to make of a number; at least one."""
    return max(1, number * _asked // _ALL)


def seeds(number: int) -> Callable[[T], T]:
    """Run a test with `seed` 0, 1, and so on: some of this number."""

    def decorate(test: T) -> T:
        parametrized = pytest.mark.parametrize("seed", range(some_of(number)))(test)
        return pytest.mark.walks(parametrized)

    return decorate


def examples(number: int) -> Callable[[T], T]:
    """Let Hypothesis make some of this number of examples."""

    def decorate(test: T) -> T:
        made: T = settings(max_examples=some_of(number))(test)
        return made

    return decorate
