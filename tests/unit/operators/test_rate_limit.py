from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from reactivex import operators as ops

from penstock import (
    Fixed,
    Flowable,
    RateLimit,
    adaptive_flat_map,
    collect,
    for_each,
    from_iterable,
    group_by,
    in_threads,
    rate_limit,
    retry,
    route,
    spread,
)
from penstock.streams.base.errors import BuildError, CostTooHigh, NoLoop
from penstock.streams.testing import (
    COMPLETED,
    CountedSource,
    ManualPublisher,
    MemorySink,
    MemorySource,
    Probe,
    VirtualClock,
    run_virtual,
)
from penstock.streams.testing.plugin import Run


def times_of(source: Flowable[Any], operator: Any, seconds: float = 1000) -> list[float]:
    async def story() -> list[float]:
        probe = Probe[Any](request=10_000)
        source.pipe(operator).connect(probe)
        await asyncio.sleep(seconds)
        if not probe.ended:
            probe.cancel()
        return [at for at, _ in probe.timed]

    return run_virtual(story())


# The story.


def test_events_pass_one_a_period_after_the_first(clock: VirtualClock) -> None:
    seen = clock.play("(1,2,3)-|", rate_limit(1, per=2))
    assert seen == [(0, 1), (2, 2), (4, 3), (8, COMPLETED)]


def test_the_diagram_of_the_documentation_plays(clock: VirtualClock) -> None:
    seen = clock.play("a-b-c-d------|", rate_limit(1, 1), tick=0.25)
    assert seen == [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (3.25, COMPLETED)]


def test_a_burst_passes_at_once_after_a_pause(clock: VirtualClock) -> None:
    seen = clock.play("(1,2,3,4)-(5,6,7)", rate_limit(1, per=1, burst=3))
    assert [value for _, value in seen] == [1, 2, 3, 4, 5, 6, 7]
    assert [at for at, _ in seen] == pytest.approx([0, 0, 0, 1, 10, 10, 10])


def test_slow_events_are_not_delayed(clock: VirtualClock) -> None:
    assert clock.play("-a---b-|", rate_limit(1, per=2)) == [(1, "a"), (5, "b"), (7, COMPLETED)]


def test_completion_waits_for_the_event_that_waits(clock: VirtualClock) -> None:
    assert clock.play("(1,2,|)", rate_limit(1, per=5)) == [(0, 1), (5, 2), (5, COMPLETED)]


def test_an_error_does_not_wait_and_the_waiting_event_is_given_back() -> None:
    async def story() -> None:
        source, probe = ManualPublisher[int](), Probe[int](request=9)
        source.pipe(rate_limit(1)).connect(probe)
        source.send(1, 2)
        source.fail(ValueError("from above"))
        assert (probe.values, str(probe.error)) == ([1], "from above")
        assert source.returned == [2]

    run_virtual(story())


def test_cancel_gives_the_waiting_event_back_and_leaves_no_timer() -> None:
    async def story() -> None:
        source, probe = MemorySource([1, 2, 3]), Probe[int](request=9)
        source.pipe(rate_limit(1)).connect(probe)
        probe.cancel()
        await asyncio.sleep(10)
        assert (probe.values, source.returned) == ([1], [2])

    run_virtual(story())


# The law.


@given(
    st.integers(1, 40),
    st.sampled_from([1, 2, 3, 7, 100]),
    st.sampled_from([0.5, 1.0, 3.0]),
    st.integers(1, 5),
)
def test_in_no_period_do_more_than_the_rate_and_a_burst_pass(
    count: int, rate: int, per: float, burst: int
) -> None:
    times = times_of(from_iterable(range(count)), rate_limit(rate, per, burst))
    assert len(times) == count
    for i, start in enumerate(times):
        in_period = [at for at in times[i:] if at < start + per - 1e-6]
        assert len(in_period) <= rate + burst
    # Nor is any time lost: the last passes when its token is there.
    assert times[-1] == pytest.approx(max(0, count - burst) * per / rate)


