from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    Backoff,
    Fixed,
    Running,
    WorkPool,
    collect,
    dead_letters,
    for_each,
    from_iterable,
    group_by,
    ops,
    rate_limit,
    route,
    spread,
)
from penstock.streams.base.errors import BuildError, PoolBusy
from penstock.streams.telemetry.document import Document
from penstock.streams.testing import CountedSource, MemorySource, no_leaks, run_virtual


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def checked() -> None:
            async with no_leaks():
                await test(*args, **kwargs)

        run_virtual(checked())

    return run


async def double(job: int) -> int:
    await asyncio.sleep(1 + job % 3)
    return 2 * job


async def all_of(flow: Any) -> list[Any]:
    return [value async for value in flow]


async def leave(*workers: Running) -> None:
    for worker in workers:
        await worker.drain()


@virtual
async def test_every_job_is_done_by_one_worker_and_its_result_comes_back() -> None:
    pool = WorkPool()
    workers = [pool.work(double, Fixed(2)).start() for _ in range(3)]
    results = await all_of(pool.offer(range(20)))
    assert sorted(results) == [2 * job for job in range(20)]
    assert sum(worker.statistics()["finished"] for worker in workers) == 20
    await leave(*workers)


@given(st.lists(st.integers(0, 9)), st.integers(1, 4), st.integers(1, 5), st.integers(1, 5))
def test_ordered_results_are_in_the_order_of_the_epic(
    jobs: list[int], workers: int, limit: int, window: int
) -> None:
    @virtual
    async def story() -> None:
        pool = WorkPool()
        running = [pool.work(double, Fixed(limit)).start() for _ in range(workers)]
        results = await all_of(pool.offer(jobs, ordered=True, window=window))
        assert results == [2 * job for job in jobs]
        await leave(*running)

    story()


@virtual
async def test_a_plain_handler_that_asks_for_more_while_it_is_given_work_gets_it() -> None:
    pool = WorkPool()
    worker = pool.work(lambda job: 2 * job).start()
    results = await all_of(pool.offer(range(2_000), ordered=True))
    assert results == [2 * job for job in range(2_000)]
    seen: list[int] = []
    await pool.offer(range(5_000)).to(for_each(seen.append)).run()
    assert seen == [2 * job for job in range(5_000)]
    await leave(worker)


@virtual
async def test_an_epic_without_workers_says_once_for_whom_it_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool = WorkPool(name="p")
    epic = pool.offer(range(4)).to(collect([])).start()
    following = pool.offer(range(4), when_busy="wait").to(collect([])).start()
    await asyncio.sleep(20)
    nobody = "a worker: no pipeline of work(...) in the work pool 'p' is running"
    said = [
        f"stage 2 'offer' waits for {nobody}",
        "stage 2 'offer' waits for the end of another epic in the work pool 'p'",
    ]
    assert caplog.messages == said
    assert (offer_of(epic)["waited"], offer_of(following)["waited"]) == (20, 20)

    async def slowly(job: int) -> int:
        await asyncio.sleep(10)
        return job

    worker = pool.work(slowly, Fixed(1)).start()
    await asyncio.sleep(15)
    await leave(worker)
    await asyncio.sleep(10)
    assert caplog.messages == [*said, said[0]]
    # A worker that drains takes no more jobs.
    assert offer_of(epic)["waited"] == 20 + 15
    worker = pool.work(double, Fixed(1)).start()
    await epic.wait()
    await following.wait()
    assert caplog.messages == [*said, said[0]]
    await leave(worker)


@virtual
async def test_the_epic_is_read_only_as_far_as_workers_pull() -> None:
    pool = WorkPool()
    epic = CountedSource(range(1_000))
    begun: list[int] = []

    async def hang(job: int) -> None:
        begun.append(job)
        await asyncio.Event().wait()

    running = pool.offer(epic).to(collect([])).start()
    await asyncio.sleep(1)
    assert epic.emitted == 0
    first = pool.work(hang, Fixed(3)).start()
    await asyncio.sleep(1)
    assert epic.emitted == len(begun) == 3
    second = pool.work(hang, Fixed(4)).start()
    await asyncio.sleep(1)
    assert epic.emitted == len(begun) == 7
    for one in (running, first, second):
        one.cancel()
        await one.wait()


@pytest.mark.parametrize("epic", [(), [], range(0)])
@virtual
async def test_an_epic_without_jobs_ends_though_there_is_no_worker(epic: Any) -> None:
    pool = WorkPool()
    assert await all_of(pool.offer(epic)) == []
    # The pool is free again.
    worker = pool.work(double, Fixed(1)).start()
    assert await all_of(pool.offer([1])) == [2]
    await leave(worker)


