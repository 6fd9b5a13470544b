"""What a reader promises its group, on virtual time and a model of the brokers."""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest
from confluent_kafka import KafkaError, KafkaException
from reactivex import operators as ops

from penstock import (
    Fixed,
    Pipeline,
    Running,
    adaptive_flat_map,
    collect,
    for_each,
    from_iterable,
    group_by,
    read_kafka,
    route,
    spread,
    write_kafka,
)
from penstock.streams.base.errors import CannotConnect, PenstockError, RightsMissing, StreamMissing
from penstock.streams.testing import VirtualTimeLoop
from penstock.streams.testing.plugin import Run
from tests.helpers.kafka.metadata import finished_beside, metadata_of
from tests.helpers.kafka.model import Broker, Member, Record, model_of, numbers
from tests.helpers.metrics import exposition
from tests.helpers.walks import seeds


def source(**options: Any) -> Any:
    read: Any = read_kafka
    return read("t", "g", **options)


def reading(into: list[Any], **options: Any) -> Pipeline:
    return source(**options).to(collect(into))


async def settled(seconds: float = 3) -> None:
    """Until the members have joined, read what there is, and committed."""
    await asyncio.sleep(seconds)


def test_how_far_a_reader_is_behind_is_among_the_metrics(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 10))

    async def story() -> None:
        running = source().pipe(adaptive_flat_map(bool, Fixed(1))).to(collect([])).start()
        recorder = running.record()
        await settled()
        numbers = running.statistics()
        behind = {"stages": [{**numbers["stages"][0], "lag": 7}]}
        text = exposition({**numbers, **behind}, recorder).decode()
        assert 'penstock_source_pending{name="read_kafka",stage="1"} 7' in text
        await running.drain(5)

    run(story())


def test_a_reader_of_topics_by_an_expression_ends_when_no_broker_answers(
    broker: Broker, run: Run
) -> None:
    broker.refuse = lambda: KafkaError(KafkaError._ALL_BROKERS_DOWN)
    read: Any = read_kafka
    with (
        patch("penstock.streams.kafka.beginnings.reason", lambda fault, settings: fault),
        pytest.raises(CannotConnect, match="no Kafka broker answers"),
    ):
        run(read("^t.*", "g").to(collect([])).run())


def test_credentials_that_are_refused_later_are_reported_and_tried_again(
    broker: Broker, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        seen: list[Any] = []
        heard: list[KafkaError] = []
        running = reading(seen, config={"error_cb": heard.append}).start()
        await settled()
        (client,) = broker.clients
        fault = KafkaError(KafkaError._AUTHENTICATION, "the password is wrong")
        for _ in range(3):
            await client.settings["error_cb"](fault)
        broker.write(*numbers(0, 3))
        await settled()
        assert caplog.text.count("does not accept the credentials") == 1
        assert heard == [fault] * 3
        assert [value["n"] for value in seen] == [0, 1, 2]
        await running.drain(5)

    run(story())


# Records that failed, and are not tried again in this run.


async def three_fails(value: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(1)
    if value["n"] == 3:
        raise ValueError("three")
    return value


@pytest.mark.parametrize(
    "stages",
    [
        [adaptive_flat_map(three_fails, Fixed(8), on_error="revert")],
        [adaptive_flat_map(three_fails, Fixed(1), on_error="revert")],
        [ops.take(4), adaptive_flat_map(three_fails, on_error="revert")],
    ],
)
def test_a_record_that_fails_at_the_end_is_left_to_another_run(
    broker: Broker, run: Run, caplog: pytest.LogCaptureFixture, stages: list[Any]
) -> None:
    broker.write(*numbers(0, 5))
    report = run(source(follow=False).pipe(*stages).to(collect([])).run())
    assert (report.outcome, report.exit_status) == ("incomplete", 5)
    assert "1 event failed after the source had ended, or shortly before" in caplog.text
    # The next run begins there.
    assert broker.committed["t", 0][0] == 3


def test_a_record_that_comes_again_before_the_end_is_not_left_over(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 5))
    tried: list[int] = []

    async def fails_once(value: dict[str, Any]) -> None:
        tried.append(value["n"])
        await asyncio.sleep(1)
        if tried == [0]:
            raise ValueError("zero")

    again = adaptive_flat_map(fails_once, Fixed(1), on_error="revert")
    report = run(source(follow=False, retry_after=1).pipe(again).to(collect([])).run())
    assert sorted(tried) == [0, 0, 1, 2, 3, 4]
    assert (report.outcome, report.exit_status) == ("completed", 0)


def test_a_record_that_fails_in_a_drain_is_left_to_another_run(broker: Broker, run: Run) -> None:
    broker.write(*numbers(3, 4))

    async def story() -> Any:
        begun = asyncio.Event()

        async def work(value: dict[str, Any]) -> None:
            begun.set()
            await three_fails(value)

        stage = adaptive_flat_map(work, Fixed(1), on_error="revert")
        running = source().pipe(stage).to(collect([])).start()
        await begun.wait()
        return await running.drain(20)

    report = run(story())
    assert (report.outcome, report.exit_status) == ("incomplete", 5)


def test_a_record_whose_error_another_stream_follows_is_not_left_over(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 5))
    held = ops.to_list(), adaptive_flat_map(fails)
    first = source(follow=False).pipe(*held, ops.catch(from_iterable([7])))
    report = run(first.to(collect(seen := [])).run())
    assert seen == [7]
    assert (report.outcome, report.exit_status) == ("completed", 0)


async def fails(value: object) -> None:
    raise ValueError(value)


# Demand.


def test_no_record_is_taken_without_demand(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 1000))

    async def story() -> None:
        stuck = asyncio.Event()

        async def hold(value: Any) -> None:
            await stuck.wait()

        running = source().to(for_each(hold)).start()
        await settled()
        (member,) = broker.members
        assert member.taken == 1
        assert member.paused == {("t", 0)}
        stuck.set()
        await settled()
        assert (member.taken, running.statistics()["finished"]) == (1000, 1000)
        await running.drain(5)

    run(story())


def test_the_client_fetches_again_soon_after_records_were_taken(broker: Broker, run: Run) -> None:
    run(reading([], follow=False).run())
    (client,) = broker.clients
    # By default it looks once a second, in which a pipeline stands still.
    assert client.settings["fetch.queue.backoff.ms"] <= 20