@given(st.lists(st.integers(0, 20).map(lambda n: n / 4), max_size=20), st.integers(1, 3))
def test_order_is_kept_and_nothing_dropped(pauses: list[float], burst: int) -> None:
    async def story() -> list[int]:
        source, probe = ManualPublisher[int](), Probe[int](request=100)
        source.pipe(rate_limit(2, burst=burst)).connect(probe)
        for n, pause in enumerate(pauses):
            await asyncio.sleep(pause)
            # A token comes every half second: by then there is room for one more.
            await asyncio.sleep(0 if source.demand else 0.5)
            source.send(n)
        source.complete()
        await asyncio.sleep(100)
        assert source.unsettled == []
        return probe.values

    assert run_virtual(story()) == list(range(len(pauses)))


# The bound.


def test_one_event_is_read_ahead_and_no_more() -> None:
    async def story() -> None:
        source, probe = CountedSource(range(100)), Probe[int](request=50)
        source.pipe(rate_limit(1)).connect(probe)
        for seconds in range(5):
            assert (len(probe.values), source.emitted) == (seconds + 1, seconds + 2)
            await asyncio.sleep(1)
        probe.cancel()

    run_virtual(story())


def test_nothing_is_read_without_demand() -> None:
    async def story() -> None:
        source, probe = CountedSource(range(9)), Probe[int](request=1)
        source.pipe(rate_limit(1)).connect(probe)
        await asyncio.sleep(100)
        assert (probe.values, source.emitted) == ([0], 1)
        probe.cancel()

    run_virtual(story())


# A rate that is shared, and changed.


def test_stages_that_share_a_rate_keep_it_together() -> None:
    async def story() -> list[float]:
        limit = RateLimit(1, per=1.0)
        probes = [Probe[int](request=100) for _ in range(3)]
        for probe in probes:
            from_iterable(range(4)).pipe(rate_limit(limit)).connect(probe)
        await asyncio.sleep(100)
        assert all(probe.completed for probe in probes)
        return sorted(at for probe in probes for at, _ in probe.timed)

    assert run_virtual(story()) == pytest.approx([float(n) for n in range(12)])


def test_a_rate_that_is_changed_counts_from_the_next_token_on() -> None:
    async def story() -> list[float]:
        limit = RateLimit(1, per=1.0)
        probe = Probe[int](request=100)
        from_iterable(range(7)).pipe(rate_limit(limit)).connect(probe)
        await asyncio.sleep(2.5)
        limit.rate = 4
        await asyncio.sleep(50)
        return [at for at, _ in probe.timed]

    times = run_virtual(story())
    assert times[:3] == pytest.approx([0, 1, 2])
    assert len(times) == 7
    assert times[-1] <= 4.01


def test_every_running_of_a_pipeline_has_a_bucket_of_its_own() -> None:
    operator = rate_limit(1, per=10)
    for _ in range(2):
        assert times_of(from_iterable([1, 2]), operator) == [0, 10]


def test_after_a_million_seconds_the_rate_still_holds() -> None:
    async def story() -> list[float]:
        await asyncio.sleep(900_000)
        probe = Probe[int](request=100)
        from_iterable(range(50)).pipe(rate_limit(7_000, per=1.0)).connect(probe)
        await asyncio.sleep(1)
        return [at - 900_000 for at, _ in probe.timed]

    times = run_virtual(story())
    assert times == pytest.approx([n / 7_000 for n in range(50)], abs=1e-6)


@pytest.mark.parametrize(
    "arguments",
    [(0,), (-1,), (float("nan"),), (1, 0), (1, 1, 0), (RateLimit(1), 2.0), (RateLimit(1), 1.0, 3)],
)
def test_nonsense_is_refused_when_the_operator_is_built(arguments: Any) -> None:
    with pytest.raises(BuildError, match="rate_limit"):
        rate_limit(*arguments)


# A cost.


def test_the_diagram_of_costs_plays(clock: VirtualClock) -> None:
    operator = rate_limit(1, 1, 2, cost=lambda name: 2 if name == "c" else 1)
    seen = clock.play("a-b-c-d------|", operator, tick=0.25)
    assert seen == [(0, "a"), (0.5, "b"), (2, "c"), (3, "d"), (3.25, COMPLETED)]


