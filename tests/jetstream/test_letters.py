from __future__ import annotations

from typing import Any

from streams.faults import DeadLetter
from streams.jetstream.letters import id_of


class Mark:
    def __str__(self) -> str:
        return "message 7"


def letter(value: Any, stage: str = "flat_map") -> DeadLetter:
    return DeadLetter(value, ValueError("no"), stage, 3, 0.0, 1.0, Mark())


def test_events_that_came_of_one_message_have_letters_of_their_own() -> None:
    ids = [id_of("orders", letter(value)) for value in ({"part": 1}, {"part": 2})]
    assert len({*ids, id_of("orders", letter({"part": 1}, "batch"))}) == 3
    assert all(id.startswith("orders:message 7:") for id in ids)


def test_an_event_that_fails_again_elsewhere_has_the_same_letter() -> None:
    assert id_of("orders", letter({"part": 1})) == id_of("orders", letter({"part": 1}))
