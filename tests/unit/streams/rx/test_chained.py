"""The types of reactivex's fluent methods, which are written down beside them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from reactivex import Observable

from penstock import Flowable
from penstock.streams.pipelines.flowable import Chained
from penstock.streams.rx.table import TABLE, Kind

STOCK: dict[str, Callable[..., Any]] = {
    name: method
    for name, method in inspect.getmembers(Observable, inspect.isfunction)
    if name in TABLE and getattr(Flowable, name) is method
}


def test_every_method_that_is_left_to_reactivex_has_a_type_here() -> None:
    lifted = {name for name in STOCK if TABLE[name].kind is not Kind.REFUSED}
    assert lifted == set(vars(Chained)) & set(TABLE)


@pytest.mark.parametrize("name", sorted(set(vars(Chained)) & set(TABLE)))
def test_a_type_has_the_parameters_of_the_method(name: str) -> None:
    def parameters(method: Callable[..., Any]) -> list[tuple[str, Any, bool]]:
        return [
            (one.name, one.kind, one.default is inspect.Parameter.empty)
            for one in inspect.signature(method).parameters.values()
        ]

    assert parameters(getattr(Chained, name)) == parameters(STOCK[name])
