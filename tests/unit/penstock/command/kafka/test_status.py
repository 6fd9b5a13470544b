from __future__ import annotations

from penstock.command.kafka.status import as_text
from penstock.streams.kafka.cluster.view import Member, Part, View

PARTS = {0: Part(988, 3, 1003, 12), 1: Part(0, 0, 0, 0)}


def test_members_partitions_and_the_hottest_keys_are_shown() -> None:
    members = [Member("id", "first", "10.0.0.17", (0,))]
    keys = [("c7", 11), ("x" * 50, 1)]
    view = View("charge", "orders", 4000, 1, PARTS, members, keys, 12, {})
    assert as_text(view) == "\n".join(
        [
            "charge: 12 events unfinished, 4,000 kept in 'orders', 1 dead letter",
            "  2 partitions, 1 of them with no worker",
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
    view = View("charge", "orders", 0, 0, PARTS, [], [], 0, {0: "the metadata: it was moved"})
    assert "  partition 0: the metadata: it was moved (ignored)\n" in as_text(view)


def test_a_group_without_members_says_so() -> None:
    text = as_text(View("charge", "orders", 0, 0, {1: PARTS[1]}, [], [], 0, {}))
    assert "  no worker is there\n" in text
    assert "hottest" not in text
