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

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from penstock.streams.delivery.commit import Part
from penstock.streams.protocol.event import BaseEvent, Ending, Event, Origin
from penstock.streams.state.backend import Columns

__all__ = [
    "END",
    "NO_TIMERS",
    "Cell",
    "Change",
    "Orders",
    "Room",
    "Root",
    "all_of",
    "as_new",
    "changes_of",
    "committable",
    "committed",
    "depending",
    "is_over",
    "newest",
    "released",
    "undo",
    "waits_for",
    "without",
]

NO_TIMERS: dict[str, float] = {}

END = ""
"""The name of the timer at which a state ends; those of users have longer names."""


class Cell:
    """The state of one key, with its timers: when each is due, in seconds since 1970, by name.

    The timer `END` is the end of the state. `timers` is replaced, never changed. `last` is the
    newest change that is not committed. `partition` is the number of the one that the state moves
    with, once it is known. `used`: since the last search for cells to forget.
    `is_stored`: whether there is a row of it, or one is being written. `text` is the key as it is
    stored, of the stage `room`.
    """

    __slots__ = ("is_stored", "key", "last", "partition", "room", "state", "text", "timers", "used")

    def __init__(
        self,
        room: Any,
        key: Any,
        text: bytes,
        state: Any,
        timers: dict[str, float] = NO_TIMERS,
        *,
        is_stored: bool = False,
    ) -> None:
        self.room = room
        self.key = key
        self.text = text
        self.state = state
        self.timers = timers
        self.last: Change | None = None
        self.partition: int | None = None
        self.used = True
        self.is_stored = is_stored


_NO_CELL = Cell(None, None, b"", None)


class Room(Protocol):
    """A stage with states, as the commits see it."""

    name: str

    def write(self, changes: Sequence[Change], rows: list[Columns], gone: list[bytes]) -> None:
        """Add the rows of the changes and the keys that they delete.

        Raises an error of the stage.
        """

    def committed(self, changes: Sequence[Change]) -> None:
        """These changes, whose rows were added last, are committed."""

    def undone(self, cell: Cell) -> None:
        """The last changes of a key will never be committed."""
        ...


class Orders:
    """What keeps the parts of each key in order: changes without a state."""

    def __init__(self) -> None:
        self._cells: dict[Any, Cell] = {}

    def cell(self, key: Any) -> Cell:
        found = self._cells.get(key)
        if found is None:
            found = self._cells[key] = Cell(self, key, b"", None)
        return found

    def forget(self, cell: Cell) -> None:
        if cell.last is None:
            self._cells.pop(cell.key, None)

    undone = forget


class Change:
    """A new state of a key; `before` and `after` are changes of the same key.

    `data` is the encoded state, if it was encoded already: before a mutable state is passed to a
    function again. The `state` None deletes the key. `more` is another change of its root.
    """

    __slots__ = ("after", "before", "cell", "data", "more", "root", "state", "timers")

    root: Root

    def __init__(self) -> None:
        self.cell = _NO_CELL
        self.state: Any = None
        self.timers = NO_TIMERS
        self.data: bytes | None = None
        self.before: Change | None = None
        self.after: Change | None = None
        self.more: Change | None = None


class Root(Change):
    """An event of a source, with the changes that it made: it is the first of them itself.

    One record for both, because most events make one change. `origin` and `outer` are what the
    event had before its end was held back; `ending` and `why` are how it ended. Events of which a
    list was made are done together: one of their roots has taken up the `others`, with their
    changes, and is their `root`; `missing` of all these have not ended. `is_left`: it was not among
    those that could be committed. `is_lost`: it will never be. `parts` are written with it, each
    with its number.
    """

    __slots__ = (
        "ending",
        "event",
        "is_left",
        "is_lost",
        "missing",
        "origin",
        "others",
        "outer",
        "parts",
        "why",
    )

    event: Event[Any]
    origin: Origin
    outer: Any

    def __init__(self) -> None:
        super().__init__()
        self.root = self
        self.ending: Ending | None = None
        self.why: Any = None
        self.others: list[Root] | None = None
        self.parts: list[tuple[int, Part[Any]]] | None = None
        self.missing = 1
        self.is_left = self.is_lost = False

    def all(self) -> list[Root]:
        """The root, and those that it has taken up."""
        return [self] if self.others is None else [self, *self.others]

    def change(
        self, cell: Cell, state: Any, timers: dict[str, float], data: bytes | None = None
    ) -> Change:
        """A change that gives a key a new state, encoded as `data` if that is so, and these
        timers."""
        change: Change = self
        if self.cell is not _NO_CELL or self.root is not self:
            change = Change()
            change.root = root = self.root
            change.more, root.more = root.more, change
        change.cell = cell
        change.state = cell.state = state
        change.timers = cell.timers = timers
        change.data = data
        change.before = before = cell.last
        if before is not None:
            before.after = change
        cell.last = change
        return change

    def join(self, other: Root) -> None:
        """Take up another root."""
        last: Change = other
        last.root = self
        while last.more is not None:
            last = last.more
            last.root = self
        last.more, self.more = self.more, other
        self.others = [*self.all()[1:], *other.all()]
        self.missing += other.missing
        if other.parts is not None:
            self.parts, other.parts = [*(self.parts or ()), *other.parts], None


def all_of(roots: list[Root]) -> list[Root]:
    """The roots, and those that they have taken up."""
    found: list[Root] = []
    root: Root
    for root in roots:
        if root.others is None:
            found.append(root)
        else:
            found += root.all()
    return found


