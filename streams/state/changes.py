"""Changes of states that are not committed yet, and the choice of those that may be.

An event changes the states of keys at once, in memory. Its changes are committed in one transaction
with the mark that it is done, so they must wait for its end. The changes of one key are committed
in order, so an event also waits for those that changed one of its keys before it.

    a ──> key 1        a, b and c have ended, d has not:
    b ──> key 1, 2     a is committed, and b with c
    c ──> key 2, 1     (each changed a key after the other one);
    d ──> key 3        e waits for d
    e ──> key 3, 2

What an event of a source becomes shares its root: its children, or the list that it was put into
together with others, which makes their roots one.
"""

from __future__ import annotations

from typing import Any

from penstock.streams.protocol.event import Ending, Event

__all__ = [
    "END",
    "NO_TIMERS",
    "Cell",
    "Change",
    "Root",
    "committable",
    "depending",
    "newest",
    "without",
]

NO_TIMERS: dict[str, float] = {}

END = ""
"""The name of the timer at which a state ends; those of users have longer names."""


class Cell:
    """The state of one key, with its timers: when each is due, in seconds since 1970, by name.

    The timer `END` is the end of the state. `timers` is replaced, never changed. `last` is the
    newest change that is not committed. `used`: since the last search for cells to forget. `text`
    is the key as it is stored.
    """

    __slots__ = ("key", "last", "state", "text", "timers", "used")

    def __init__(
        self, key: Any, text: bytes, state: Any, timers: dict[str, float] = NO_TIMERS
    ) -> None:
        self.key = key
        self.text = text
        self.state = state
        self.timers = timers
        self.last: Change | None = None
        self.used = True


class Change:
    """A new state of a key, of the stage `room`; `before` and `after` are changes of the same key.

    `data` is the encoded state, if it was encoded already: before a mutable state is passed to a
    function again. The `state` None deletes the key. `more` is another change of its root.
    """

    __slots__ = ("after", "before", "cell", "data", "more", "room", "root", "state", "timers")

    def __init__(
        self, room: Any, cell: Cell, root: Root, state: Any, timers: dict[str, float]
    ) -> None:
        self.room = room
        self.cell = cell
        self.root = root
        self.state = state
        self.timers = timers
        self.data: bytes | None = None
        self.after: Change | None = None
        self.before = before = cell.last
        if before is not None:
            before.after = self
        cell.last = self
        self.more = root.change
        root.change = self

    def written(self) -> None:
        """Note that this change and all before it are committed."""
        after = self.after
        if after is not None:
            after.before = self.after = None
        elif self.cell.last is self:
            self.cell.last = None


class Root:
    """An event of a source, with the changes that it made: the newest is `change`.

    `origin` and `outer` are what the event had before its end was held back; `ending` and `why` are
    how it ended. Events of which a list was made are done together: one of their roots has taken
    up the `others`, with their changes, and `missing` of all these have not ended. `into` is the
    root that took this one up. `is_left`: it was not among those that could be committed.
    `is_lost`: it will never be.
    """

    __slots__ = (
        "change",
        "ending",
        "event",
        "into",
        "is_left",
        "is_lost",
        "missing",
        "origin",
        "others",
        "outer",
        "why",
    )

    def __init__(self, event: Event[Any]) -> None:
        self.event = event
        self.origin = event.origin
        self.outer = event.outer
        self.ending: Ending | None = None
        self.why: Any = None
        self.change: Change | None = None
        self.others: list[Root] | None = None
        self.into: Root | None = None
        self.missing = 1
        self.is_left = self.is_lost = False

    @property
    def whole(self) -> Root:
        """The root that has taken this one up, or itself."""
        root = self
        while root.into is not None:
            root = root.into
        return root

    def all(self) -> list[Root]:
        """The root, and those that it has taken up."""
        return [self] if self.others is None else [self, *self.others]

    def join(self, other: Root) -> None:
        """Take up another root."""
        change = other.change
        while change is not None:
            change.root = self
            if change.more is None:
                change.more, self.change = self.change, other.change
                break
            change = change.more
        other.change = None
        self.others = [*self.all()[1:], *other.all()]
        self.missing += other.missing
        other.into = self


def without(timers: dict[str, float], name: str) -> dict[str, float]:
    """The timers except the one with this name."""
    return {one: due for one, due in timers.items() if one != name}


def committable(ended: list[Root]) -> tuple[list[Root], list[Root]]:
    """The roots that may be committed, as many as possible, and the others; all have ended.

    A root is left if it has changed a key after one that has not ended, or after one that is left.
    Time: O(n) in their changes.
    """
    left: list[Root] = []
    for root in ended:
        root.is_left = False
        change = root.change
        while change is not None:
            before = change.before
            if before is not None and before.root.missing:
                left.append(root)
                break
            change = change.more
    for root in left:
        root.is_left = True
    for root in left:
        change = root.change
        while change is not None:
            after = change.after
            if after is not None and not (after.root.missing or after.root.is_left):
                after.root.is_left = True
                left.append(after.root)
            change = change.more
    if not left:
        return ended, []
    ready = [root for root in ended if not root.is_left]
    return ready, [root for root in ended if root.is_left]


def depending(root: Root) -> list[Root]:
    """The root, and all that cannot be committed before it. Time: O(n) in their changes."""
    found, known = [root], {root}
    for one in found:
        change = one.change
        while change is not None:
            after = change.after
            if after is not None and after.root not in known:
                known.add(after.root)
                found.append(after.root)
            change = change.more
    return found


def newest(ready: list[Root]) -> list[Change]:
    """The last change of each key among those of roots that are `committable`."""
    last: list[Change] = []
    for root in ready:
        change = root.change
        while change is not None:
            after = change.after
            # A later one of the same root is among them too.
            if after is None or after.root.missing or after.root.is_left:
                last.append(change)
            change = change.more
    return last
