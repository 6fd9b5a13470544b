"""What an operator does on a plain Observable, which has no demand."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest
import reactivex
from reactivex import Observable
from reactivex.subject import Subject

from penstock import from_iterable, table
from penstock import ops as _ops
from penstock.operators import rx
from penstock.streams.base.errors import BuildError
from tests.helpers.public_names import with_pages

# What reactivex says of its types does not fit these functions.
ops: Any = _ops


def _other(*_: object) -> Observable[int]:
    return reactivex.of(1)


# The arguments of operators that need some; all others are made with none.
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "adaptive_flat_map": (str,),
    "batch": (list,),
    "count_over_time": (lambda order: (order, order),),
    "distinct_within": (1, str),
    "group_by": (str,),
    "monitor": ("true",),
    "violations": ("true",),
    "rate_limit": (10,),
    "join": (_other(), "id", 10),
    "lookup": (table(from_iterable([1]), str, time="at"), str),
    "stateful": (max, str),
    "event_time": ("at",),
    "chunk": (2, 1.0),
    "buffer_when": (_other,),
    "window_when": (_other,),
    "buffer_toggle": (_other(), _other),
    "window_toggle": (_other(), _other),
    "buffer_with_count": (2,),
    "window_with_count": (2,),
    "buffer_with_time": (1,),
    "window_with_time": (1,),
    "buffer_with_time_or_count": (1, 2),
    "window_with_time_or_count": (1, 2),
    "catch": (reactivex.of(2),),
    "on_error_resume_next": (reactivex.of(2),),
    "do_while": (bool,),
    "while_do": (bool,),
    "multicast": (Subject[Any](),),
    "partition": (bool,),
    "partition_indexed": (lambda value, at: True,),
    "publish_value": (1,),
    "replay": (1,),
    "sample": (reactivex.of(2),),
    "timeout": (1,),
    "timeout_with_mapper": (reactivex.of(2), _other),
}
_MAPPING = ("concat_map", "exhaust_map", "flat_map", "flat_map_latest", "switch_map")
# They read no events.
_NO_OPERATORS = {"Group", "database_table", "in_processes", "in_threads", "table", "using"}

_NAMES = sorted({*with_pages("operators"), *rx.__all__} - _NO_OPERATORS)


def _made(name: str) -> Any:
    make = getattr(ops, name)
    if name in _ARGUMENTS:
        return make(*_ARGUMENTS[name])
    if name in (*_MAPPING, "switch_map_indexed"):
        return make(_other)
    # One that reads another stream, or none.
    takes = [each for each in signature(make).parameters.values() if each.default is each.empty]
    return make(*[reactivex.of(2) for each in takes if each.kind is not each.KEYWORD_ONLY])


@pytest.mark.parametrize("name", _NAMES)
def test_an_operator_does_what_that_of_reactivex_does_or_says_how_to_give_the_source_demand(
    name: str,
) -> None:
    source, result, error = reactivex.of(1, 2), None, None
    try:
        result = source.pipe(_made(name))
    except BuildError as raised:
        error = str(raised)
    assert type(result) is Observable or error == (
        f"{name} needs demand, which a plain Observable does not have: read it through "
        "Flowable.of(observable, on_overflow=...)"
    )


def test_an_operator_over_several_streams_reads_a_plain_observable_as_that_of_reactivex_does() -> (
    None
):
    into = list[Any]()
    reactivex.of(1, 2).pipe(ops.zip(reactivex.of(3, 4))).subscribe(into.append)
    assert into == [(1, 3), (2, 4)]


def test_a_source_that_is_no_stream_is_named() -> None:
    with pytest.raises(BuildError, match=r"share reads a stream, not \[1\]"):
        ops.share()([1])