def without(timers: dict[str, float], name: str) -> dict[str, float]:
    """The timers except the one with this name."""
    return {one: due for one, due in timers.items() if one != name}


def is_over(timers: Mapping[str, float], now: float) -> bool:
    """Whether the end of a state with these timers is due, and is the first of them."""
    end = timers.get(END)
    return end is not None and end <= now and end == min(timers.values())


def committable(ended: list[Root]) -> tuple[list[Root], list[Root]]:
    """The roots that may be committed, as many as possible, and the others; all have ended.

    A root is left if it has changed a key after one that has not ended, or after one that is left.
    Time: O(n) in their changes.
    """
    left: list[Root] = []
    root: Root
    change: Change | None
    before: Change | None
    for root in ended:
        root.is_left = False
        change = root
        while change is not None:
            before = change.before
            if before is not None and before.root.missing:
                left.append(root)
                break
            change = change.more
    if not left:
        return ended, left
    for root in left:
        root.is_left = True
    for root in left:
        for after in _after(root):
            if not (after.missing or after.is_left):
                after.is_left = True
                left.append(after)
    ready = [root for root in ended if not root.is_left]
    return ready, [root for root in ended if root.is_left]


def depending(root: Root) -> list[Root]:
    """The root, and all that cannot be committed before it. Time: O(n) in their changes."""
    found, known = [root], {root}
    for one in found:
        for after in _after(one):
            if after not in known:
                known.add(after)
                found.append(after)
    return found


def changes_of(root: Root) -> Iterator[Change]:
    """The changes that a root has made."""
    change: Change | None = root
    while change is not None:
        yield change
        change = change.more


def _after(root: Root) -> Iterator[Root]:
    """The roots that have changed a key next after this one."""
    return (one.after.root for one in changes_of(root) if one.after is not None)


def undo(lost: list[Root]) -> None:
    """Give each key that roots which are lost have changed the state before, as if they had not;
    all that depend on them are among them."""
    change: Change | None
    cells: dict[Cell, None] = {}
    for root in lost:
        change = root
        while change is not None:
            cell, before = change.cell, change.before
            # Otherwise an earlier change is undone, too.
            if cell is not _NO_CELL and (before is None or not before.root.is_lost):
                cell.last = before
                if before is not None:
                    before.after = None
                cells[cell] = None
            change = change.more
    for root in lost:
        change = root
        while change is not None:
            change.cell, change.before, change.after = _NO_CELL, None, None
            change = change.more
    for cell in cells:
        cell.room.undone(cell)


def newest(ready: list[Root]) -> defaultdict[Any, list[Change]]:
    """The last change of each key among those of roots that are `committable`, by room."""
    last: defaultdict[Any, list[Change]] = defaultdict(list)
    root: Root
    change: Change | None
    after: Change | None
    room: Any = None
    of_room = last[None]
    for root in ready:
        change = root
        while change is not None:
            after = change.after
            # A later one of the same root is among them too.
            if after is None or after.root.missing or after.root.is_left:
                if change.cell.room is not room:
                    room = change.cell.room
                    of_room = last[room]
                of_room.append(change)
            change = change.more
    # Of events that have changed nothing.
    last.pop(None, None)
    return last


def waits_for(ended: list[Root], now: float) -> dict[str, Any] | None:
    """The key of a change that roots which have ended wait for, and the age of the event that made
    it, which has not ended; None if none waits. Time: O(n) in the changes before it."""
    for root in ended:
        if not root.is_left:
            continue
        seen = {root}
        path = [root]
        for one in path:
            for change in changes_of(one):
                before = change.before
                if before is not None and before.root not in seen:
                    if before.root.missing:
                        age = now - before.root.event.created
                        return {"key": change.cell.key, "age": age}
                    seen.add(before.root)
                    path.append(before.root)
    return None


def committed(ready: list[Root]) -> None:
    """Take the changes of roots out of those that wait for their commit."""
    root: Root
    change: Change | None
    after: Change | None
    for root in ready:
        change = root
        while change is not None:
            after = change.after
            if after is not None:
                after.before = change.after = None
            elif change.cell.last is change:
                change.cell.last = None
            more = change.more
            change.more = None
            change = more


def released(done: list[Root]) -> list[tuple[Origin, Ending, Any, list[Event[Any]]]]:
    """The events of roots as they were before they were held back, those that have ended alike and
    come one after another together."""
    parts: list[tuple[Origin, Ending, Any, list[Event[Any]]]] = []
    part: list[Event[Any]] = []
    origin: Origin | None = None
    ending: Ending | None = None
    why: Any = None
    root: Root
    event: BaseEvent
    for root in done:
        event = root.event
        event.outer = root.outer
        event.origin = own = root.origin
        if own is not origin or root.ending is not ending or root.why is not why:
            origin, ending, why = own, root.ending, root.why
            assert ending is not None
            part = []
            parts.append((origin, ending, why, part))
        part.append(event)
    return parts


def as_new(done: list[Root]) -> None:
    """Prepare roots whose changes are `committed` for other events."""
    # Any: no event. To delete the attribute takes longer.
    nothing: Any = None
    root: Root
    for root in done:
        root.event = nothing
        root.cell = _NO_CELL
        root.state = root.data = root.ending = root.why = root.others = root.parts = None
        root.missing = 1
        root.root = root
