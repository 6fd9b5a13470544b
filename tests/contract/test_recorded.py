"""Every public function that makes a part of a pipeline keeps a record of its call, from which
definitions are made."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import penstock
from penstock import agg, ops
from penstock.operators import rx
from penstock.streams import limits
from penstock.streams.base.recorded import is_recorded
from penstock.streams.definitions.signatures import options_of

# What no pipeline is made of.
OTHERS = ("run", "web_app", "buffer", "drop_newest", "drop_oldest", "error", "latest")
FUNCTIONS = {
    **{name: getattr(penstock, name) for name in penstock.__all__ if name not in OTHERS},
    **{f"ops.{name}": getattr(ops, name) for name in rx.__all__},
    **{f"agg.{name}": getattr(agg, name) for name in agg.__all__},
    "limits.default": limits.default,
}


def functions() -> list[Any]:
    return [
        pytest.param(one, id=name)
        for name, one in FUNCTIONS.items()
        if inspect.isfunction(one) or name in ("latency_histogram", "Store", "Shared", "Fixed")
    ]


@pytest.mark.parametrize(
    "function", [one for one in functions() if inspect.isfunction(one.values[0])]
)
def test_a_function_records_its_calls(function: Any) -> None:
    assert is_recorded(function), f"{function.__name__}: decorate it with @recorded"


@pytest.mark.parametrize("function", functions())
def test_the_types_of_all_options_are_known(function: Any) -> None:
    """Where they are not, neither the schema nor the reader knows what is allowed."""
    unknown = [one.name for one in options_of(function).values() if one.types == (Any,)]
    assert unknown == UNKNOWN.get(function.__name__, [])


# Options that take any value.
UNKNOWN = {
    "fold": ["start"],
    "publish_value": ["initial_value"],
    "start_with": ["args"],
    "stateful": ["type"],
}
