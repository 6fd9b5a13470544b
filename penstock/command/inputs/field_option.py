"""An option that names a field of the events, such as `--by FIELD`."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.command.output import counted, mention
from penstock.streams.base.errors import describe

__all__ = ["FieldOption"]

_FINE, _BAD_LINES = 0, 3


class FieldOption:
    """Separates the events (or rows, as `what` says) that have the field from those that lack it.

    The first that lacks it is reported at once and the others are counted: where the name of the
    field is wrong, every event lacks it. Memory: two numbers.
    """

    def __init__(self, option: str, name: str, what: str = "event") -> None:
        self._name = name
        self._what = what
        self._lack = f"no field {name!r} ({option})"
        self._seen = self._lacking = 0

    def is_in(self, event: Mapping[str, object]) -> bool:
        """Whether the event has the field. Called once for each event."""
        self._seen += 1
        if self._name in event:
            return True
        self._lacking += 1
        if self._lacking == 1:
            mention(f"{self._what} {self._seen:,} has {self._lack}, left out: {describe(event)}")
        return False

    def end(self, status: int) -> int:
        """Report how many events lacked the field; returns the exit status, 3 in place of 0 if
        one did."""
        if self._lacking > 1:
            more = self._lacking - 1
            verb = "has" if more == 1 else "have"
            mention(f"{counted(more, f'more {self._what}')} {verb} {self._lack}, left out")
        return _BAD_LINES if self._lacking and status == _FINE else status