@virtual
async def test_results_that_nobody_takes_stop_the_reading() -> None:
    pool = WorkPool()
    epic = CountedSource(range(1_000))
    taken: list[int] = []

    async def hang(result: int) -> None:
        taken.append(result)
        await asyncio.Event().wait()

    worker = pool.work(double, Fixed(2)).start()
    running = pool.offer(epic, window=5).to(for_each(hang)).start()
    await asyncio.sleep(100)
    assert len(taken) == 1
    assert epic.emitted <= 1 + 5 + 2
    running.cancel()
    await running.wait()
    await leave(worker)


@virtual
async def test_a_worker_that_joins_gets_work_and_one_that_leaves_finishes_its_own() -> None:
    pool = WorkPool()
    done: dict[str, int] = {"a": 0, "b": 0}

    def named(name: str) -> Callable[[int], Coroutine[Any, Any, int]]:
        async def work(job: int) -> int:
            await asyncio.sleep(1)
            done[name] += 1
            return job

        return work

    a = pool.work(named("a"), Fixed(1)).start()
    running = pool.offer(range(10)).to(collect([])).start()
    await asyncio.sleep(2.5)
    assert done == {"a": 2, "b": 0}
    b = pool.work(named("b"), Fixed(1)).start()
    await asyncio.sleep(2.1)
    assert done == {"a": 4, "b": 2}
    report = await a.drain()
    assert done["a"] == 5
    assert report.statistics["returned"] == 0
    report = await running.wait()
    assert report.statistics["finished"] == 10
    await leave(b)


@virtual
async def test_what_a_cancelled_worker_held_is_done_by_another() -> None:
    pool = WorkPool(attempts=1)

    async def hang(job: int) -> int:
        await asyncio.Event().wait()
        return job

    a = pool.work(hang, Fixed(4)).start()
    results: list[int] = []
    running = pool.offer(range(6)).to(collect(results)).start()
    await asyncio.sleep(1)
    a.cancel()
    assert (await a.wait()).statistics["returned"] == 4
    b = pool.work(double, Fixed(2)).start()
    await running.wait()
    assert sorted(results) == [0, 2, 4, 6, 8, 10]
    await leave(b)


@virtual
async def test_poison_goes_to_the_dead_letters_after_its_attempts(tmp_path: Any) -> None:
    pool = WorkPool(attempts=3)
    tried: list[int] = []

    async def picky(job: int) -> int:
        tried.append(job)
        if job == 2:
            raise ValueError("poison")
        return job

    worker = pool.work(picky, Fixed(2), backoff=Backoff(1)).start()
    letters = tmp_path / "letters.jsonl"
    results: list[int] = []
    offered = pool.offer(range(5), ordered=True, on_error=route(dead_letters(letters)))
    report = await offered.to(collect(results)).run()
    assert results == [0, 1, 3, 4]
    assert tried.count(2) == 3
    assert (report.statistics["failed"], report.statistics["finished"]) == (1, 4)
    assert '"attempts":3' in letters.read_text(encoding="utf-8")
    await leave(worker)


@virtual
async def test_an_event_of_the_epic_that_is_reverted_is_returned_to_its_source() -> None:
    pool = WorkPool(attempts=1)

    async def picky(job: int) -> int:
        if job == 2:
            raise ValueError("not today")
        return job

    worker = pool.work(picky).start()
    epic = MemorySource(range(4))
    report = await pool.offer(epic, on_error="revert").to(collect([])).run()
    numbers = report.statistics
    assert (numbers["failed"], numbers["returned"], numbers["finished"]) == (0, 1, 3)
    stage = numbers["stages"][1]
    assert (stage["skipped"], stage["reverted"]) == (0, 1)
    await leave(worker)


class Broken(BaseException):
    """An error that no policy handles."""


@virtual
async def test_a_job_that_ends_its_worker_is_returned_and_done_by_another() -> None:
    pool = WorkPool(attempts=1)

    async def breaks(job: int) -> int:
        raise Broken

    running = pool.offer([1]).to(collect(results := [])).start()
    worker = pool.work(breaks, Fixed(1)).start()
    with pytest.raises(Broken):
        await worker.wait()
    numbers = worker.statistics()
    assert (numbers["failed"], numbers["returned"]) == (0, 1)
    another = pool.work(double).start()
    await running.wait()
    assert results == [2]
    await leave(another)


@virtual
async def test_jobs_beside_one_that_ends_its_workers_are_done() -> None:
    pool = WorkPool(attempts=1)
    begun: list[int] = []

    async def breaks_thrice(job: int) -> int:
        begun.append(job)
        await asyncio.sleep(1)
        if job == 0 and begun.count(0) <= 3:
            raise Broken
        return job

    running = pool.offer(range(4), on_error="skip").to(collect(results := [])).start()
    for _ in range(3):
        worker = pool.work(breaks_thrice, Fixed(2)).start()
        with pytest.raises(Broken):
            await worker.wait()
    last = pool.work(breaks_thrice, Fixed(2)).start()
    await running.wait()
    assert sorted(results) == [0, 1, 2, 3]
    await leave(last)


