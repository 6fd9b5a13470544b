"""examples/balances.py is killed, and run again."""

from __future__ import annotations

from tests.pages.examples.test_balances import printed


def test_each_entry_is_on_a_statement_once_after_kills() -> None:
    first, second, _, once = printed("--entries", "3000", "--kills", "2")
    assert first < second
    assert once == "each is on a statement once, with the right balance: True"