def test_a_cost_is_a_field_of_a_mapping_or_of_an_object() -> None:
    class Prompt:
        def __init__(self, tokens: int) -> None:
            self.tokens = tokens

    for prompts in ([{"tokens": n} for n in (3, 3, 6)], [Prompt(n) for n in (3, 3, 6)]):
        times = times_of(from_iterable(prompts), rate_limit(2, 1, burst=6, cost="tokens"))
        assert times == pytest.approx([0, 0, 3])


def test_an_event_that_costs_nothing_passes_with_an_empty_bucket() -> None:
    times = times_of(from_iterable([2, 0, 0, 1]), rate_limit(1, 1, burst=2, cost=float))
    assert times == pytest.approx([0, 0, 0, 1])


Given = tuple[list[tuple[int, int, int]], int, int]

# For each event its cost, what it turns out to have cost, and when that is known; the burst; the
# rate.
GIVEN = st.integers(1, 30).flatmap(
    lambda burst: st.tuples(
        st.lists(
            st.tuples(st.integers(0, burst), st.integers(0, 60), st.integers(0, 40)), max_size=15
        ),
        st.just(burst),
        st.integers(1, 12),
    )
)


def known_after(delay: int) -> float:
    return delay * 0.37 + 0.011


def simulated(events: list[tuple[int, int, int]], burst: int, rate: int) -> list[float]:
    """When each event passes, if all are there at the start."""
    now, tokens = 0.0, float(burst)
    reports: list[tuple[float, int]] = []
    times: list[float] = []
    for cost, true_cost, delay in events:
        passed = False
        while not passed:
            due = now + max(0.0, (cost - tokens) / rate)
            # Of two things at one instant either may be first.
            assume(all(abs(at - due) > 1e-6 for at, _ in reports))
            at, more = min([*reports, (due, 0)])
            tokens = min(burst, tokens + (at - now) * rate)
            now, passed = at, at == due
            if not passed:
                reports.remove((at, more))
                tokens = min(burst, tokens - more)
        tokens -= cost
        times.append(now)
        reports.append((now + known_after(delay), true_cost - cost))
    return times


def passing(events: list[tuple[int, int, int]], burst: int, rate: int) -> list[Any]:
    """The same by the stage: each charge as its time, its tokens, and whether an event passed."""

    async def story() -> list[tuple[float, int, bool]]:
        limit, loop = RateLimit(rate, burst=burst), asyncio.get_running_loop()
        log: list[tuple[float, int, bool]] = []

        def correct(more: int) -> None:
            limit.charge(more)
            log.append((loop.time(), more, False))

        def passed(event: tuple[int, int, int]) -> tuple[int, int, int]:
            cost, true_cost, delay = event
            log.append((loop.time(), cost, True))
            loop.call_later(known_after(delay), correct, true_cost - cost)
            return event

        probe = Probe[Any](request=1000)
        paced = rate_limit(limit, cost=lambda event: event[0])
        from_iterable(events).pipe(paced, ops.map(passed)).connect(probe)
        await asyncio.sleep(10_000)
        assert probe.values == events
        return log

    return run_virtual(story())


@given(GIVEN)
def test_no_more_than_the_rate_and_a_burst_pass_with_what_was_charged_later(given: Given) -> None:
    _, burst, rate = given
    log = passing(*given)
    for i, (begin, _, _) in enumerate(log):
        charged = 0
        for at, tokens, passed in log[i:]:
            charged += tokens
            if passed:
                assert charged <= burst + rate * (at - begin) + 1e-5


@given(GIVEN)
def test_each_event_passes_as_soon_as_its_tokens_are_there(given: Given) -> None:
    times = [at for at, _, passed in passing(*given) if passed]
    assert times == pytest.approx(simulated(*given), abs=1e-5)


def charged_while_waiting(tokens: float) -> list[float]:
    """Two events that cost 10, of 10 tokens per 100 s, and a charge at 20 s."""

    async def story() -> list[float]:
        limit = RateLimit(10, per=100, burst=10)
        probe = Probe[int](request=9)
        from_iterable([10, 10]).pipe(rate_limit(limit, cost=float)).connect(probe)
        await asyncio.sleep(20)
        limit.charge(tokens)
        await asyncio.sleep(1000)
        return [at for at, _ in probe.timed]

    return run_virtual(story())


