"""The queue for the lock of a file of SQLite."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from penstock.streams.sql_queue.sqlite import lock_queue
from penstock.streams.sql_queue.sqlite.lock_queue import LockQueue


def waiters() -> list[threading.Thread]:
    """The threads that wait for the lock."""
    return [thread for thread in threading.enumerate() if thread.name == "lock queue"]


def test_who_waits_gets_the_turn_when_it_is_over(tmp_path: Path) -> None:
    first, second = LockQueue(f"{tmp_path}/work.db"), LockQueue(f"{tmp_path}/work.db")
    order: list[str] = []

    def wait() -> None:
        with second.taken():
            order.append("second")

    waiting = threading.Thread(target=wait)
    with first.taken():
        waiting.start()
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]
    first.close()
    second.close()


def test_who_does_not_get_the_turn_soon_does_without_and_keeps_it_from_nobody_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_queue, "_COURTESY", 0.01)
    stopped, other, third = (LockQueue(f"{tmp_path}/work.db") for _ in range(3))
    done: list[str] = []
    with stopped.taken():
        with other.taken():
            done.append("without")
        with other.taken():
            done.append("again, without waiting")
    for waiter in waiters():
        waiter.join()
    monkeypatch.setattr(lock_queue, "_COURTESY", 30.0)
    with third.taken():
        done.append("third")
    with other.taken():
        done.append("with it")
    assert done == ["without", "again, without waiting", "third", "with it"]
    for each in (stopped, other, third):
        each.close()


def test_the_lock_is_left_alone_while_turns_are_waited_for_and_not_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    first, second = LockQueue(f"{tmp_path}/work.db"), LockQueue(f"{tmp_path}/work.db")
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        with second.taken():
            pass

    for expected in (1, 1):
        with first.taken():
            if not pauses:
                os.utime(f"{tmp_path}/work.db-lock", (0, 0))
            waiting = threading.Thread(target=wait)
            waiting.start()
            begun.wait()
            while not waiters():
                pass
        waiting.join()
        for waiter in waiters():
            waiter.join()
        # The second time is too soon after the first.
        assert len(pauses) == expected
    first.close()
    second.close()


def test_where_the_file_of_turns_cannot_be_made_or_locked_one_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    with LockQueue(f"{tmp_path}/missing/work.db").taken():
        done.append("not made")

    def refuse(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    unlocked = LockQueue(f"{tmp_path}/work.db")
    with unlocked.taken():
        done.append("not locked")
    unlocked.close()
    assert done == ["not made", "not locked"]
