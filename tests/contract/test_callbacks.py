"""An error in a call of the loop to a stage ends the run, which would otherwise hang."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from reactivex import operators as ops

from penstock import (
    Backoff,
    Fixed,
    Flowable,
    adaptive_flat_map,
    batch,
    chunk,
    from_async_iterable,
    from_iterable,
    group_by,
    latency_histogram,
    rate_limit,
    retry,
    spread,
    write_jsonl,
)
from penstock.operators.chunk import _Filling
from penstock.operators.rate_limit import _Bucket
from penstock.streams.base.errors import HandlerCancelled
from penstock.streams.execution.batch_stage import BatchStage
from penstock.streams.execution.retry import RetryQueue
from penstock.streams.execution.worker_stage import WorkerStage
from penstock.streams.groups.expiry import Idle
from penstock.streams.io.line_writer import LineWriting
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run as PipelineRun
from penstock.streams.runtime.timer import Timer
from penstock.streams.rx.lifted import LiftedHolding
from penstock.streams.stages.latency_stage import LatencyStage
from penstock.streams.testing import MemorySink, MemorySource
from penstock.streams.testing.plugin import Run

HOME = Path(__file__).parents[2]


async def work(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


async def works_on_all(values: list[Any]) -> list[Any]:
    return values


async def fails(value: Any) -> Any:
    raise ValueError(value)


async def slowly() -> AsyncIterator[int]:
    for n in range(9):
        await asyncio.sleep(1)
        yield n


held_back = adaptive_flat_map(fails, on_error="skip", overload=lambda _: 1.0)
tried_again = adaptive_flat_map(fails, on_error=retry(2, Backoff(1)))
grouped = group_by(lambda n: n, each=lambda group: group, idle=0.5)

# The stage, its callback on the loop, and how that is scheduled.
CASES: list[tuple[str, type, str, tuple[Any, ...]]] = [
    ("adaptive_flat_map", WorkerStage, "_flush_now", (adaptive_flat_map(work, Fixed(4)),)),
    ("adaptive_flat_map", WorkerStage, "_drain", (held_back,)),
    ("adaptive_flat_map", RetryQueue, "_over", (tried_again,)),
    ("batch", BatchStage, "_drain", (batch(works_on_all),)),
    ("chunk", _Filling, "_wait_is_over", (chunk(9, 0.5),)),
    ("rate_limit", _Bucket, "_due", (rate_limit(1),)),
    ("spread", Idle, "_ring", (grouped, spread())),
    ("delay", LiftedHolding, "on_due", (ops.delay(1),)),
]


def break_calls(monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> None:
    """Let the calls of this method by the loop raise, also by a timer."""
    call = PipelineRun.call

    def broken(*_: Any) -> None:
        raise RuntimeError("broken")

    def called(run: PipelineRun, info: Any, callback: Any, *args: Any) -> None:
        inner = callback
        if isinstance(getattr(callback, "__self__", None), Timer):
            inner = callback.__self__._call
        if isinstance(getattr(inner, "__self__", None), kind) and inner.__name__ == name:
            callback = broken
        call(run, info, callback, *args)

    # Not the method itself, which is that of a compiled class.
    monkeypatch.setattr(PipelineRun, "call", called)


@pytest.mark.parametrize(
    ("stage", "kind", "name", "operators"), CASES, ids=[f"{c[0]} {c[2]}" for c in CASES]
)
def test_an_error_in_what_the_loop_calls_ends_the_run_and_names_the_stage(
    stage: str,
    kind: type,
    name: str,
    operators: tuple[Any, ...],
    monkeypatch: pytest.MonkeyPatch,
    run: Run,
) -> None:
    break_calls(monkeypatch, kind, name)
    source: Any = MemorySource(range(30))
    if stage in ("chunk", "spread"):
        source = from_async_iterable(slowly)
    with pytest.raises(RuntimeError, match="broken") as told:
        run(source.pipe(*operators).to(MemorySink()).run())
    assert any(f"'{stage}'" in note for note in told.value.__notes__)
    if isinstance(source, MemorySource):
        assert not source.unsettled


def test_an_error_in_what_the_loop_calls_of_a_sink_ends_the_run_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    break_calls(monkeypatch, LineWriting, "_idle")
    break_calls(monkeypatch, LatencyStage, "_tick")
    for sink in (write_jsonl(tmp_path / "lines.jsonl"), latency_histogram(0.5, report=None)):
        with pytest.raises(RuntimeError, match="broken") as told:
            run(from_async_iterable(slowly).pipe(ops.map(lambda n: {"n": n})).to(sink).run())
        assert sink.info.name in told.value.__notes__[0]


def test_an_error_that_nobody_can_receive_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, run: Run
) -> None:
    async def story() -> None:
        def broken() -> None:
            raise RuntimeError("broken")

        PipelineRun().call_soon(None, broken)
        await asyncio.sleep(0)

    run(story())
    assert "broken" in caplog.text


# Where errors are handled elsewhere: the watches and the control of a running do not fail it, and
# the parts of a connection have no run.
NOT_A_STAGES = {
    "loop_lag.py",
    "inbox.py",
    "entrance.py",
    "cell.py",
    "descriptor.py",
    "pipeline.py",
    "context.py",
    "handle.py",
    "os_signals.py",
    "blocked_loop.py",
    "clock.py",
    "partition.py",
    "requests.py",
    "to_future.py",
    "table.py",
    "worker.py",
    "client.py",
    "background.py",
    "collector.py",
    "moves.py",
}


def test_all_stages_have_the_loop_call_them_through_their_run() -> None:
    calls = re.compile(r"loop(\(\))?\.call_(soon|later|at|soon_threadsafe)\(")
    found = {
        path.name
        for package in ("streams", "operators", "sources", "sinks")
        for path in (HOME / package).rglob("*.py")
        if "testing" not in path.parts and calls.search(path.read_text(encoding="utf-8"))
    }
    assert found <= NOT_A_STAGES


class Exotic(BaseException):
    """Neither an Exception nor one of those that end a task or the process."""


def raises_exotic(value: int) -> Any:
    if value == 2:
        raise Exotic(value)
    return value


def items_then_exotic() -> Iterator[int]:
    yield 1
    raise Exotic(2)


@pytest.mark.parametrize(
    "flow",
    [
        from_iterable([1, 2, 3]).pipe(ops.map(raises_exotic)),
        from_iterable([1, 2, 3]).pipe(ops.filter(raises_exotic)),
        from_iterable([1, 2, 3]).pipe(adaptive_flat_map(work), ops.map(raises_exotic)),
        from_iterable([1, 2, 3]).pipe(adaptive_flat_map(raises_exotic)),
        from_iterable([1, 2, 3]).pipe(group_by(raises_exotic), spread()),
        from_iterable(lambda: [items_then_exotic()]).pipe(spread()),
        from_iterable(items_then_exotic),
    ],
    ids=["map", "filter", "after a call", "handler", "key", "spread", "source"],
)
def test_an_error_that_is_not_an_exception_ends_the_pipeline_too(
    run: Run, flow: Flowable[Any]
) -> None:
    with pytest.raises(Exotic, match="2"):
        run(asyncio.wait_for(flow.to(MemorySink()).run(), 99))


def test_a_cancellation_out_of_a_function_ends_the_pipeline_and_not_its_waiter(run: Run) -> None:
    def cancelled(_: int) -> None:
        raise asyncio.CancelledError

    with pytest.raises(HandlerCancelled):
        run(asyncio.wait_for(from_iterable([1]).pipe(ops.map(cancelled)).to(MemorySink()).run(), 9))


def test_an_error_in_a_task_of_a_stage_is_reported_with_the_name_of_the_stage(run: Run) -> None:
    async def fails() -> None:
        raise ValueError("no")

    def attach(downstream: Subscriber[Any], run: PipelineRun) -> None:
        run.add_stage(flow.info, dict)
        from_iterable(range(9)).pipe(adaptive_flat_map(work)).attach(downstream, run)
        run.spawn(fails(), "polled")

    flow: Flowable[Any] = Flowable(attach, StageInfo("polled"))
    with pytest.raises(ValueError, match="no") as raised:
        run(flow.to(MemorySink()).run())
    assert raised.value.__notes__ == ["in stage 1 'polled'"]
