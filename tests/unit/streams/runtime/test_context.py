"""A run and the runs nested in it: what they share, and what is each one's own."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from penstock.streams.failures.error_policy import policy_in
from penstock.streams.pipelines.pipeline import Engine
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.testing import ManualPublisher, run_virtual


def test_a_nested_run_shares_errors_pauses_letters_and_leases() -> None:
    run = Run(drain_deadline=7, limit=(1, 2))
    nested = run.nested()
    assert nested.errors is run.errors
    assert nested.pauses is run.pauses
    assert nested.letters is run.letters
    assert nested.lessors is run.lessors
    assert nested.blocks is run.blocks
    assert (nested.drain_deadline, nested.limit) == (7, (1, 2))


def test_a_nested_run_has_stages_and_errors_that_end_it_of_its_own() -> None:
    run = Run(overrides=Engine(ManualPublisher[int](), "skip").overrides(None))
    outer, inner = list[BaseException](), list[BaseException]()
    nested, error = run.nested(), ValueError("no")
    run.on_failed, nested.on_failed = outer.append, inner.append
    nested.failed(error)
    nested.add_stage(StageInfo("map"), dict)
    assert (outer, inner) == ([], [error])
    assert (len(run.nesting.stages), len(nested.nesting.stages)) == (0, 1)
    # A cluster changes the pipeline itself only.
    assert (policy_in(run, "stop"), policy_in(nested, "stop")) == ("skip", "stop")


def test_a_run_ends_the_tasks_of_the_runs_nested_in_it() -> None:
    async def story() -> None:
        run, closed = Run(), list[str]()

        async def close() -> None:
            closed.append("nested")

        nested = run.nested()
        task = nested.spawn(asyncio.sleep(1000), "sleeps")
        nested.on_close(close)
        assert run.is_open
        await run.close()
        assert task.cancelled()
        assert (closed, run.is_open) == (["nested"], False)

    run_virtual(story())


def test_a_nested_run_that_cannot_be_closed_keeps_no_other_from_being_closed() -> None:
    async def story() -> None:
        run, closed = Run(), list[int]()

        async def close(number: int) -> None:
            closed.append(number)
            if number < 3:
                raise ValueError(number)

        for number in (1, 2, 3):
            run.nested().on_close(partial(close, number))
        with pytest.raises(ExceptionGroup) as raised:
            await run.close()
        assert closed == [1, 2, 3]
        assert len(raised.value.exceptions) == 2

    run_virtual(story())


def test_the_stages_of_a_group_are_not_listed() -> None:
    run, info = Run(), StageInfo("map")
    run.add_stage(info._replace(within=StageInfo("group_by")), dict)
    assert run.nesting.stages == []
    run.add_stage(info, dict)
    assert [listed for listed, _ in run.nesting.stages] == [info]