def test_a_partition_that_comes_while_the_others_are_paused_is_paused_too(
    two: Broker, run: Run
) -> None:
    async def story() -> None:
        async def hold(value: Any) -> None:
            await asyncio.Event().wait()

        other = reading([]).start()
        await settled()
        running = source().to(for_each(hold)).start()
        await settled()
        for partition in (0, 1):
            two.write(*numbers(0, 10), partition=partition)
        await settled()
        await other.drain(5)
        await settled()
        (member,) = two.members
        assert member.paused == {("t", 0), ("t", 1)}
        running.cancel()
        await running.wait()

    run(story())


def test_partitions_are_not_paused_while_records_are_requested_now_and_then(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 10_000))

    async def story() -> None:
        async def work(value: Any) -> None:
            await asyncio.sleep(0.01)

        # Room for a part of the buffer comes some times a second, and is filled at once.
        flow = source().pipe(group_by("n"), spread(), adaptive_flat_map(work, limit=Fixed(10)))
        running = flow.to(collect([])).start()
        await settled(8)
        (member,) = broker.members
        assert running.statistics()["finished"] > 7000
        assert member.pauses == 0
        await running.drain(5)

    run(story())


def test_a_record_that_comes_later_is_there_at_once(broker: Broker, run: Run) -> None:
    async def story() -> None:
        seen: list[float] = []
        loop = asyncio.get_running_loop()
        running = source().to(for_each(lambda value: seen.append(loop.time()))).start()
        await settled()
        written = loop.time()
        broker.write(*numbers(0, 1))
        await settled()
        assert seen == [written]
        await running.drain(5)

    run(story())


# Commits.


def test_offsets_are_committed_once_a_second_if_they_have_changed(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 100))

    async def story() -> None:
        running = reading([]).start()
        await settled(10)
        assert (broker.committed["t", 0], broker.commits) == ((100, ""), 1)
        await running.drain(5)
        assert broker.commits == 1

    run(story())


def test_the_floor_waits_for_what_is_not_finished_and_the_rest_is_noted(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 100))

    async def story() -> None:
        stuck = asyncio.Event()

        async def work(value: dict[str, int]) -> None:
            if value["n"] in (10, 20):
                await stuck.wait()

        flow = source().pipe(adaptive_flat_map(work, limit=Fixed(8)))
        running = flow.to(collect([])).start()
        await settled()
        floor, text = broker.committed["t", 0]
        assert (floor, finished_beside(floor, text)) == (10, [(11, 20), (21, 100)])
        stuck.set()
        await settled()
        assert broker.committed["t", 0] == (100, "")
        await running.drain(5)

    run(story())


def test_brokers_that_accept_less_metadata_get_less(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 400))
    broker.most_metadata = 100

    async def story() -> None:
        async def work(value: dict[str, int]) -> None:
            if value["n"] % 2 == 0 and value["n"] < 300:
                await asyncio.Event().wait()

        pipeline = source().pipe(adaptive_flat_map(work, limit=Fixed(400))).to(collect([]))
        running = pipeline.start()
        await settled(10)
        floor, text = broker.committed["t", 0]
        known = finished_beside(floor, text)
        assert floor == 0
        assert 0 < len(text) <= 100
        assert set(known) <= {(n, n + 1) for n in range(1, 300, 2)} | {(299, 400)}
        running.cancel()
        await running.wait()

    run(story())


@pytest.mark.parametrize(
    "code", [KafkaError._TRANSPORT, KafkaError.NOT_COORDINATOR, KafkaError.REBALANCE_IN_PROGRESS]
)
def test_a_commit_that_is_refused_for_now_is_made_later(
    broker: Broker, run: Run, code: int
) -> None:
    broker.write(*numbers(0, 10))

    async def story() -> None:
        running = reading([]).start()
        await asyncio.sleep(0.5)
        broker.refuse = lambda: KafkaError(code)
        await settled()
        assert broker.committed == {}
        broker.refuse = lambda: None
        await settled()
        assert broker.committed["t", 0] == (10, "")
        await running.drain(5)

    run(story())