def test_tokens_that_are_given_back_let_the_waiting_event_pass_earlier() -> None:
    assert charged_while_waiting(-3) == pytest.approx([0, 70])
    assert charged_while_waiting(-10) == pytest.approx([0, 20])


def test_a_call_that_cost_more_delays_what_comes_next() -> None:
    assert charged_while_waiting(25) == pytest.approx([0, 350])


def test_tokens_that_the_bucket_has_no_room_for_are_not_given_back() -> None:
    async def story() -> list[float]:
        limit = RateLimit(1, burst=4)
        source, probe = ManualPublisher[int](), Probe[int](request=9)
        source.pipe(rate_limit(limit, cost=float)).connect(probe)
        source.send(1)
        limit.charge(-100)
        source.send(4)
        source.send(4)
        await asyncio.sleep(100)
        probe.cancel()
        return [at for at, _ in probe.timed]

    assert run_virtual(story()) == pytest.approx([0, 0, 4])


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 3), st.integers(9, 20))
def test_two_limits_one_after_the_other_both_hold(
    costs: list[int], requests: int, tokens: int
) -> None:
    async def story() -> list[tuple[float, int]]:
        probe = Probe[int](request=100)
        both = rate_limit(requests, burst=requests), rate_limit(tokens, burst=9, cost=float)
        from_iterable(costs).pipe(*both).connect(probe)
        await asyncio.sleep(1000)
        assert probe.values == costs
        return probe.timed

    timed = run_virtual(story())
    for i, (begin, _) in enumerate(timed):
        for j, (at, _) in enumerate(timed[i:], i):
            # The event that waits for the second limit has been charged by the first.
            assert j - i + 1 <= requests + requests * (at - begin) + 1 + 1e-6
            assert sum(costs[i : j + 1]) <= 9 + tokens * (at - begin) + 1e-6


def test_cheap_events_of_another_stage_do_not_overtake_a_dear_one_for_ever() -> None:
    async def story() -> list[float]:
        limit = RateLimit(1, burst=10)
        cheap, dear = Probe[int](request=1000), Probe[int](request=9)
        from_iterable([1] * 40).pipe(rate_limit(limit, cost=float)).connect(cheap)
        from_iterable([10]).pipe(rate_limit(limit, cost=float)).connect(dear)
        await asyncio.sleep(100)
        assert len(cheap.values) == 40
        return [at for at, _ in dear.timed]

    # The bucket is empty, the first cheap event that waits comes before, and then ten seconds.
    assert run_virtual(story()) == pytest.approx([11])


def test_a_stage_that_is_cancelled_leaves_the_line_to_the_others() -> None:
    async def story() -> list[float]:
        limit = RateLimit(1, burst=10)
        first, second = Probe[int](request=9), Probe[int](request=9)
        source = MemorySource([10, 10])
        source.pipe(rate_limit(limit, cost=float)).connect(first)
        from_iterable([2]).pipe(rate_limit(limit, cost=float)).connect(second)
        await asyncio.sleep(1.5)
        first.cancel()
        await asyncio.sleep(100)
        assert (first.values, source.returned) == ([10], [10])
        return [at for at, _ in second.timed]

    assert run_virtual(story()) == pytest.approx([2])


def test_what_waited_on_a_loop_that_was_closed_does_not_block_the_next() -> None:
    limit = RateLimit(1, burst=10)

    async def left_behind() -> None:
        from_iterable([10, 10]).pipe(rate_limit(limit, cost=float)).connect(Probe[int](request=9))

    async def story() -> int:
        probe = Probe[int](request=9)
        from_iterable([1]).pipe(rate_limit(limit, cost=float)).connect(probe)
        await asyncio.sleep(100)
        return len(probe.values)

    run_virtual(left_behind())
    assert run_virtual(story()) == 1


def test_one_event_is_read_ahead_whatever_it_costs() -> None:
    async def story() -> None:
        source, probe = CountedSource([5] * 100), Probe[int](request=50)
        source.pipe(rate_limit(1, burst=5, cost=float)).connect(probe)
        for passed in range(1, 5):
            assert (len(probe.values), source.emitted) == (passed, passed + 1)
            await asyncio.sleep(5)
        probe.cancel()

    run_virtual(story())


