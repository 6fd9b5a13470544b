"""A test of every case tries all of them, and tells which fail."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.reactive_streams.harness import every


def asking(case: str | None = None) -> Any:
    """The request of a run with this `--case`."""
    return SimpleNamespace(config=SimpleNamespace(option=SimpleNamespace(case=case)))


def test_after_a_failure_the_other_cases_are_tried_and_the_error_names_all_that_fail() -> None:
    tried: list[str] = []

    @every(case=["map", "filter", "scan"])
    def is_filter(case: str) -> None:
        tried.append(case)
        assert case == "filter"

    with pytest.raises(ExceptionGroup, match="fails with map; scan") as raised:
        is_filter(asking())
    assert tried == ["map", "filter", "scan"]
    assert [error.__notes__ for error in raised.value.exceptions] == [["with map"], ["with scan"]]


def test_an_option_chooses_cases_by_a_part_of_their_names() -> None:
    tried: list[tuple[str, int]] = []

    @every(case__demand=[("map", 1), ("filter", 2), ("filter", 3)])
    def keep(case: str, demand: int) -> None:
        tried.append((case, demand))

    keep(asking("filt"))
    assert tried == [("filter", 2), ("filter", 3)]
    with pytest.raises(pytest.skip.Exception, match="no case 'scan'"):
        keep(asking("scan"))
