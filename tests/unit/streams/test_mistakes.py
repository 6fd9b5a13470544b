"""Common mistakes are refused, with what to write instead."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    WorkPool,
    adaptive_flat_map,
    collect,
    dead_letters,
    distinct_within,
    from_iterable,
    group_by,
    read_jetstream,
    run,
    spread,
    write_jetstream,
    write_jsonl,
)
from penstock.streams.errors import BuildError, MissingExtra
from penstock.streams.testing import run_virtual

NUMBERS = from_iterable([1, 2, 3])


async def handler(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("mistake", "advice"),
    [
        (
            lambda: NUMBERS.pipe(adaptive_flat_map(abs), write_jsonl()),
            r"\.to\(write_jsonl\(...\)\)",
        ),
        (lambda: NUMBERS.pipe(write_jsonl()), r"write_jsonl\(...\) is a sink"),
        (
            lambda: adaptive_flat_map(abs, on_error=dead_letters("x")),  # type: ignore[call-overload]
            r"on_error=route\(dead_letters\(...\)\)",
        ),
        (
            lambda: distinct_within("n", 10),  # type: ignore[arg-type]
            r"did you mean distinct_within\(10, by='n'\)",
        ),
        (lambda: run(NUMBERS), r"run\(stream\.to\(write_jsonl\(\)\)\)"),  # type: ignore[arg-type]
    ],
)
def test_what_is_mistaken_is_refused_with_advice(
    mistake: Callable[[], object], advice: str
) -> None:
    with pytest.raises(BuildError, match=advice):
        mistake()


def test_a_handler_given_to_pipe_leaves_no_coroutine_behind() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(BuildError, match=r"adaptive_flat_map\(handler\)"):
            NUMBERS.pipe(handler)  # type: ignore[call-overload]
        gc.collect()


def test_a_pipeline_is_neither_a_running_nor_a_stream() -> None:
    pipeline: Any = NUMBERS.to(collect([]))

    async def forgotten_start() -> None:
        async with pipeline:
            pass

    async def read() -> None:
        async for _ in pipeline:
            pass

    with pytest.raises(TypeError, match=r"async with pipeline\.start\(\) as running"):
        run_virtual(forgotten_start())
    with pytest.raises(TypeError, match="async for value in stream"):
        run_virtual(read())


def test_an_unhashable_key_of_a_function_is_reported() -> None:
    pipeline = NUMBERS.pipe(group_by(lambda n: [n]), spread()).to(collect([]))  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError) as raised:
        run(pipeline)
    assert raised.value.__notes__[0] == "in stage 2 'group_by', on the event 1"
    assert raised.value.__notes__[1].startswith("a key must be hashable")


@pytest.mark.parametrize(
    "build",
    [
        lambda: read_jetstream("s"),
        lambda: write_jetstream("s"),
        lambda: WorkPool("nats://localhost"),
    ],
)
def test_a_missing_client_of_nats_is_reported_when_the_pipeline_is_built(
    build: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(MissingExtra, match=r"needs nats-py: .*\[cluster\]"):
        build()
