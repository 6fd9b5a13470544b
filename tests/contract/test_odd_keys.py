"""Where keys can be hashed, compared and printed only sometimes, every event is settled too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from penstock import (
    adaptive_flat_map,
    batch,
    distinct_within,
    group_by,
    monitor,
    retry,
    spread,
)
from penstock import ops as _ops
from penstock.streams.testing import MemorySink, MemorySource, run_virtual

# What reactivex says of its types does not fit a lambda.
ops: Any = _ops

Function = Callable[[Any], Any]


class Breaking:
    """Counts the calls of one method of all keys, of which those at `when` raise."""

    def __init__(self, method: str, when: range) -> None:
        self.method = method
        self.when = when
        self.calls = 0

    def called(self, method: str) -> None:
        if method == self.method:
            self.calls += 1
            if self.calls in self.when:
                raise ValueError(method)


class Key:
    def __init__(self, value: int, breaking: Breaking) -> None:
        self._value = value
        self._breaking = breaking

    def __hash__(self) -> int:
        self._breaking.called("hash")
        # Keys share hashes, so that they are compared.
        return self._value % 3

    def __eq__(self, other: object) -> bool:
        self._breaking.called("eq")
        return isinstance(other, Key) and self._value == other._value

    def __repr__(self) -> str:
        self._breaking.called("repr")
        return f"Key({self._value})"


async def work(value: int) -> int:
    await asyncio.sleep(0.1)
    if value == 5:
        raise OSError(value)
    return value


async def batched(values: list[int]) -> list[int]:
    await asyncio.sleep(0.1)
    return values


def counted(group: Any) -> Any:
    return group.pipe(ops.count())


def scanned(group: Any) -> Any:
    return group.pipe(ops.scan(lambda _, value: value))


skips, calls = adaptive_flat_map(work, on_error="skip"), adaptive_flat_map(work)
STAGES: dict[str, Callable[[Function], tuple[Any, ...]]] = {
    "group_by": lambda key: (group_by(key), spread(), calls),
    "group_by, skipping": lambda key: (group_by(key, on_error="skip"), spread(), skips),
    "retry": lambda key: (
        group_by(key),
        spread(),
        adaptive_flat_map(work, on_error=retry(3)),
    ),
    "batch": lambda key: (group_by(key), spread(), batch(batched)),
    "each": lambda key: (group_by(key, each=counted, idle=1.0, max_groups=2), spread()),
    "small groups": lambda key: (
        group_by(key, each=scanned, idle=1.0, max_groups=2, buffer=4),
        spread(),
        skips,
    ),
    "twice": lambda key: (group_by(key), spread(), skips, group_by(key), spread(), skips),
    "distinct_within": lambda key: (distinct_within(9, key), calls),
    "distinct_within, skipping": lambda key: (distinct_within(9, key, on_error="skip"), skips),
    "distinct_within, expiring": lambda key: (skips, distinct_within(0.05, key)),
    "distinct_within, few keys": lambda key: (distinct_within(9, key, max_keys=2), skips),
    "distinct_until_changed": lambda key: (ops.distinct_until_changed(key),),
    "monitor": lambda key: (monitor("G a", a=lambda value: True, by=key), skips),
}
ONCE = [range(n, n + 1) for n in (1, 2, 3, 5, 7, 8, 11, 14, 20, 30)]
FROM_THEN_ON = [range(n, 10_000) for n in (1, 5, 9, 14, 20, 30)]


@pytest.mark.parametrize("several", [True, False], ids=["several of each", "one of each"])
@pytest.mark.parametrize("method", ["hash", "eq", "repr"])
@pytest.mark.parametrize("name", STAGES)
def test_every_event_is_settled_whenever_its_key_breaks(
    name: str, method: str, several: bool
) -> None:
    for when in (*ONCE, *FROM_THEN_ON):
        breaking = Breaking(method, when)
        source = MemorySource(range(12))

        async def story(
            source: MemorySource[int] = source, breaking: Breaking = breaking
        ) -> dict[str, Any]:
            def key(value: int) -> Key:
                return Key(value % 4 if several else value, breaking)

            running = source.pipe(*STAGES[name](key)).to(MemorySink()).start()
            with suppress(Exception):
                async with asyncio.timeout(60):
                    await running.wait()
            breaking.when = range(0)
            assert running.report().outcome in ("completed", "stopped")
            return running.statistics()

        numbers = run_virtual(story())
        ended = numbers["finished"] + numbers["failed"] + numbers["returned"]
        assert numbers["in"] == ended + sum(numbers["dropped"].values()), when
        assert source.unsettled == [], when
