"""Invalid arguments are refused where they are written, and never by an error of Python's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from math import inf
from typing import Any

import pytest

from penstock import (
    adaptive_flat_map,
    batch,
    chunk,
    count_over_time,
    distinct_within,
    drop_oldest,
    for_each,
    from_iterable,
    group_by,
    in_processes,
    in_threads,
    lift,
    monitor,
    rate_limit,
    retry,
    spread,
    using,
    violations,
)
from penstock.streams.base.errors import BuildError
from tests.helpers.public_names import with_pages

NUMBER = object()  # Not a number: `<` and `>` raise TypeError.


def described(wrong: object) -> str:
    """An id that is the same in every process; NUMBER's own repr has its address."""
    return "object" if wrong is NUMBER else repr(wrong)


@pytest.mark.parametrize("wrong", [NUMBER, "3", 0, True, None], ids=described)
@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda x: distinct_within(x, "id"), "distinct_within(seconds="),
        (lambda x: chunk(x), "chunk(size="),
        (lambda x: batch(print, max_size=x), "batch(max_size="),
        (lambda x: batch(print, parallel=x), "batch(parallel="),
        (lambda x: group_by("id", buffer=x), "group_by(buffer="),
        (lambda x: adaptive_flat_map(print, window=x), "adaptive_flat_map(window="),
        (lambda x: rate_limit(x), "rate_limit("),
        (lambda x: rate_limit(1, per=x), "rate_limit("),
        (lambda x: rate_limit(1, burst=x), "rate_limit("),
        (lambda x: in_threads(x)(print), "in_threads("),
        (lambda x: lift(lambda source: source, hold=x), "lift(hold="),
        (lambda x: drop_oldest(x), "drop_oldest("),
        (lambda x: retry(x), "retry("),
    ],
)
def test_a_number_that_makes_no_sense_is_refused_by_name(
    build: Callable[[Any], object], told: str, wrong: Any
) -> None:
    with pytest.raises(BuildError) as refused:
        build(wrong)
    assert told in str(refused.value)


WRAPPERS = {"in_threads": in_threads(2), "in_processes": in_processes(2), "using": using(open)}


@pytest.mark.parametrize(
    "stage", [adaptive_flat_map, batch, for_each], ids=lambda stage: stage.__name__
)
@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_without_a_handler_is_refused_with_where_the_handler_belongs(
    stage: Any, name: str
) -> None:
    told = re.escape(f"give it yours: {stage.__name__}({name}(...)(handler))")
    with pytest.raises(BuildError, match=told):
        stage(WRAPPERS[name])


def test_an_operator_as_a_handler_is_refused() -> None:
    with pytest.raises(BuildError, match=r"chunk\(...\) is not a handler.*into pipe\(\)"):
        adaptive_flat_map(chunk(2))


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_in_a_pipe_is_refused_with_the_stage_that_takes_it(name: str) -> None:
    told = re.escape(f"adaptive_flat_map({name}(...)(handler))")
    with pytest.raises(BuildError, match=told):
        from_iterable([1]).pipe(WRAPPERS[name])


@pytest.mark.parametrize("pool", [in_threads, in_processes])
def test_a_pool_without_a_number_of_workers_says_what_to_write(pool: Any) -> None:
    name = pool.__name__
    with pytest.raises(BuildError) as refused:
        pool(described)
    assert f"{name}(4)(described), or @{name}(4)" in str(refused.value)


@pytest.mark.parametrize("wrong", [NUMBER, "3", 0, True], ids=described)
@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda x: distinct_within(1, "id", max_keys=x), "distinct_within(max_keys="),
        (lambda x: chunk(3, wait=x), "chunk(wait="),
        # 0 is allowed.
        (lambda x: batch(print, max_wait=x or -1), "batch(max_wait="),
        (lambda x: adaptive_flat_map(print, timeout=x), "adaptive_flat_map(timeout="),
        (lambda x: group_by("id", each=lambda g: g, idle=1, max_groups=x), "group_by(max_groups="),
        (lambda x: spread(x), "spread(feeders="),
    ],
)
def test_a_number_that_may_be_left_out_is_refused_by_name_too(
    build: Callable[[Any], object], told: str, wrong: Any
) -> None:
    with pytest.raises(BuildError) as refused:
        build(wrong)
    assert told in str(refused.value)


@pytest.mark.parametrize("name", sorted(with_pages("operators")))
def test_an_operator_whose_parentheses_were_forgotten_is_reported(name: str) -> None:
    with pytest.raises(BuildError) as refused:
        from_iterable([1]).pipe(with_pages("operators")[name])
    assert f"{name}(...)" in str(refused.value)


@pytest.mark.parametrize("build", [adaptive_flat_map, batch])
def test_a_handler_that_was_called_already_is_recognised(build: Callable[[Any], object]) -> None:
    async def work(event: object) -> None:
        raise AssertionError("nobody awaits it")

    with pytest.raises(BuildError, match=r"\(work\(\.\.\.\)\): .* give work itself"):
        build(work({}))


@pytest.mark.parametrize("wrong", [NUMBER, "3", True, 1.5, timedelta(1)], ids=described)
@pytest.mark.parametrize("build", [monitor, violations])
def test_a_bound_of_a_monitor_that_makes_no_sense_is_refused_by_name(
    build: Callable[..., object], wrong: Any
) -> None:
    with pytest.raises(BuildError, match=r"\(max_keys="):
        build("G !p", by="id", max_keys=wrong, p=bool)
    if wrong != 1.5:
        with pytest.raises(BuildError, match=r"\(idle="):
            build("G !p", by="id", idle=wrong, p=bool)


@pytest.mark.parametrize("wrong", [NUMBER, "x", True, inf], ids=described)
def test_a_lateness_that_makes_no_sense_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(BuildError, match=r"count_over_time\(lateness="):
        count_over_time(lateness=wrong)