def test_each_call_is_charged_when_it_begins_and_corrected_by_what_it_reports(run: Run) -> None:
    tokens = RateLimit(10, per=1, burst=20)
    begun: list[tuple[float, str]] = []

    async def ask(prompt: dict[str, Any]) -> str:
        begun.append((asyncio.get_running_loop().time(), prompt["id"]))
        await asyncio.sleep(0.5)
        tokens.charge(prompt["used"] - prompt["tokens"])
        return prompt["id"]

    prompts = [
        {"id": "a", "client": 1, "tokens": 20, "used": 10},
        {"id": "b", "client": 2, "tokens": 20, "used": 20},
        {"id": "c", "client": 1, "tokens": 10, "used": 30},
        {"id": "d", "client": 2, "tokens": 10, "used": 10},
    ]
    answers: list[str] = []
    paced = rate_limit(tokens, cost="tokens")
    keyed = from_iterable(prompts).pipe(group_by("client"), spread(), paced)
    run(keyed.pipe(adaptive_flat_map(ask, Fixed(4))).to(collect(answers)).run())
    # "a" gives ten tokens back at 0.5 s; "c" takes 20 more at 2.5 s, while "d" waits.
    assert begun == [
        (pytest.approx(at), name) for at, name in [(0, "a"), (1, "b"), (2, "c"), (5, "d")]
    ]
    assert answers == ["a", "b", "c", "d"]


# Costs that are mistakes.

DEAR = [{"tokens": 3}, {"tokens": 11}, {"tokens": 3}]


def test_an_event_dearer_than_the_bucket_stops_the_pipeline_and_both_are_named(run: Run) -> None:
    source = MemorySource(DEAR)
    with pytest.raises(CostTooHigh, match=r"costs 11, .* holds at most 10\. .*burst=") as raised:
        run(source.pipe(rate_limit(5, burst=10, cost="tokens")).to(collect([])).run())
    assert raised.value.__notes__ == ["in stage 2 'rate_limit', on the event {'tokens': 11}"]
    assert source.failed == [DEAR[1]]


def test_an_event_dearer_than_the_bucket_is_skipped_or_routed_as_the_stage_says(run: Run) -> None:
    letters = MemorySink()
    for on_error in ("skip", route(letters)):
        passed: list[Any] = []
        limit = rate_limit(5, burst=10, cost="tokens", on_error=on_error)
        run(from_iterable(DEAR).pipe(limit).to(collect(passed)).run())
        assert passed == [DEAR[0], DEAR[2]]
    assert [letter.value for letter in letters.values] == [DEAR[1]]


@pytest.mark.parametrize("cost", [-1, float("nan"), None, True, "many", [1]])
def test_a_cost_that_is_not_a_number_of_at_least_0_is_an_error_that_says_so(
    cost: Any, run: Run
) -> None:
    flow = from_iterable([{"tokens": cost}]).pipe(rate_limit(5, burst=10, cost="tokens"))
    with pytest.raises(ValueError, match="is not a cost: a number of at least 0") as raised:
        run(flow.to(collect([])).run())
    assert any("'rate_limit', on the event" in note for note in raised.value.__notes__)
    assert any("of the event, of type" in note for note in raised.value.__notes__)


def test_a_field_that_is_missing_is_named(run: Run) -> None:
    flow = from_iterable([{"text": "hello"}]).pipe(rate_limit(5, burst=10, cost="tokens"))
    with pytest.raises(KeyError) as raised:
        run(flow.to(collect([])).run())
    assert any("the event has no field 'tokens'" in note for note in raised.value.__notes__)


def test_an_error_of_the_cost_function_keeps_its_type(run: Run) -> None:
    flow = from_iterable([1, 0, 2]).pipe(rate_limit(5, burst=10, cost=lambda n: 1 / n))
    with pytest.raises(ZeroDivisionError) as raised:
        run(flow.to(collect([])).run())
    assert raised.value.__notes__ == ["in stage 2 'rate_limit', on the event 0"]


