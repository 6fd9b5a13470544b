"""A function that an operator calls and does not await is refused, or fails at its first call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import reactivex

from penstock import (
    adaptive_flat_map,
    count_over_time,
    distinct_within,
    for_each,
    from_iterable,
    group_by,
    monitor,
    rate_limit,
    retry,
    spread,
    violations,
)
from penstock import ops as _ops
from penstock.streams.base.errors import BuildError, PenstockError
from penstock.streams.testing.plugin import Run

# What reactivex says of its types does not fit these functions.
ops: Any = _ops

Use = Callable[[Any], Any]


async def doubled(*_: object) -> int:
    return 2


def fails(_: object) -> int:
    raise OSError("gone")


def returns_a_coroutine(*_: object) -> Any:
    return doubled()


def same(value: Any) -> Any:
    return value


class Rising:
    """A limiter whose limit is one more after each call."""

    limit = 1

    def on_complete(self, *_: object) -> None:
        self.limit += 1


# The operators, with the function in each of its places.
USES: dict[str, Use] = {
    "adaptive_flat_map(on_limit_change=)": lambda f: adaptive_flat_map(
        doubled, Rising(), on_limit_change=f
    ),
    "adaptive_flat_map(overload=)": lambda f: adaptive_flat_map(fails, overload=f),
    "adaptive_flat_map(on_error=retry(wait=))": lambda f: adaptive_flat_map(
        fails, on_error=retry(2, wait=f)
    ),
    "count_over_time": lambda f: (
        ops.map(lambda n: {"from": n, "to": n + 1}),
        count_over_time(f),
    ),
    "distinct_within": lambda f: distinct_within(1, f),
    "group_by": lambda f: (group_by(f), spread()),
    "monitor": lambda f: monitor("G a", a=f),
    "monitor(by=)": lambda f: monitor("G a", f, a=same),
    "rate_limit(cost=)": lambda f: rate_limit(10, cost=f),
    "violations": lambda f: violations("G a", a=f),
    "buffer_toggle": lambda f: ops.buffer_toggle(from_iterable([1]), f),
    "buffer_when": ops.buffer_when,
    "catch": lambda f: (ops.map(fails), ops.catch(f)),
    "concat_map": ops.concat_map,
    "delay_with_mapper": ops.delay_with_mapper,
    "distinct_until_changed": ops.distinct_until_changed,
    "do_action": ops.do_action,
    "do_while": ops.do_while,
    "filter": ops.filter,
    "finally_action": ops.finally_action,
    "flat_map": ops.flat_map,
    "flat_map_latest": ops.flat_map_latest,
    "map": ops.map,
    "min_by": ops.min_by,
    "multicast": lambda f: ops.multicast(subject_factory=f, mapper=same),
    "publish": ops.publish,
    "reduce": ops.reduce,
    "replay": lambda f: ops.replay(1, mapper=f),
    "scan": ops.scan,
    "sequence_equal": lambda f: ops.sequence_equal([1, 2], f),
    "switch_map": ops.switch_map,
    "exhaust_map": ops.exhaust_map,
    "switch_map_indexed": ops.switch_map_indexed,
    "take_while": ops.take_while,
    "throttle_with_mapper": ops.throttle_with_mapper,
    "timeout_with_mapper": lambda f: ops.timeout_with_mapper(None, f),
    "to_dict": ops.to_dict,
    "while_do": ops.while_do,
    "window_toggle": lambda f: (ops.window_toggle(reactivex.timer(0.1), f), ops.merge_all()),
    "window_when": lambda f: (ops.window_when(f), ops.merge_all()),
}


def built(use: Use, function: Any) -> Any:
    operators = use(function)
    operators = operators if isinstance(operators, tuple) else (operators,)
    return from_iterable([1, 2, 3]).pipe(*operators)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", list(USES))
def test_an_async_function_in_place_of_a_plain_one_is_an_error_of_ours(name: str, run: Run) -> None:
    async def story() -> None:
        with pytest.raises(PenstockError) as caught:
            await built(USES[name], doubled).to(for_each(same)).run()
        assert "coroutine" in str(caught.value) or "plain function" in str(caught.value)

    run(story())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", list(USES))
def test_a_plain_function_that_returns_a_coroutine_fails_at_its_first_call(
    name: str, run: Run
) -> None:
    async def story() -> None:
        with pytest.raises((PenstockError, TypeError), match=r"await|coroutine") as caught:
            await built(USES[name], returns_a_coroutine).to(for_each(same)).run()
        assert not isinstance(caught.value, BuildError)

    run(story())
