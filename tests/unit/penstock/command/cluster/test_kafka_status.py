from __future__ import annotations

from dataclasses import replace

from penstock.command.cluster.kafka import as_text
from penstock.streams.kafka.cluster.view import GroupView, Member, Part


def view(
    parts: dict[int, Part],
    members: list[Member],
    keys: list[tuple[str, int]],
    sampled: int,
    ignored: dict[int, str],
) -> GroupView:
    return GroupView(
        name="charge",
        topic="orders",
        stored=4000,
        letters=1,
        lag={number: part.unfinished for number, part in parts.items()},
        owners={number: member.id for member in members for number in member.partitions},
        workers={},
        parts=parts,
        members=members,
        keys=keys,
        sampled=sampled,
        ignored=ignored,
    )


PARTS = {0: Part(988, 3, 1003, 12), 1: Part(0, 0, 0, 0)}


def test_members_partitions_and_the_hottest_keys_are_shown() -> None:
    members = [Member("id", "first", "10.0.0.17", (0,))]
    keys = [("c7", 11), ("x" * 50, 1)]
    text = as_text(view(PARTS, members, keys, 12, {}))
    assert text == "\n".join(
        [
            "charge: 12 events unfinished, 4,000 kept in 'orders', 1 dead letter",
            "  2 partitions, 1 of them with no worker; most behind is 0 with 12",
            f"  hottest keys of 12 unfinished events: c7 11, {'x' * 40}... 1",
            "  worker  host       partitions  behind",
            "  first   10.0.0.17           1      12",
            "  partition  worker  floor  finished above    end  behind",
            "  0          first     988               3  1,003      12",
            "  1          -           0               0      0       0",
            "",
        ]
    )


def test_a_text_beside_an_offset_that_is_not_used_is_named() -> None:
    text = as_text(view(PARTS, [], [], 0, {0: "the metadata: it was moved"}))
    assert "  partition 0: the metadata: it was moved (ignored)\n" in text


def test_a_group_without_members_says_so() -> None:
    text = as_text(view({1: PARTS[1]}, [], [], 0, {}))
    assert "  no worker is there\n" in text
    assert "hottest" not in text


def test_a_topic_that_follows_another_one_says_whose_partitions_the_members_have() -> None:
    members = [Member("id", "first", "10.0.0.17", (0, 1))]
    text = as_text(replace(view(PARTS, members, [], 0, {}), follows="payments"))
    assert "0 of them with no worker" in text
    assert (
        "  the group assigns partitions of 'payments': in a join a member has those of 'orders' "
        "with the same numbers\n" in text
    )
