"""Lines of a terminal that are replaced by newer ones."""

from __future__ import annotations

from shutil import get_terminal_size

from penstock.command.output import say

__all__ = ["Live"]


class Live:
    """Lines on standard error, cut at the terminal's width, each time in place of those before."""

    def __init__(self) -> None:
        self._shown = 0

    def show(self, lines: list[str]) -> None:
        """Replace the lines."""
        room = get_terminal_size().columns - 1
        # What is left of a longer line before is erased.
        text = "\n".join(f"{line[:room]}\x1b[K" for line in lines)
        say(f"{self._up()}{text}")
        self._shown = len(lines)

    def erase(self) -> None:
        """Leave nothing behind: the next output begins where the lines were."""
        if self._shown:
            # One more up, for the end of the line that is written after it.
            say(f"{self._up()}\x1b[J\x1b[A")
            self._shown = 0

    def _up(self) -> str:
        return f"\x1b[{self._shown}A" if self._shown else ""
