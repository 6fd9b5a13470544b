"""The origin of an event in place of one that has ended, and of which a part was refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.streams.protocol.acknowledgement import Joined
from penstock.streams.protocol.event import FINISHED, Ending, Event
from penstock.streams.state.changes import Root

__all__ = ["Refused"]


class Refused(Joined):
    """The root ends as the event does: `ended` is called with it."""

    __slots__ = ("_ended", "root")

    def __init__(self, root: Root, ended: Callable[[Root, Ending, Any], None]) -> None:
        super().__init__(one.event for one in root.all())
        self._ended = ended
        self.root = root

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        root = self.root.root
        if ending is not FINISHED:
            # No part of it can be refused any more. Whoever keeps the event would keep these.
            self.parents = ()
            del self.root
        self._ended(root, ending, why)
