"""What is beside a committed offset is used for that offset only, whoever moved it."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from penstock import adaptive_flat_map, collect, group_by, read_kafka, route, spread, write_kafka
from penstock.streams.delivery.text import Unusable
from penstock.streams.delivery.trial import HELD, Doubt
from penstock.streams.kafka.offsets.metadata import Metadata, metadata_in
from penstock.streams.kafka.offsets.partition import Partition
from penstock.streams.testing.plugin import Run
from tests.helpers.kafka.metadata import finished_beside, metadata_of
from tests.helpers.kafka.model import CLUSTER, Broker, model_of, numbers

# The second record is not finished, those behind it are.
FINISHED = [(6, 20)]
HERE = metadata_of(5, FINISHED)

MOVED = {
    "to a lower offset": metadata_of(6, [(7, 20)]),
    "to a higher offset": metadata_of(4, [(5, 20)]),
    "from another partition": metadata_of(5, FINISHED, partition=1),
    "from another topic": metadata_of(5, FINISHED, topic="other"),
    "from another cluster": metadata_of(5, FINISHED, cluster="other"),
    "damaged": HERE[:-1] + "A",
    "cut": HERE[:-4],
    "of another version": "penstock1r:AQ8=",
    "of another program": "a note",
}


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("moved", MOVED)
def test_a_text_that_was_not_written_for_this_offset_is_ignored_and_said_once(
    moved: str, transactional: bool, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(1)
    broker.write(*numbers(0, 20))
    broker.committed["t", 0] = 5, MOVED[moved]
    found: list[dict[str, int]] = []
    sink: Any = write_kafka("out", transactional=True) if transactional else collect(found)

    async def work(value: dict[str, int]) -> dict[str, int]:
        if transactional:
            found.append(value)
        return value

    async def story() -> None:
        with model_of(broker):
            flow = read_kafka("t", "g", follow=False, on_bad_record=route(collect([])))
            flow = flow.pipe(group_by("n"), spread(), adaptive_flat_map(work))
            report = await flow.to(sink).run()
        assert report.statistics["stages"][0]["ignored"] == 1

    run(story())
    assert sorted(value["n"] for value in found) == list(range(5, 20))
    assert broker.committed["t", 0] == (20, "")
    assert caplog.text.count("is ignored: ") == 1
    assert "offset 5 of t, partition 0" in caplog.text


def test_a_text_that_was_written_for_this_offset_is_used(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(1)
    broker.write(*numbers(0, 20))
    broker.committed["t", 0] = 5, HERE
    found: list[dict[str, int]] = []

    async def story() -> None:
        with model_of(broker):
            report = await read_kafka("t", "g", follow=False).to(collect(found)).run()
        source = report.statistics["stages"][0]
        assert (source["ignored"], source["known"]) == (0, 14)

    run(story())
    assert [value["n"] for value in found] == [5]
    assert not caplog.text


def test_the_reason_says_where_a_text_was_written_for() -> None:
    said = metadata_in(CLUSTER, TopicPartition("t", 0, 4, HERE))
    assert isinstance(said, Unusable)
    assert said.why == "it was written for cluster/t/0/5, not for cluster/t/0/4"


@given(
    st.integers(0, 1 << 40),
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=20),
    st.sampled_from([None, HELD, Doubt(2, 100, 3, 50, 1), Doubt(1, 7, 0, -1, 0)]),
    st.integers(40, 300),
)
def test_a_partition_writes_what_its_next_holder_reads(
    floor: int, gaps: list[tuple[int, int]], note: Doubt | None, most: int
) -> None:
    ranges: list[tuple[int, int]] = []
    at = floor
    for gap, size in gaps:
        ranges.append((at + gap, at + gap + size))
        at += gap + size
    partition = Partition(CLUSTER, "t", 3, floor, ranges)
    partition.note = note
    for _ in range(12):
        partition.remember_less(most)
    mark = partition.mark()
    assert mark is not None
    assert mark[0] == floor
    assert len(mark[1]) <= most
    said = metadata_in(CLUSTER, TopicPartition("t", 3, *mark))
    assert isinstance(said, Metadata)
    offsets = {n for begin, end in said.finished for n in range(begin, end)}
    assert offsets <= {n for begin, end in ranges for n in range(begin, end)}
    assert said.doubt in (None, note)
    whole = partition.mark_after(set())
    if whole is not None:
        assert finished_beside(*whole) == ranges
