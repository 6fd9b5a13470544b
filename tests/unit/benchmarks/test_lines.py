from __future__ import annotations

from benchmarks.lines import folders, lines_of_code

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


def test_what_is_built_on_the_core_is_not_counted() -> None:
    code = "x = 1\n"
    counts = folders(
        iter(
            [
                ("streams/protocol/event.py", code),
                ("streams/protocol/event.py", code),
                ("streams/limits/fixed.py", code),
                ("operators/batch.py", code),
                ("streams/temporal/formula/formula.py", code),
                ("streams/nats/client/client.py", code),
                ("sources/table.py", code),
            ]
        )
    )
    assert counts == {"streams": 2, "streams/limits": 1, "operators": 1}
