"""The callers of an inbox: what they wait for, what they are told, and in which words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent import futures
from typing import Any, TypeVar

from penstock.streams.base.errors import (
    AnswerTimeout,
    BadArgument,
    BuildError,
    Dropped,
    InboxClosed,
    NoLoop,
    Returned,
)
from penstock.streams.base.validation import is_positive
from penstock.streams.execution.call import IN_STATE, NO_RESULTS
from penstock.streams.protocol.answers import Answer

__all__ = [
    "Accepted",
    "Admission",
    "Caller",
    "Ended",
    "OnLoop",
    "OnLoopEnded",
    "Refusal",
    "ThreadsEnded",
    "as_list",
    "as_one",
    "check_timeout",
    "closed",
    "dropped",
    "elsewhere",
    "expire",
    "give_up",
    "overdue",
    "own",
    "refuse",
    "returned",
    "unanswered",
]

T = TypeVar("T")

# Belongs to the caller's loop, or to a thread. Errors are set as results, because a caller that has
# gone away would not retrieve an exception.
Refusal = InboxClosed | NoLoop | BuildError | AnswerTimeout
# What a waiting caller is told: a refusal, or how to withdraw its event.
Admission = Refusal | Callable[[], None]
OnLoop = asyncio.Future[Admission]
Accepted = OnLoop | futures.Future[Admission]
OnLoopEnded = asyncio.Future[BaseException | None]
ThreadsEnded = futures.Future[BaseException | None]
Ended = OnLoopEnded | ThreadsEnded
Caller = tuple[T, Ended | None, Answer | None]


def as_one(answer: Answer) -> Any:
    results = answer.all()
    if not results:
        raise dropped(NO_RESULTS)
    return results[0] if len(results) == 1 else results


def as_list(answer: Answer) -> list[Any]:
    try:
        return answer.all()
    except Dropped as error:
        if error.cause not in (NO_RESULTS, IN_STATE):
            raise
        return []


def own(error: BaseException | None) -> BaseException | None:
    """`error` for one caller: each that raises it would add its frames for all others."""
    return returned() if isinstance(error, Returned) else error


def refuse(accepted: OnLoop, refusal: Refusal) -> None:
    if not accepted.done():
        accepted.set_result(refusal)


def check_timeout(timeout: float) -> None:
    if not is_positive(timeout):
        raise BadArgument(f"ask(timeout={timeout!r}): must be positive seconds, or None")


def overdue(seconds: float) -> AnswerTimeout:
    return AnswerTimeout(
        f"no answer within {seconds:g} s. If the event was taken in, it goes on: give it more "
        "time, or ask again behind distinct_within"
    )


def expire(ended: OnLoopEnded, seconds: float) -> None:
    if not ended.done():
        ended.set_result(overdue(seconds))


def give_up(accepted: OnLoop, ended: OnLoopEnded) -> None:
    if not (accepted.done() or ended.cancelled()):
        error = ended.result()
        assert isinstance(error, AnswerTimeout)
        accepted.set_result(error)


def dropped(cause: str) -> Dropped:
    """The error of an event that was dropped for this cause."""
    what = f"was dropped ({cause})"
    if cause == IN_STATE:
        what = "is kept in a state: its results come with other events"
    error = Dropped(f"the event ended without a result: it {what}")
    error.cause = cause
    return error


def unanswered() -> BuildError:
    return BuildError(
        "ask() returns what reaches the sinks of a pipeline in this process: read the inbox in a "
        "pipeline (.to(sink), and start()), and with workers= give it a sink that gets the results "
        "as they are, such as for_each or collect"
    )


def elsewhere() -> NoLoop:
    return NoLoop(
        "this inbox is read on an event loop that does not run here: from another thread use "
        "put_threadsafe(value) or ask_threadsafe(value)"
    )


def closed() -> InboxClosed:
    return InboxClosed(
        "the pipeline that reads this inbox drains or has ended, and takes no new events"
    )


def returned() -> Returned:
    return Returned("the event was returned unfinished: the pipeline stopped before its end")