@virtual
async def test_a_worker_begins_no_job_for_as_long_as_its_overload_says() -> None:
    pool = WorkPool(attempts=2)
    begun: list[float] = []

    async def refused_once(job: int) -> int:
        begun.append(asyncio.get_running_loop().time())
        if len(begun) == 1:
            raise ConnectionRefusedError
        return job

    def overload(error: Exception) -> bool | float:
        return 7.0 if isinstance(error, ConnectionRefusedError) else False

    worker = pool.work(refused_once, Fixed(1), backoff=Backoff(1), overload=overload).start()
    assert await all_of(pool.offer(range(2))) == [0, 1]
    assert min(begun[1:]) == begun[0] + 7
    await leave(worker)


@virtual
async def test_without_another_choice_a_job_that_fails_ends_the_epic() -> None:
    pool = WorkPool(attempts=1)

    def fail(job: int) -> int:
        raise ValueError("poison") if job == 3 else KeyError(job)

    def picky(job: int) -> int:
        return fail(job) if job == 3 else job

    worker = pool.work(picky).start()
    with pytest.raises(ValueError, match="poison") as told:
        await pool.offer(range(10)).to(collect([])).run()
    assert any("on the event 3" in note for note in told.value.__notes__)
    assert await all_of(pool.offer([1, 2])) == [1, 2]
    await leave(worker)


@virtual
async def test_a_busy_pool_says_so_to_a_second_epic() -> None:
    pool = WorkPool(name="campaign")
    first = pool.offer(range(3)).to(collect([])).start()
    await asyncio.sleep(1)
    with pytest.raises(PoolBusy, match="'campaign' has an epic under way"):
        await pool.offer(range(3)).to(collect([])).run()
    worker = pool.work(double).start()
    assert (await first.wait()).statistics["finished"] == 3
    assert await all_of(pool.offer([5])) == [10]
    await leave(worker)


@virtual
async def test_a_second_epic_waits_if_it_is_asked_to() -> None:
    pool = WorkPool()
    seen: list[int] = []
    epics = [
        pool.offer(jobs, when_busy="wait").to(collect(seen)).start()
        for jobs in ([1, 2, 3], [10, 20], [100])
    ]
    await asyncio.sleep(1)
    worker = pool.work(double, Fixed(1)).start()
    for epic in epics:
        await epic.wait()
    assert seen == [2, 4, 6, 20, 40, 200]
    await leave(worker)


@virtual
async def test_an_event_of_the_epic_is_finished_when_the_sinks_have_its_result() -> None:
    pool = WorkPool()
    epic = MemorySource([1, 2, 3])

    async def hang(result: int) -> None:
        if result == 4:
            await asyncio.Event().wait()

    worker = pool.work(double, Fixed(3)).start()
    running = pool.offer(epic, ordered=True).to(for_each(hang)).start()
    await asyncio.sleep(10)
    assert epic.acked == [1]
    running.cancel()
    await running.wait()
    assert sorted(epic.returned) == [2, 3]
    await leave(worker)


@virtual
async def test_the_jobs_of_a_key_are_done_one_after_another() -> None:
    pool = WorkPool()
    at_work: set[int] = set()
    order: dict[int, list[int]] = {}

    async def alone(job: int) -> int:
        key = job % 3
        assert key not in at_work
        at_work.add(key)
        await asyncio.sleep(1 + job % 2)
        at_work.remove(key)
        order.setdefault(key, []).append(job)
        return job

    workers = [pool.work(alone, Fixed(4)).start() for _ in range(2)]
    epic = from_iterable(range(30)).pipe(group_by(lambda job: job % 3), spread())
    assert len(await all_of(pool.offer(epic))) == 30
    assert all(jobs == sorted(jobs) for jobs in order.values())
    await leave(*workers)


@virtual
async def test_a_cancelled_epic_leaves_the_pool_free() -> None:
    pool = WorkPool()
    closed: list[bool] = []

    def jobs() -> Iterator[int]:
        try:
            yield from range(1_000)
        finally:
            closed.append(True)

    worker = pool.work(double, Fixed(2)).start()
    running = pool.offer(jobs).to(collect([])).start()
    await asyncio.sleep(5)
    running.cancel()
    report = await running.wait()
    assert closed == [True]
    assert report.statistics["returned"] == 2
    assert await all_of(pool.offer([1])) == [2]
    await leave(worker)