@pytest.mark.parametrize("transactional", [False, True])
def test_it_is_said_once_that_the_brokers_accept_no_commit(
    transactional: bool, broker: Broker, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    broker.write(*numbers(0, 10))
    fault = KafkaError(KafkaError.NOT_COORDINATOR, "another one has the group", False, True)
    sink: Any = write_kafka("out", transactional=True) if transactional else collect([])

    async def story() -> None:
        running = source().to(sink).start()
        await settled()
        broker.refuse = lambda: fault
        broker.refuse_producer = lambda method: fault
        await asyncio.sleep(20)
        assert not caplog.text
        await asyncio.sleep(20)
        assert "have accepted no commit of this reader for 23 s (another one" in caplog.text
        assert caplog.text.count("\n") == 1
        broker.refuse = lambda: None
        broker.refuse_producer = lambda method: None
        await asyncio.sleep(60)
        assert running.statistics()["stages"][0]["silences"] == 1
        assert caplog.text.count("\n") == 1
        await running.drain(5)

    run(story())


def test_it_is_said_once_that_a_reader_does_not_get_into_the_group(
    broker: Broker, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    broker.write(*numbers(0, 10))

    async def story() -> None:
        seen: list[Any] = []
        with patch.object(Member, "_join"):
            running = reading(seen).start()
            await asyncio.sleep(20)
            assert not caplog.text
            await asyncio.sleep(20)
            assert "have not accepted this reader for 23 s" in caplog.text
            await asyncio.sleep(60)
            assert running.statistics()["stages"][0]["silences"] == 1
        broker.clients[0]._join()
        await settled()
        assert len(seen) == 10
        assert caplog.text.count("\n") == 1
        await running.drain(5)

    run(story())


def test_a_slow_key_of_every_second_record_holds_up_no_others_and_what_has_no_room_is_said_once(
    broker: Broker, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    broker.write(*numbers(0, 5_000))

    async def handle(value: dict[str, Any]) -> int:
        await asyncio.sleep(0 if value["n"] % 2 else 1_000)
        return int(value["n"])

    def story_of(seen: list[int]) -> Pipeline:
        slow = group_by(lambda value: value["n"] % 2, overflow="spill")
        return source().pipe(slow, spread(), adaptive_flat_map(handle, Fixed(2))).to(collect(seen))

    async def story() -> None:
        seen: list[int] = []
        with patch("penstock.streams.kafka.offsets.partition.METADATA", 300):
            running = story_of(seen).start()
            await asyncio.sleep(60)
            assert seen == list(range(1, 5_000, 2))
            assert running.statistics()["stages"][0]["left_out"] == 1
            running.cancel()
            await running.wait()
            ranges = finished_beside(*broker.committed["t", 0])
            known = {n for begin, end in ranges for n in range(begin, end)}
            assert set[int]() < known < set(seen)
            # As after a kill, what was left out is repeated, and nothing else.
            again: list[int] = []
            running = story_of(again).start()
            await asyncio.sleep(60)
            assert again == [n for n in seen if n not in known]
            running.cancel()
            await running.wait()
        assert caplog.text.count("do not fit into the metadata beside its offset 0") == 2

    run(story())


def test_a_partition_that_has_no_leader_is_waited_for(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 10))
    broker.committed["t", 0] = 5, ""

    async def story() -> None:
        seen: list[Any] = []
        running = reading(seen).start()
        # What the client says then.
        error = KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        with patch.object(Member, "get_watermark_offsets", AsyncMock(side_effect=error)):
            await asyncio.sleep(15)
            assert running.state == "running"
        await settled()
        assert len(seen) == 5
        await running.drain(5)

    run(story())


def test_it_is_said_once_that_a_partition_waits_for_what_was_committed(
    broker: Broker, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    broker.write(*numbers(0, 10))
    open_ = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT, "a transaction is open", False, True)

    async def story() -> None:
        seen: list[Any] = []
        running = reading(seen).start()
        await asyncio.sleep(0)
        with patch.object(Member, "committed", AsyncMock(side_effect=KafkaException(open_))):
            await asyncio.sleep(30)
        assert caplog.text.count("do not say from where to read (a transaction is open)") == 1
        assert running.statistics()["stages"][0]["silences"] == 1
        await settled()
        assert len(seen) == 10
        await running.drain(5)

    run(story())


def test_records_are_read_while_the_brokers_do_not_answer_a_commit(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 10))

    async def story() -> None:
        seen: list[Any] = []
        running = reading(seen).start()
        await asyncio.sleep(0.5)
        broker.answering.clear()
        await settled()
        broker.write(*numbers(10, 20))
        await settled()
        assert [value["n"] for value in seen] == list(range(20))
        assert broker.committed == {}
        broker.answering.set()
        await settled()
        # Each once: the second was sent when the first was decided.
        assert (broker.committed["t", 0], broker.commits) == ((20, ""), 2)
        await running.drain(5)

    run(story())


def test_partitions_are_lost_in_time_while_the_brokers_do_not_answer_a_commit(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 10))

    async def story() -> None:
        running = reading([]).start()
        await asyncio.sleep(0.5)
        (member,) = broker.members
        broker.answering.clear()
        await settled()
        broker.expire(member)
        await settled()
        assert running.statistics()["stages"][0]["lost"] == 1
        broker.answering.set()
        await settled()
        assert broker.committed["t", 0] == (10, "")
        await running.drain(5)

    run(story())


def test_records_are_read_and_partitions_lost_while_a_transaction_waits_for_the_brokers(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 10))

    async def story() -> None:
        begun: list[int] = []

        def work(value: dict[str, int]) -> dict[str, int]:
            begun.append(value["n"])
            return value

        write: Any = write_kafka
        flow = source().pipe(group_by("n"), spread(), adaptive_flat_map(work))
        running = flow.to(write("out", transactional=True)).start()
        await asyncio.sleep(0.05)
        (producer,), (member,) = broker.producers, broker.members
        producer.thawed.clear()
        await settled()
        broker.write(*numbers(10, 20))
        await settled()
        assert begun == list(range(20))
        assert broker.results == []
        broker.expire(member)
        await settled()
        assert running.statistics()["stages"][0]["lost"] == 1
        producer.thawed.set()
        await settled(10)
        assert sorted(json.loads(value or b"")["n"] for _, value in broker.results) == [*range(20)]
        await running.drain(5)

    run(story())


def test_a_pipeline_that_is_stopped_waits_for_an_undecided_commit_and_no_longer_than_brokers_need(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 10))

    async def story() -> None:
        loop = asyncio.get_running_loop()
        for patience in (3, 100):
            running = reading([]).start()
            await settled()
            broker.answering.clear()
            broker.write(*numbers(10, 20))
            await settled()
            began = loop.time()
            later = loop.call_later(patience, broker.answering.set)
            await running.drain(60)
            assert loop.time() - began == pytest.approx(min(patience, 10), abs=0.2)
            later.cancel()
            broker.answering.set()

    run(story())


def test_what_is_finished_at_the_end_is_committed_when_this_member_has_joined_again(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 10))

    async def story() -> None:
        running = reading([]).start()
        await asyncio.sleep(0.5)
        (member,) = broker.members
        polls = [3]
        poll = member.poll

        async def joining(timeout: float) -> Any:  # noqa: ASYNC109
            polls[0] -= 1
            return await poll(timeout)

        # Brokers take no commit of a member that has not joined again, for which it has to ask.
        broker.refuse = lambda: (
            KafkaError(KafkaError.REBALANCE_IN_PROGRESS) if polls[0] > 0 else None
        )
        with patch.object(member, "poll", joining):
            await running.drain(5)
        assert broker.committed["t", 0] == (10, "")

    run(story())


def test_a_right_that_is_missing_ends_the_stream_and_is_named(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 10))

    async def story() -> None:
        running = reading([]).start()
        await asyncio.sleep(0.5)
        broker.refuse = lambda: KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
        with pytest.raises(RightsMissing, match="Give the user this right"):
            await running.wait()

    run(story())


