"""Calls of a client that block, each with a time after which it is given up."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

__all__ = ["Calls", "NoAnswer"]

T = TypeVar("T")


class NoAnswer(Exception):
    """A call has not returned: the client is of no use any more, and is to be replaced."""


class Calls:
    """Calls in a thread of their own, one after another. The process does not wait for it at its
    end, since a call of librdkafka may never return (its issues 5456 and 5511)."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._is_stuck = False
        # That which is waited for.
        self._answer: Future[Any] | None = None
        Thread(None, self._work, name, daemon=True).start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            answer, function = call
            try:
                end = partial(answer.set_result, function())
            except BaseException as error:
                end = partial(answer.set_exception, error)
            # Nobody may wait for it any more.
            with suppress(InvalidStateError):
                end()

    def wait(self, function: Callable[[], T], longest: float) -> T:
        """The result of a function. Raises NoAnswer after so many seconds, or once it is given
        up."""
        if self._is_stuck:
            raise NoAnswer
        answer = self._answer = Future[T]()
        self._calls.put((answer, function))
        if self._is_stuck:
            answer.cancel()
        try:
            return answer.result(longest)
        except (TimeoutError, CancelledError):
            if answer.done() and not answer.cancelled():
                # It came just then, or is such an error itself.
                return answer.result()
            self._is_stuck = True
            self._calls.put(None)
            raise NoAnswer from None

    def give_up(self) -> None:
        """Wait for no call any longer, from another thread: they raise NoAnswer."""
        self._is_stuck = True
        if self._answer is not None:
            self._answer.cancel()

    def close(self) -> None:
        self._calls.put(None)
