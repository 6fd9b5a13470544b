"""What stands before the sinks of a pipeline whose callers ask for results: it notes these."""

from __future__ import annotations

from typing import Any

from penstock.streams.protocol.acknowledgement import with_ancestors
from penstock.streams.protocol.answers import Answer, Asked
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber

__all__ = ["Answering"]


class Answering:
    """Notes each result in the answers about the events that it was made of.

    Time: while nobody waits for an answer, one look for each list. Otherwise one look for each
    event, and for one that an operator has made, one for each event that it was made of.
    """

    __slots__ = ("_asked", "_on_events", "on_completed", "on_error", "on_subscribe")

    def __init__(self, below: Subscriber[Any], asked: Asked) -> None:
        self._asked = asked
        self._on_events = below.on_events
        self.on_subscribe = below.on_subscribe
        self.on_error = below.on_error
        self.on_completed = below.on_completed

    def on_events(self, events: list[Event[Any]], /) -> None:
        if self._asked:
            self._note(events)
        self._on_events(events)

    def _note(self, events: list[Event[Any]]) -> None:
        asked = self._asked
        for event in events:
            answer = asked.get(event)
            if answer is not None:
                answer.results.append(event.value)
                continue
            # Once, also if it was made of several results of one event.
            answers: set[Answer] = {asked[one] for one in with_ancestors((event,)) if one in asked}
            for each in answers:
                each.results.append(event.value)