def test_records_that_are_skipped_in_a_topic_do_not_hold_the_floor(
    broker: Broker, run: Run
) -> None:
    # As compaction and transactions leave a log.
    broker.write(*numbers(0, 10))
    log = broker.logs["t", 0]
    log[:] = [record for record in log if record.offset() % 3 == 0]
    seen: list[Any] = []
    run(reading(seen, follow=False).run())
    assert [value["n"] for value in seen] == [0, 3, 6, 9]
    assert broker.committed["t", 0] == (10, "")


def test_records_that_were_deleted_before_they_were_read_are_counted(
    broker: Broker, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    broker.committed["t", 0] = 3, ""
    broker.write(*numbers(0, 20))
    broker.deleted["t", 0] = 12
    del broker.logs["t", 0][:12]
    report = run(reading([], follow=False).run())
    assert report.statistics["in"] == 8
    assert report.statistics["stages"][0]["expired"] == 9
    assert "offsets 3 to 11 of t, partition 0, were deleted" in caplog.text


def test_a_new_group_begins_with_the_first_record_or_with_new_ones(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 5))

    async def story() -> None:
        seen: list[Any] = []
        running = reading(seen, since="new").start()
        await settled()
        broker.write(*numbers(5, 7))
        await settled()
        assert [value["n"] for value in seen] == [5, 6]
        await running.drain(5)

    run(story())


def test_a_reader_of_new_records_misses_none_that_comes_while_no_reader_runs(
    two: Broker, run: Run
) -> None:
    two.write(*numbers(0, 5))

    async def story() -> None:
        seen: list[Any] = []
        async with reading(seen, since="new").start() as running:
            await settled()
            running.begin_drain()
        assert two.committed == {("t", 0): (5, ""), ("t", 1): (0, "")}
        # Of both partitions no record was read yet.
        two.write(*numbers(5, 7))
        two.write(*numbers(7, 9), partition=1)
        async with reading(seen, since="new").start() as running:
            await settled()
            running.begin_drain()
        assert sorted(value["n"] for value in seen) == [5, 6, 7, 8]

    run(story())


def test_where_new_records_begin_is_committed_in_a_transaction_too(two: Broker, run: Run) -> None:
    two.write(*numbers(0, 5))

    async def story() -> None:
        sink = write_kafka("results", transactional=True)
        async with source(since="new").to(sink).start() as running:
            await settled()
            assert two.committed == {("t", 0): (5, ""), ("t", 1): (0, "")}
            running.begin_drain()

    run(story())


@pytest.mark.parametrize("deleted", [10, 20])
def test_a_reader_of_new_records_goes_on_with_the_first_one_that_was_not_deleted(
    deleted: int, broker: Broker, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    broker.committed["t", 0] = 3, ""
    broker.write(*numbers(0, 20))
    broker.delete(deleted)
    seen: list[Any] = []
    report = run(reading(seen, since="new", follow=False).run())
    assert [value["n"] for value in seen] == list(range(deleted, 20))
    assert report.statistics["stages"][0]["expired"] == deleted - 3
    assert f"offsets 3 to {deleted - 1} of t, partition 0, were deleted" in caplog.text


def test_a_reader_of_new_records_reads_all_of_a_partition_that_is_added(
    broker: Broker, run: Run
) -> None:
    async def story() -> None:
        seen: list[Any] = []
        async with reading(seen, since="new").start() as running:
            await settled()
            broker.logs["t", 1] = []
            # The client learns of it later.
            broker.write(*numbers(0, 3), partition=1)
            await settled()
            broker.write(*numbers(3, 5), partition=1)
            await settled()
            running.begin_drain()
        assert [value["n"] for value in seen] == [0, 1, 2, 3, 4]

    run(story())


def test_records_that_are_deleted_while_a_reader_is_behind_are_counted_and_the_others_read(
    broker: Broker, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    broker.write(*numbers(0, 20))

    async def story() -> None:
        go_on = asyncio.Event()
        seen: list[Any] = []

        async def work(value: Any) -> Any:
            await go_on.wait()
            return value

        busy = adaptive_flat_map(work, limit=Fixed(1))
        running = source().pipe(busy, busy).to(collect(seen)).start()
        await settled()
        read = running.statistics()["in"]
        assert read < 15
        broker.delete(15)
        go_on.set()
        await settled()
        assert [value["n"] for value in seen] == [*range(read), *range(15, 20)]
        assert running.statistics()["stages"][0]["expired"] == 15 - read
        await running.drain(5)
        assert broker.committed["t", 0] == (20, "")
        assert f"offsets {read} to 14 of t, partition 0, were deleted" in caplog.text

    run(story())


@pytest.mark.parametrize("options", [{}, {"on_bad_record": route(collect([]))}])
def test_all_records_are_read_of_a_topic_that_is_created_again(
    options: dict[str, Any], broker: Broker, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    broker.write(*numbers(0, 20))
    # What was finished of the old records says nothing of the new ones.
    broker.committed["t", 0] = 10, metadata_of(10, [(12, 15)])

    async def story() -> None:
        seen: list[Any] = []
        async with reading(seen, **options).start() as running:
            await settled()
            broker.logs["t", 0].clear()
            broker.write(*numbers(100, 118))
            await settled(5)
            assert [value["n"] for value in seen] == [10, 11, *range(15, 20), *range(100, 118)]
            assert "offset 20 of t, partition 0, is not there" in caplog.text
            running.begin_drain()
        assert broker.committed["t", 0] == (18, "")

    run(story())


def test_a_topic_that_is_deleted_is_named_and_the_unfinished_are_counted(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 5))

    async def story() -> None:
        async def hold(value: Any) -> None:
            await asyncio.Event().wait()

        pipeline = source().pipe(adaptive_flat_map(hold, limit=Fixed(2))).to(collect([]))
        running = pipeline.start(drain_deadline=1)
        await settled()
        gone = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        (member,) = broker.members
        poll = answer(Record(("t", 0), 0, None, error=gone))
        with (
            patch.object(member, "poll", poll),
            pytest.raises(StreamMissing, match="there is no such topic"),
        ):
            await running.wait()
        assert running.statistics()["returned"] == 2

    run(story())


def test_a_reader_that_waited_too_long_for_the_brokers_joins_again(
    broker: Broker, run: Run
) -> None:
    async def story() -> None:
        seen: list[Any] = []
        running = reading(seen).start()
        await settled()
        (member,) = broker.members
        late = [Record(("t", 0), 0, None, error=KafkaError(KafkaError._MAX_POLL_EXCEEDED))]
        poll = member.poll

        async def once(timeout: float) -> Any:  # noqa: ASYNC109
            return late.pop() if late else await poll(timeout)

        member.poll = once  # type: ignore[method-assign]
        await settled()
        assert late == []
        broker.expire(member)
        broker.write(*numbers(0, 5))
        await settled()
        assert [value["n"] for value in seen] == list(range(5))
        await running.drain(5)

    run(story())


@pytest.mark.parametrize("code", [KafkaError._DESTROY_BROKER, KafkaError.LEADER_NOT_AVAILABLE])
def test_partitions_come_when_the_brokers_answer_again(code: int, broker: Broker, run: Run) -> None:
    async def story() -> None:
        first = reading([]).start()
        broker.write(*numbers(0, 5))
        await settled()
        await first.drain(5)
        # The committed offset is asked for, and then where the partition begins and ends.
        for answered in (0, 1):
            asked = 0

            def refuse(answered: int = answered) -> KafkaError | None:
                nonlocal asked
                asked += 1
                return KafkaError(code) if answered < asked - 1 < 10 else None

            seen: list[Any] = []
            second = reading(seen).start()
            broker.refuse = refuse
            await settled()
            broker.write(*numbers(5, 7))
            await settled()
            assert [value["n"] for value in seen] == [5, 6]
            assert asked > 10
            await second.drain(5)

    run(story())


def test_a_reader_that_could_not_join_because_others_do_goes_on(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 5))
    joining = KafkaError(KafkaError.REBALANCE_IN_PROGRESS, "JoinGroup failed")
    log = broker.logs["t", 0]
    log.insert(3, Record(("t", 0), 2, None, error=joining))
    seen: list[Any] = []
    run(reading(seen, follow=False).run())
    assert [value["n"] for value in seen] == [0, 1, 2, 3, 4]


def test_a_group_whose_readers_have_another_protocol_is_named(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 5))
    text = "Fatal error: Broker: The group id does not exist: ConsumerGroupHeartbeat fatal error"
    gone = KafkaError(KafkaError._FATAL, text)
    broker.logs["t", 0][3] = Record(("t", 0), 3, None, error=gone)
    with pytest.raises(PenstockError, match="Stop them before"):
        run(reading([], config={"group.protocol": "consumer"}).run())