@virtual
async def test_an_async_iterator_may_be_an_epic() -> None:
    pool = WorkPool()

    async def jobs() -> AsyncIterator[int]:
        for job in range(3):
            await asyncio.sleep(1)
            yield job

    from penstock import from_async_iterable

    worker = pool.work(double).start()
    assert sorted(await all_of(pool.offer(from_async_iterable(jobs)))) == [0, 2, 4]
    await leave(worker)


async def generate(job: int) -> AsyncIterator[int]:
    yield job


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: WorkPool(attempts=0), "at least 1 attempt"),
        (lambda: WorkPool(lease=0), "positive seconds"),
        (lambda: WorkPool(name="a b"), "letters, digits"),
        (lambda: WorkPool("http://a"), "addresses of NATS"),
        (lambda: WorkPool().offer([], window=0), "at least 1 result"),
        (lambda: WorkPool().offer([], when_busy="later"), "refuse"),  # type: ignore[arg-type]
        (lambda: WorkPool().offer([], on_error="ignore"), "skip"),  # type: ignore[arg-type]
        (lambda: WorkPool().work(generate), "one result"),
        (lambda: WorkPool().work(abs, timeout=1), "async handler"),
        (lambda: WorkPool().work(double, timeout=0), "positive seconds"),
        (lambda: WorkPool().work(3), "callable"),  # type: ignore[arg-type]
    ],
)
def test_options_that_make_no_sense_are_refused(build: Callable[[], Any], words: str) -> None:
    with pytest.raises(BuildError, match=words):
        build()


def offer_of(epic: Running) -> dict[str, Any]:
    """The statistics of the stage that offers."""
    stages: list[dict[str, Any]] = epic.statistics()["stages"]
    return next(stage for stage in stages if stage["name"] == "offer")


@virtual
async def test_a_worker_that_shares_a_full_resource_with_others_does_not_pay() -> None:
    pool, resource = WorkPool(), asyncio.Semaphore(2)

    async def limited(job: int) -> int:
        async with resource:
            await asyncio.sleep(0.1)
        return job

    epic = pool.offer(range(1_000_000)).to(collect([])).start()
    workers = [pool.work(limited, Fixed(1)).start()]
    await asyncio.sleep(20)
    assert (offer_of(epic)["workers"], offer_of(epic)["pays"]) == (1, 2)
    workers.append(pool.work(limited, Fixed(1)).start())
    await asyncio.sleep(20)
    assert offer_of(epic)["gain"] == pytest.approx(1.0, abs=0.05)
    assert offer_of(epic)["pays"] == 3
    workers.append(pool.work(limited, Fixed(1)).start())
    await asyncio.sleep(30)
    assert offer_of(epic)["busy"] == pytest.approx(1.0, abs=0.05)
    assert offer_of(epic)["gain"] == pytest.approx(0.0, abs=0.05)
    assert offer_of(epic)["pays"] == 2
    await workers.pop().drain()
    await asyncio.sleep(30)
    # It left, and nothing was lost by that.
    assert offer_of(epic)["pays"] == 2
    epic.cancel()
    await epic.wait()
    await leave(*workers)


@virtual
async def test_workers_that_wait_for_a_slow_epic_are_too_many() -> None:
    pool = WorkPool()

    async def work(job: int) -> int:
        await asyncio.sleep(0.17)
        return job

    workers = [pool.work(work, Fixed(1)).start() for _ in range(5)]
    epic = (
        pool.offer(from_iterable(range(1_000_000)).pipe(rate_limit(1, per=0.1)))
        .to(collect([]))
        .start()
    )
    await asyncio.sleep(60)
    assert offer_of(epic)["busy"] == pytest.approx(1.7 / 5, abs=0.03)
    assert offer_of(epic)["pays"] == 2
    epic.cancel()
    await epic.wait()
    await leave(*workers)


@virtual
async def test_an_epic_may_hand_out_batches() -> None:
    pool = WorkPool()

    async def squares(jobs: list[int]) -> list[int]:
        await asyncio.sleep(1)
        return [job * job for job in jobs]

    worker = pool.work(squares, Fixed(2)).start()
    jobs = from_iterable(range(10)).pipe(ops.buffer_with_count(4))
    assert await all_of(pool.offer(jobs, ordered=True)) == [
        [0, 1, 4, 9],
        [16, 25, 36, 49],
        [64, 81],
    ]
    await leave(worker)


@virtual
async def test_an_epic_has_a_report_and_a_live_page_as_other_runs_have() -> None:
    pool = WorkPool()
    worker = pool.work(double).start()
    async with pool.offer([1, 2]).to(collect([])).start() as epic:
        document = Document(epic, epic.record(), None, show_values=False)
    assert str(await epic.wait()).splitlines()[1] == "  events: 2 in, 2 finished"
    assert document.now()["stages"]["2"]["workers"] == 1
    await leave(worker)