def test_a_charge_from_a_thread_or_without_a_stage_says_where_to_call_it(run: Run) -> None:
    limit = RateLimit(1, burst=10)
    with pytest.raises(NoLoop, match="no stage on this event loop"):
        limit.charge(1)

    def charges(value: int) -> int:
        limit.charge(value)
        return value

    paced = from_iterable([1]).pipe(rate_limit(limit))
    with pytest.raises(NoLoop, match=r"in a map\(\) after it"):
        run(paced.pipe(adaptive_flat_map(in_threads(1)(charges))).to(collect([])).run())
    run(paced.pipe(ops.map(charges)).to(collect([])).run())


@pytest.mark.parametrize("tokens", [float("nan"), float("inf"), "1", None])
def test_a_charge_that_is_not_a_number_changes_nothing(tokens: Any) -> None:
    with pytest.raises(ValueError, match=r"RateLimit\.charge"):
        RateLimit(1).charge(tokens)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"cost": 5}, "lambda value: 5"),
        ({"cost": 2.5}, "lambda value: 2.5"),
        ({"on_error": "skip"}, "there is no cost="),
        ({"cost": "tokens", "on_error": "ignore"}, "on_error"),
        ({"cost": "tokens", "on_error": retry(3)}, "only adaptive_flat_map and batch can retry"),
    ],
)
def test_a_wrong_cost_is_refused_when_the_operator_is_built(
    options: dict[str, Any], told: str
) -> None:
    with pytest.raises(BuildError, match=told):
        rate_limit(1, **options)


def test_the_description_says_what_is_charged_and_how_many_events_wait() -> None:
    info = from_iterable([1]).pipe(rate_limit(1_000_000, 60, burst=8_000, cost="tokens")).info
    assert (info.detail, info.bound) == ("1,000,000 per 60 s, burst 8,000, cost tokens", 1)


def changed_while_waiting(**changes: Any) -> list[float]:
    """When three events pass at 1 per 100 s, of which each costs 1, with changes after 20 s."""

    async def story() -> list[float]:
        limit = RateLimit(1, per=100.0)
        probe = Probe[int](request=9)
        from_iterable(range(3)).pipe(rate_limit(limit)).connect(probe)
        await asyncio.sleep(20)
        for name, value in changes.items():
            setattr(limit, name, value)
        await asyncio.sleep(10_000)
        return [at for at, _ in probe.timed]

    return run_virtual(story())


def test_a_change_holds_for_the_event_that_waits_too() -> None:
    # 0.2 of its token was there.
    assert changed_while_waiting(rate=8) == pytest.approx([0, 30, 42.5])
    assert changed_while_waiting(per=10.0) == pytest.approx([0, 28, 38])
    assert changed_while_waiting(rate=0.1) == pytest.approx([0, 820, 1820])
    assert changed_while_waiting(burst=5) == pytest.approx([0, 100, 200])


def test_a_change_in_another_thread_wakes_the_event_that_waits() -> None:
    async def story() -> list[int]:
        limit, seen = RateLimit(1, per=1000.0), list[int]()
        stream = from_iterable([1, 2]).pipe(rate_limit(limit))
        running = stream.to(for_each(seen.append)).start()
        await asyncio.sleep(0)
        await asyncio.to_thread(setattr, limit, "rate", 1_000_000)
        await running.wait()
        return seen

    assert asyncio.run(story()) == [1, 2]


def test_an_event_dearer_than_a_bucket_that_was_made_smaller_passes_when_it_is_full() -> None:
    async def story() -> list[float]:
        limit = RateLimit(1, per=1.0, burst=10)
        probe = Probe[int](request=9)
        from_iterable([10, 10]).pipe(rate_limit(limit, cost=float)).connect(probe)
        await asyncio.sleep(1)
        limit.burst = 4
        await asyncio.sleep(100)
        return [at for at, _ in probe.timed]

    assert run_virtual(story()) == pytest.approx([0, 4])


@pytest.mark.parametrize(("name", "value"), [("rate", 0), ("per", -1), ("burst", 0)])
def test_a_change_to_nonsense_is_refused_and_changes_nothing(name: str, value: Any) -> None:
    limit = RateLimit(2, per=3.0, burst=4)
    with pytest.raises(BuildError, match="must be positive"):
        setattr(limit, name, value)
    assert (limit.rate, limit.per, limit.burst) == (2, 3.0, 4)
