from __future__ import annotations

from benchmarks.lines import folder_of, lines_of_code

MODULE = '''"""About the module,
in two lines."""

import os  # read below


class Thing:
    """A docstring."""

    size = 1
    """One of an attribute,
    in two lines."""

    # A comment.
    def text(self) -> str:
        """Another."""
        return """a string that is
        data"""
'''


def test_docstrings_comments_and_blank_lines_are_not_code() -> None:
    # import, class, size, def, and the two lines of the return.
    assert lines_of_code(MODULE) == 6


def test_a_module_of_streams_counts_for_its_room_and_others_for_their_top_folder() -> None:
    assert folder_of("streams/protocol/event.py") == "streams/protocol"
    assert folder_of("streams/temporal/formula/formula.py") == "streams/temporal"
    assert folder_of("streams/__init__.py") == "streams"
    assert folder_of("operators/rx/zip.py") == "operators"
    assert folder_of("penstock/command/output.py") == "penstock"
