"""The answer to a caller: what the sinks of a pipeline got that was made of the caller's event."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from penstock.streams.base.errors import Dropped, Duplicate, as_raised
from penstock.streams.protocol.event import Event

__all__ = ["DUPLICATE", "Answer", "Asked", "FirstAnswers"]

DUPLICATE = "duplicate"
"""The cause of the drop of an event whose key has been seen."""


class Answer:
    """The results of one event, from when it enters the pipeline until the caller has them.

    `results` are the values that the sinks got; `error` is how the event ended, if it did not
    finish. `first` is, of a duplicate, the answer about the first event with its key.
    """

    __slots__ = ("error", "first", "results")

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.error: BaseException | None = None
        self.first: Answer | None = None

    def all(self) -> list[Any]:
        """The results of an event that has ended, in the order in which the sinks got them.

        Raises its error; Dropped if an operator dropped it on purpose; Duplicate if it was a
        duplicate, and the answer about the first one is not known.
        """
        answer, error = self, self.error
        # A sink has dropped it if there are results: its server had them already.
        while isinstance(error, Dropped) and error.cause == DUPLICATE and not answer.results:
            if answer.first is None:
                raise _duplicate()
            answer = answer.first
            error = answer.error
        if error is not None and not (isinstance(error, Dropped) and answer.results):
            raise as_raised(error)
        return list(answer.results)


def _duplicate() -> Duplicate:
    error = Duplicate(
        "the event was dropped as a duplicate, and the answer about the first one is not kept: "
        "nobody had asked for it, or too many have asked since"
    )
    error.cause = DUPLICATE
    return error


Asked = dict[Event[Any], Answer]
"""The answers about events that have not ended, by the events as their source made them."""


class FirstAnswers:
    """The answers about the first events of their keys, for those of their duplicates.

    Memory: the answers about the last `most` of them that callers have asked about.
    """

    def __init__(self, asked: Asked, most: int) -> None:
        self._asked = asked
        self._most = most
        self._kept: OrderedDict[Hashable, Answer] = OrderedDict()

    def note(self, first: Hashable, event: Event[Any]) -> None:
        """The first event of a key has come; `first` identifies it among all of them."""
        answer = self._asked.get(event)
        if answer is not None:
            self._kept[first] = answer
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def give(self, first: Hashable, duplicate: Event[Any]) -> None:
        """A duplicate has come: its answer is that about the first one."""
        answer = self._asked.get(duplicate)
        if answer is not None:
            answer.first = self._kept.get(first)
