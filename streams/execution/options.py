"""The options of a stage that calls a handler: its operator hands them on whole, to workers too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.streams.base.validation import is_async
from penstock.streams.execution.handler import handler_name
from penstock.streams.execution.limit_control import OnLimitChange, Overload
from penstock.streams.failures.policy import OnError
from penstock.streams.limits import Limiter

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["BatchOptions", "CallOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """The options of `adaptive_flat_map`, which documents each, and how it makes its limiter.

    `limiter(run)` makes the limiter of a run, None for a stage that has `parallel` calls at once;
    with `is_shared` its limit is that of other stages too.
    """

    handler: Callable[..., Any]
    timeout: float | None = None
    on_error: OnError = "stop"
    ordered: bool = False
    window: int = 256
    overload: Overload | None = None
    on_limit_change: OnLimitChange | None = None
    limiter: Callable[[Run], Limiter] | None = None
    is_shared: bool = False
    parallel: int = 0

    @property
    def name(self) -> str:
        """The name of the handler in messages."""
        return handler_name(self.handler)

    @property
    def is_plain(self) -> bool:
        """Whether a call is over when it returns, so that one stage has one call at once."""
        return not is_async(self.handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions(CallOptions):
    """The options of `batch`, which documents each; as many results wait as a batch has."""

    max_size: int
    max_wait: float
    latency: float | None

    @property
    def limit(self) -> int:
        """Events that may be in calls at once."""
        return self.max_size * self.parallel