def test_a_compression_that_the_client_does_not_know_is_named(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 5))
    broken = KafkaError(KafkaError._BAD_COMPRESSION, "codec 7")
    log = broker.logs["t", 0]
    log[3] = Record(("t", 0), 3, None, error=broken)
    seen: list[Any] = []
    with pytest.raises(PenstockError, match=r"does not know, or are damaged \(codec 7\)"):
        run(reading(seen, follow=False).run())
    # It is not passed over: the next reader comes to it again.
    assert broker.committed.get(("t", 0), (0, ""))[0] <= 3


def answer(record: Any) -> Any:
    async def poll(timeout: float) -> Any:  # noqa: ASYNC109
        await asyncio.sleep(0)
        return record

    return poll


# Rebalances.


def test_a_partition_that_goes_is_drained_and_committed_before_another_reader_begins(
    two: Broker, run: Run
) -> None:
    for partition in (0, 1):
        two.write(*numbers(100 * partition, 100 * partition + 30), partition=partition)

    async def story() -> None:
        at_work: dict[int, int] = defaultdict(int)
        done: list[int] = []

        async def work(value: dict[str, int]) -> None:
            n = value["n"]
            at_work[n // 100] += 1
            await asyncio.sleep(1)
            at_work[n // 100] -= 1
            done.append(n)

        def pipeline() -> Pipeline:
            return source().pipe(adaptive_flat_map(work, limit=Fixed(2))).to(collect([]))

        first = pipeline().start()
        await asyncio.sleep(2.5)
        second = pipeline().start()
        await asyncio.sleep(60)
        assert sorted(done) == [*range(30), *range(100, 130)]
        assert {key: offset for key, (offset, _) in two.committed.items()} == {
            ("t", 0): 30,
            ("t", 1): 30,
        }
        await first.drain(5)
        await second.drain(5)

    run(story())


def test_what_has_not_begun_is_withdrawn_when_its_partition_goes(two: Broker, run: Run) -> None:
    for partition in (0, 1):
        two.write(*numbers(100 * partition, 100 * partition + 100), partition=partition)

    async def story() -> None:
        begun: list[int] = []

        async def work(value: dict[str, int]) -> None:
            begun.append(value["n"])
            await asyncio.sleep(5)

        pipeline = source().pipe(group_by("n"), spread(), adaptive_flat_map(work, limit=Fixed(2)))
        first = pipeline.to(collect([])).start()
        await asyncio.sleep(1)
        assert begun == [0, 1]
        second = reading([]).start()
        await asyncio.sleep(10)
        # The second has got a partition after one call of the first, not after two hundred.
        assert len(two.members) == 2
        assert sorted(two.owner.values(), key=id) == sorted(two.members, key=id)
        for running in (first, second):
            running.cancel()
            await running.wait()

    run(story())


def test_a_partition_is_given_up_when_its_events_take_longer_than_the_brokers_wait(
    two: Broker, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    for partition in (0, 1):
        two.write(*numbers(100 * partition, 100 * partition + 1), partition=partition)

    async def story() -> None:
        async def hang(value: Any) -> None:
            await asyncio.Event().wait()

        flow = source(handover=10).pipe(adaptive_flat_map(hang, limit=Fixed(2)))
        first = flow.to(collect([])).start()
        await asyncio.sleep(1)
        seen: list[Any] = []
        second = reading(seen).start()
        await asyncio.sleep(7)
        assert seen == []
        await asyncio.sleep(5)
        assert len(seen) == 1
        assert "while 1 of their events" in caplog.text
        # It waited for four fifths of handover=10, and says so.
        assert "still being processed, after 8 s" in caplog.text
        for running in (first, second):
            running.cancel()
            await running.wait()

    run(story())


def test_who_was_in_doubt_while_it_handed_a_partition_over_commits_nothing_of_it(
    two: Broker, run: Run
) -> None:
    two.write(*numbers(100, 150), partition=1)

    async def story() -> None:
        loop = asyncio.get_running_loop()

        async def work(value: dict[str, int]) -> None:
            await asyncio.sleep(30 if value["n"] == 100 and loop.time() < 10 else 1)

        def pipeline() -> Pipeline:
            # The hand-over takes longer than the session, in which the reader is sure.
            config = {"session.timeout.ms": 1000}
            flow = source(handover=5, config=config).pipe(group_by("n"), spread())
            return flow.pipe(adaptive_flat_map(work, limit=Fixed(4))).to(collect([]))

        first = pipeline().start()
        await asyncio.sleep(0.5)
        two.write(*numbers(0, 50), partition=0)
        await asyncio.sleep(3.5)
        second = pipeline().start()
        await asyncio.sleep(100)
        # The model refuses commits for a partition of another.
        assert two.committed == {("t", 0): (50, ""), ("t", 1): (50, "")}
        for running in (first, second):
            await running.drain(5)

    run(story())


def test_what_was_begun_in_a_lost_partition_is_not_committed(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 10))

    async def story() -> None:
        loop = asyncio.get_running_loop()

        async def work(value: Any) -> None:
            await asyncio.sleep(30 if loop.time() < 20 else 0)

        flow = source().pipe(adaptive_flat_map(work, limit=Fixed(10)))
        running = flow.to(collect([])).start()
        await asyncio.sleep(2)
        (member,) = broker.members
        member.thawed.clear()
        broker.expire(member)
        await asyncio.sleep(10)
        member.thawed.set()
        await asyncio.sleep(10)
        assert broker.committed["t", 0] == (0, "")
        await asyncio.sleep(60)
        # It has joined again, and has done them again.
        assert broker.committed["t", 0] == (10, "")
        statistics = running.statistics()
        assert statistics["stages"][0]["lost"] == 1
        await running.drain(5)

    run(story())


def test_what_is_withdrawn_and_still_held_goes_in_again_in_order(two: Broker, run: Run) -> None:
    for partition in (0, 1):
        two.write(*numbers(100 * partition, 100 * partition + 50), partition=partition)

    async def story() -> None:
        done: list[int] = []

        async def work(value: dict[str, int]) -> None:
            await asyncio.sleep(0.1)
            done.append(value["n"])

        def hundred(value: dict[str, int]) -> int:
            return value["n"] // 100

        flow = source().pipe(
            group_by(hundred),
            spread(),
            adaptive_flat_map(work, limit=Fixed(2)),
        )
        first = flow.to(collect([])).start()
        await asyncio.sleep(1.05)
        second = flow.to(collect([])).start()
        await asyncio.sleep(30)
        for partition in (0, 1):
            part = [n for n in done if n // 100 == partition]
            assert part == list(range(100 * partition, 100 * partition + 50))
        await first.drain(5)
        await second.drain(5)

    run(story())


def test_who_was_frozen_begins_nothing_until_the_brokers_have_confirmed_that_it_may(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 10))

    async def story() -> None:
        loop = asyncio.get_running_loop()
        begun: list[tuple[float, int]] = []

        async def work(value: dict[str, int]) -> None:
            begun.append((loop.time(), value["n"]))
            await asyncio.sleep(15)

        config = {"session.timeout.ms": 3000}
        flow = source(config=config).pipe(
            group_by("n"), spread(), adaptive_flat_map(work, limit=Fixed(2))
        )
        running = flow.to(collect([])).start()
        await asyncio.sleep(1)
        (member,) = broker.members
        member.thawed.clear()
        broker.refuse = lambda: KafkaError(KafkaError._TRANSPORT)
        await asyncio.sleep(20)
        # Two have ended meanwhile, and others would have begun.
        member.thawed.set()
        await asyncio.sleep(5)
        assert [n for _, n in begun] == [0, 1]
        broker.refuse = lambda: None
        confirmed = loop.time()
        await asyncio.sleep(100)
        assert [n for _, n in begun] == list(range(10))
        assert all(at >= confirmed for at, n in begun if n > 1)
        assert broker.committed["t", 0] == (10, "")
        await running.drain(5)

    run(story())


@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize("slow", [0, 3])
def test_who_was_blocked_begins_nothing_until_the_brokers_have_confirmed_that_it_may(
    slow: int, sink: bool, broker: Broker, run: Run
) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        begun: list[int] = []

        def work(value: dict[str, int]) -> None:
            begun.append(value["n"])
            if value["n"] == slow:
                # A call that does not return for longer than the brokers wait.
                loop.advance(20)

        source_ = source(config={"session.timeout.ms": 3000})
        if sink:
            running = source_.to(for_each(work)).start()
        else:
            flow = source_.pipe(group_by("k"), spread(), adaptive_flat_map(work))
            running = flow.to(collect([])).start()
        await asyncio.sleep(0)
        assert not running.is_ready
        await asyncio.sleep(1)
        assert running.is_ready
        broker.refuse = lambda: KafkaError(KafkaError._TRANSPORT)
        broker.write(*(b'{"k": %d, "n": %d}' % (n % 3, n) for n in range(10)))
        await asyncio.sleep(5)
        assert begun == list(range(slow + 1))
        assert not running.is_ready
        broker.refuse = lambda: None
        await asyncio.sleep(10)
        assert running.is_ready
        assert begun == list(range(10))
        await running.drain(5)

    run(story())


def test_brokers_confirm_nothing_to_a_client_that_knows_that_it_was_given_up(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 3))

    async def story() -> None:
        begun: list[int] = []

        async def work(value: dict[str, int]) -> None:
            begun.append(value["n"])
            await asyncio.sleep(4.5)

        config = {"session.timeout.ms": 3000}
        flow = source(config=config).pipe(group_by(lambda value: 0), spread())  # pyright: ignore[reportUnknownLambdaType]
        running = flow.pipe(adaptive_flat_map(work)).to(collect([])).start()
        await asyncio.sleep(1)
        (member,) = broker.members
        poll, waits = member.poll, [5.0] + [0.1] * 10

        async def late(timeout: float) -> Any:  # noqa: ASYNC109
            if not waits:
                return await poll(timeout)
            await asyncio.sleep(waits.pop(0))
            return None

        with patch.object(member, "poll", late):
            await asyncio.sleep(4)
            # The client tells of it only after a while, and the group is empty.
            broker.expire(member)
            await asyncio.sleep(1.9)
            assert begun == [0]
            await asyncio.sleep(60)
        assert begun == [0, 0, 1, 2]
        await running.drain(5)

    run(story())


@pytest.mark.parametrize("transactional", [False, True])
def test_who_waits_for_the_group_begins_nothing_after_its_session(
    transactional: bool, broker: Broker, run: Run
) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        begun: dict[str, list[tuple[float, int]]] = {"first": [], "second": []}

        def start(name: str) -> Running:
            def work(value: dict[str, int]) -> dict[str, int]:
                begun[name].append((loop.time(), value["n"]))
                return value

            write: Any = write_kafka
            to = write("out", transactional=True) if transactional else collect([])
            flow = source(config={"session.timeout.ms": 3000}).pipe(group_by("n"), spread())
            return flow.pipe(adaptive_flat_map(work)).to(to).start()

        first = start("first")
        await settled()
        (member,) = broker.members
        # The broker that keeps the group goes away while members join. It comes back and gives the
        # member up, which does not know it yet, and still gets records from another broker.
        away = loop.time()
        member.is_joining = True
        broker.answering.clear()
        broker.refuse_producer = lambda method: KafkaError(
            KafkaError._TIMED_OUT, "slow", False, True
        )
        for n in range(10):
            broker.write(*numbers(n, n + 1))
            await asyncio.sleep(1)
        broker.expire(member)
        second = start("second")
        await settled()
        broker.answering.set()
        broker.refuse_producer = lambda method: None
        broker.write(*numbers(10, 20))
        await settled()
        assert [n for at, n in begun["first"] if at > away + 3] == []
        assert [n for _, n in begun["second"]] == list(range(20))
        member.is_joining = False
        await settled()
        for running in (first, second):
            await running.drain(5)

    run(story())


def test_an_answer_that_was_read_late_says_nothing_of_now(broker: Broker, run: Run) -> None:
    async def story() -> None:
        begun: list[int] = []
        flow = source(config={"session.timeout.ms": 3000}).pipe(group_by("n"), spread())
        running = (
            flow.pipe(adaptive_flat_map(lambda value: begun.append(value["n"])))
            .to(collect([]))
            .start()
        )
        broker.write(*numbers(0, 1))
        await asyncio.sleep(0.5)
        (member,) = broker.members
        commit = member.commit

        async def last(**arguments: Any) -> Any:
            # It is accepted, and the reader is frozen before it reads that.
            await commit(**arguments)
            member.is_joining = True
            member.thawed.clear()

        with patch.object(member, "commit", last):
            await asyncio.sleep(10)
        assert broker.commits == 1
        broker.expire(member)
        other = reading([]).start()
        await settled()
        broker.write(*numbers(1, 9))
        member.thawed.set()
        await settled()
        assert begun == [0]
        member.is_joining = False
        await settled()
        for one in (running, other):
            await one.drain(5)

    run(story())


def test_a_partition_of_which_a_reader_hears_late_may_be_gone(broker: Broker, run: Run) -> None:
    broker.write(*numbers(0, 9))

    async def story() -> None:
        begun: list[int] = []
        flow = source(config={"session.timeout.ms": 3000}).pipe(group_by("n"), spread())
        running = (
            flow.pipe(adaptive_flat_map(lambda value: begun.append(value["n"])))
            .to(collect([]))
            .start()
        )
        broker.telling.clear()
        await asyncio.sleep(10)
        (member,) = broker.members
        member.is_joining = True
        broker.expire(member)
        other = broker.owner["t", 0] = Member(broker, member.settings)
        broker.members.append(other)
        broker.telling.set()
        await settled()
        assert begun == []
        member.is_joining = False
        other.kill()
        await settled()
        assert begun == list(range(9))
        await running.drain(5)

    run(story())


def test_a_reader_that_has_nothing_to_commit_stays_sure_of_its_partitions(
    broker: Broker, run: Run
) -> None:
    broker.write(*numbers(0, 2))

    async def story() -> None:
        begun: list[int] = []

        async def work(value: dict[str, int]) -> None:
            begun.append(value["n"])
            await asyncio.sleep(30)

        flow = source(config={"session.timeout.ms": 3000}).pipe(group_by(lambda value: 0), spread())  # pyright: ignore[reportUnknownLambdaType]
        running = flow.pipe(adaptive_flat_map(work, limit=Fixed(1))).to(collect([])).start()
        await asyncio.sleep(65)
        assert begun == [0, 1]
        assert running.is_ready
        assert broker.committed["t", 0] == (2, "")
        await running.drain(5)

    run(story())


def test_what_was_at_work_when_the_brokers_confirm_goes_on_and_keeps_its_order(
    broker: Broker, run: Run
) -> None:
    broker.write(*(b'{"k": "%s", "n": %d}' % (b"ab"[n % 2 :][:1], n) for n in range(8)))

    async def story() -> None:
        begun: list[int] = []
        done: list[int] = []

        async def work(value: dict[str, int]) -> int:
            begun.append(value["n"])
            # The first call is under way before the doubt, in it and after it.
            await asyncio.sleep(10 if value["n"] == 0 else 0.9)
            return value["n"]

        flow = source(config={"session.timeout.ms": 3000}).pipe(
            group_by("k"), spread(), adaptive_flat_map(work, limit=Fixed(2))
        )
        running = flow.to(for_each(done.append)).start()
        await asyncio.sleep(0.5)
        (member,) = broker.members
        member.thawed.clear()
        await asyncio.sleep(5)
        assert running.statistics()["stages"][0]["read_ahead"] > 0
        member.thawed.set()
        await asyncio.sleep(60)
        assert [n for n in begun if n % 2 == 0] == [0, 2, 4, 6]
        # What ends in the doubt is not passed on, and is done again.
        assert [n for n in begun if n % 2] == [1, 3, 5, 5, 7]
        assert sorted(done) == list(range(8))
        await running.drain(5)

    run(story())


# The law.


class _Walk:
    """Members that come, go, freeze and are killed, over partitions that fill; drawn by a seed."""

    def __init__(self, seed: int) -> None:
        self.drawn = random.Random(seed)
        self.partitions = self.drawn.randint(1, 5)
        self.broker = Broker(self.partitions)
        self.keys = self.drawn.choice([2, 10, 50])
        # Half of them note what may end a process. None does so often.
        letters: list[Any] = []
        noting = {"on_bad_record": route(collect(letters)), "attempts": 1000}
        self.options = noting if seed % 2 else {}
        self.written: dict[int, list[int]] = defaultdict(list)
        self.count = 0
        # Some have a sink that asks whether an event is still held, as handlers do. In some,
        # members are in doubt, and handlers work through it.
        self.asks = seed % 5 in (0, 4)
        self.more = ["stall"] * 8 if seed % 7 in (1, 3, 5) else []
        # By key: what was completed, in order; which are at work, by their member.
        self.completed: dict[int, list[int]] = defaultdict(list)
        self.at_work: dict[int, list[tuple[int, Running | None]]] = defaultdict(list)
        self.excused: set[Running | None] = set()
        self.in_flight_at_kills = 0
        self.running: dict[Running, Member] = {}

    def write(self, count: int) -> None:
        for _ in range(count):
            key = self.drawn.randrange(self.keys)
            self.written[key].append(self.count)
            self.broker.write(
                b'{"k": %d, "n": %d}' % (key, self.count), partition=key % self.partitions
            )
            self.count += 1

    def start(self) -> None:
        drawn = self.drawn
        longest = drawn.choice([0.0, 10.0] if self.more else [0.0, 0.05, 1.0])
        mine: list[Running | None] = [None]

        async def work(value: dict[str, int]) -> dict[str, int]:
            key, n = value["k"], value["n"]
            others = [who for _, who in self.at_work[key] if who not in self.excused]
            # Who does not know yet that its lease has ended may overlap with its successor.
            assert not others or mine[0] in self.excused, f"key {key} is worked on twice"
            earlier = self.written[key][: self.written[key].index(n)]
            assert set(earlier) <= set(self.completed[key]), f"{n} of key {key} begins too early"
            entry = n, mine[0]
            self.at_work[key].append(entry)
            try:
                await asyncio.sleep(drawn.random() * longest)
                if not self.asks:
                    self.completed[key].append(n)
            finally:
                self.at_work[key].remove(entry)
            return value

        def arrived(value: dict[str, int]) -> None:
            if self.asks:
                self.completed[value["k"]].append(value["n"])

        limit = Fixed(drawn.choice([1, 3, 30]))
        before = list(self.broker.members)
        running = (
            source(
                # What takes longer than the hand-over begins elsewhere while it is at work.
                handover=drawn.choice([60, 60] if self.more else [5, 60]),
                config={"session.timeout.ms": drawn.choice([1000, 5000])},
                **self.options,
            )
            .pipe(group_by("k", buffer=drawn.choice([4, 1024])), spread())
            .pipe(adaptive_flat_map(work, limit=limit))
            .to(for_each(arrived) if self.asks else collect([]))
            .start()
        )
        mine[0] = running
        self.running[running] = before  # type: ignore[assignment]

    async def member_of(self, running: Running) -> Member | None:
        found = self.running[running]
        if isinstance(found, list):
            new = [one for one in self.broker.members if one not in found]
            if not new:
                return None
            self.running[running] = new[0]
        return self.running[running]

    async def step(self) -> None:
        drawn = self.drawn
        what = drawn.choice(
            ["write", "write", "start", "drain", "kill", "freeze", "wait", *self.more]
        )
        if what == "write":
            self.write(drawn.randint(1, 60))
        elif what == "start" and len(self.running) < 4:
            self.start()
            # One at a time, so that the walk knows whose member it is.
            await asyncio.sleep(0.01)
            await self.member_of(next(reversed(self.running)))
        elif what == "drain" and self.running:
            running = drawn.choice(list(self.running))
            del self.running[running]
            await running.drain(3600)
        elif what == "stall" and self.running:
            # It hears nothing for longer than its session, and is not given up.
            member = await self.member_of(drawn.choice(list(self.running)))
            if member is not None:
                member.thawed.clear()
                await asyncio.sleep(2 + drawn.random() * 6)
                member.thawed.set()
        elif what in ("kill", "freeze") and self.running:
            running = drawn.choice(list(self.running))
            member = await self.member_of(running)
            if member is None or member not in self.broker.members:
                return
            self.excused.add(running)
            self.in_flight_at_kills += len(
                [who for one in self.at_work.values() for _, who in one if who is running]
            )
            # What has finished since the last commit is repeated as well.
            if what == "kill":
                del self.running[running]
                self.broker.expire(member)
                running.cancel()
                await running.wait()
            else:
                member.thawed.clear()
                self.broker.expire(member)
                await asyncio.sleep(drawn.random() * 3)
                member.thawed.set()
        await asyncio.sleep(drawn.choice([0, 0.1, 1, 3]))

    async def run(self) -> None:
        with model_of(self.broker):
            self.write(self.drawn.randint(0, 100))
            for _ in range(self.drawn.randint(5, 15)):
                await self.step()
            for running in self.running:
                self.excused.add(running)
            if not self.running:
                self.start()
            ends = floors = dict[tuple[str, int], int]()
            for _ in range(2000):
                ends = {key: self.broker.end(key) for key in self.broker.logs}
                floors = {key: self.broker.committed.get(key, (0, ""))[0] for key in ends}
                if all(floors[key] == end for key, end in ends.items()):
                    break
                await asyncio.sleep(1)
            else:
                raise AssertionError(f"not done: {floors} of {ends}")
            for running in self.running:
                await running.drain(3600)
        for key, written in self.written.items():
            first = list(dict.fromkeys(self.completed[key]))
            assert first == written, f"key {key} of {self.partitions} partitions"


@seeds(100)
def test_nothing_is_lost_and_keys_keep_their_order_whoever_comes_and_goes(
    seed: int, pytestconfig: pytest.Config, run: Run
) -> None:
    seed += pytestconfig.option.seed * 1000
    walk = _Walk(seed)
    try:
        run(walk.run())
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
