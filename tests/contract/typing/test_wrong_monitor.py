"""What the type checkers report for a monitor over the wrong element."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[3]
PIPELINE = """
from penstock import monitor, violations
from penstock import for_each
from penstock import Flowable
from penstock.streams.temporal import Violation


class Order:
    paid: bool


class Receipt:
    number: int


def paid(order: Order) -> bool:
    return order.paid


def alarm(violation: Violation[Order]) -> None: ...


def build(orders: Flowable[Order], receipts: Flowable[Receipt]) -> None:
    orders.pipe(monitor("G paid", paid=paid, on_violation=alarm))
    receipts.pipe(monitor("G paid", paid=paid))
    receipts.pipe(violations("G paid", paid=paid))
    orders.pipe(violations("G paid", paid=paid)).to(for_each(paid))
"""


@pytest.mark.parametrize(
    "command",
    [["mypy", "--follow-imports=silent"], ["pyright"]],
    ids=["mypy", "pyright"],
)
def test_a_monitor_over_the_wrong_element_is_rejected(command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "pipeline.py"
    file.write_text(PIPELINE)
    checker = [sys.executable, "-m", *command, str(file)]
    told = subprocess.run(checker, cwd=HOME, capture_output=True, text=True).stdout
    wrong = {int(line.split(":")[1]) for line in told.splitlines() if "error:" in line}
    first = PIPELINE[: PIPELINE.index("    receipts.pipe(monitor")].count("\n") + 1
    assert wrong == {first, first + 1, first + 2}, told
