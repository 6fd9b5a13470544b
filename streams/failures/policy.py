"""Error policies: what a stage does with a failed event (stop, skip, revert, retry, route)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from penstock.streams.base.errors import BadArgument, BadWait, BuildError, describe, not_awaited
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import is_at_least, is_count, require_count
from penstock.streams.protocol.identity import Identity
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.stages.sink_stage import Sink

if TYPE_CHECKING:
    from penstock.streams.failures.backoff import Backoff

__all__ = [
    "LONGEST_WAIT",
    "DeadLetter",
    "LettersOnly",
    "OnBadInput",
    "OnError",
    "OverflowPolicy",
    "Retry",
    "Route",
    "check_bad_input",
    "check_overflow",
    "check_policy",
    "check_share",
    "last_of",
    "retry",
    "route",
    "routed_by",
    "sink_of",
    "survives",
]


class _Route(NamedTuple):
    sink: Sink[DeadLetter]


# A tuple has no room for the record of its call, and a class of one has.
class Route(_Route):
    """Send the failed event to `sink` as a `DeadLetter`, and go on."""


class _Retry(NamedTuple):
    times: int
    backoff: Backoff
    then: Literal["stop", "skip", "revert"] | Route
    on: type[Exception] | tuple[type[Exception], ...]
    wait: Callable[[Exception], float | None] | None = None


class Retry(_Retry):
    """Try up to `times` times in total while the error is one of `on`, then do `then`."""

    def asked(self, error: BaseException) -> float:
        """The seconds that `error` asks to wait for. Raises BadWait, and what `wait` raises."""
        if self.wait is None or not isinstance(error, Exception):
            return 0.0
        answer = self.wait(error)
        if answer is None:
            return 0.0
        if not is_at_least(answer, 0):
            not_awaited(answer)
            raise BadWait(
                f"retry(wait=) returned {describe(answer)}: return the seconds (0 or more) to "
                "wait for the next attempt, or None"
            )
        return min(float(answer), LONGEST_WAIT)


OnError = Literal["stop", "skip", "revert"] | Retry | Route
"""`stop` the pipeline; `skip` the event; `revert` it, so that a source that can, such as
`read_table`, redelivers it later; retry it here; or write it to the dead letters."""

OnBadInput = Literal["report", "stop"] | Route
"""`report` what is not an event and go on, `stop` the pipeline, or write it to the dead letters."""

OverflowPolicy = Literal["spill", "wait"] | Route
"""What becomes of the events of a key that has its share of a buffer: they `spill` to a temporary
file, `wait` in the buffer, or are routed."""

_WORDS = ("stop", "skip", "revert")

LONGEST_WAIT = 60.0
"""Seconds; a service that asks for longer gets a call after this time."""


class DeadLetter(NamedTuple):
    """A value whose event has failed for good, with its error, stage, attempts and times.

    `created` and `failed` are seconds of the loop's clock; `token` is the source's own identifier.
    `identities` are those of the events that it was made of: the same in each run, see `Identity`.
    """

    value: Any
    error: BaseException
    stage: str
    attempts: int
    created: float
    failed: float
    token: Any = None
    identities: tuple[Identity, ...] = ()


class LettersOnly:
    """Marks a sink that takes only dead letters, and so cannot be a sink for results."""


@recorded
def route(sink: Sink[DeadLetter]) -> Route:
    """Send failed events to a sink, such as `dead_letters(path)`, and go on.

    `write_jsonl`, `write_table`, `write_kafka` and `write_jetstream` write a letter as the JSON
    object that `dead_letters` writes; a function in `for_each` gets the `DeadLetter`.
    An event counts as failed and is acknowledged once the sink has accepted its letter. The
    sources pause while 1,024 letters beyond the bound of the sink are not accepted. Raises
    BuildError unless `sink` is a sink.
    """
    if not isinstance(cast(Any, sink), Sink):
        raise BuildError(f"route({sink!r}): give a sink, such as route(dead_letters(path))")
    return Route(sink)


@recorded
def retry(
    times: int,
    backoff: Backoff | None = None,
    then: Literal["stop", "skip", "revert"] | Route = "stop",
    *,
    on: type[Exception] | tuple[type[Exception], ...] = Exception,
    wait: Callable[[Exception], float | None] | None = None,
) -> Retry:
    """Try a handler up to `times` times in total, each with its own timeout, then do `then`.

    Only errors that are one of the types `on` are tried again; with any other, `then` is done at
    once. A timeout is a TimeoutError. While an event waits for its next attempt, it keeps its
    group's turn but takes no working slot. `wait(error)` returns the seconds to wait at least, such
    as those of a `Retry-After`, or None; the wait is limited to 60 seconds. If it raises, or
    returns anything else (BadWait), the pipeline stops. Raises BadArgument unless `times` is at
    least 1, and BuildError for a wrong `backoff`, `then`, `on` or `wait`.
    """
    if not is_count(times):
        raise BadArgument(f"retry(times={times!r}): at least 1 attempt is needed")
    # Imported here: most pipelines retry nothing.
    from penstock.streams.failures.backoff import Backoff, check_backoff

    check_backoff("retry", backoff)
    if then not in _WORDS and not isinstance(cast(Any, then), Route):
        raise BuildError(f'retry(then={then!r}): use "stop", "skip", "revert" or route(sink)')
    types = cast(Any, on if isinstance(on, tuple) else (on,))
    if not types or not all(isinstance(one, type) and issubclass(one, Exception) for one in types):
        raise BuildError(
            f"retry(on={on!r}): give the errors that another attempt may cure, as an Exception "
            "type or a tuple of them, such as on=(ConnectionError, TimeoutError)"
        )
    if wait is not None and not callable(wait):
        raise BuildError(f"retry(wait={wait!r}): give a function from an error to seconds, or None")
    return Retry(times, backoff or Backoff(), then, on, wait)


# The two are easily confused.
_TWO_RETRIES = (
    " An operator such as ops.retry(times) goes into pipe(), and reads the source again; "
    "penstock.retry(times) calls the handler again."
)


def check_policy(
    policy: OnError, stage: str, *, retries: bool = False, option: str = "on_error"
) -> None:
    """Raise BuildError unless `policy` can be used in `stage`."""
    if isinstance(policy, Retry):
        if not retries:
            raise BuildError(
                f"{stage}({option}=retry(...)): only adaptive_flat_map and batch can retry; use "
                '"stop", "skip", "revert" or route(sink) here.'
            )
    elif isinstance(policy, Sink):
        sink = policy.info.name
        raise BuildError(
            f"{stage}({option}={sink}(...)): what fails goes to a sink by route: "
            f"{option}=route({sink}(...))"
        )
    elif not isinstance(policy, Route) and policy not in _WORDS:
        raise BuildError(
            f'{stage}({option}={policy!r}): use "stop", "skip", "revert", retry(times) or '
            "route(sink)." + (_TWO_RETRIES if callable(policy) else "")
        )


def check_overflow(policy: object, where: str = "group_by") -> None:
    """Raise BuildError unless `policy` can be the `overflow` of `where`."""
    if policy in ("spill", "wait") or isinstance(cast(Any, policy), Route):
        return
    if isinstance(policy, Sink):
        raise BuildError(
            f"{where}(overflow=...): what is over a key's share goes to a sink by route: "
            "overflow=route(sink)"
        )
    raise BuildError(f'{where}(overflow={policy!r}): use "spill", "wait" or route(sink)')


def check_share(share: int | None, buffer: int, where: str = "group_by") -> int:
    """The share of a key: by default a quarter of the buffer. Raises BuildError if it is below 1,
    or larger than the buffer."""
    if share is None:
        return max(1, buffer // 4)
    require_count(where, share=share)
    if share > buffer:
        raise BuildError(
            f"{where}(share={share}): a key cannot have more than the whole buffer={buffer}"
        )
    return share


def check_bad_input(policy: OnBadInput, source: str, option: str) -> None:
    """Raise BuildError unless `policy` says what `source` does with what is not an event."""
    if policy not in ("report", "stop") and type(policy) is not Route:
        raise BuildError(f'{source}({option}={policy!r}): use "report", "stop" or route(sink)')


def routed_by(*policies: object) -> tuple[StageInfo, ...]:
    """The dead-letter sinks of these policies."""
    sinks = (sink_of(policy) for policy in policies)
    return tuple(sink.info for sink in sinks if sink is not None)


def last_of(policy: object) -> object:
    """What a policy does when there are no more attempts."""
    return policy.then if isinstance(policy, Retry) else policy


def survives(policy: object) -> bool:
    """Whether a stage with this policy goes on after a failure, when it has been tried again."""
    return last_of(policy) != "stop"


def sink_of(policy: object) -> Sink[DeadLetter] | None:
    """The dead-letter sink of a policy, if it has one."""
    last = last_of(policy)
    return last.sink if isinstance(last, Route) else None
