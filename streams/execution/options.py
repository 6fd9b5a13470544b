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

__all__ = ["CallOptions", "HandlerOptions"]


# Nothing prints or compares them, and Python makes these methods at each start.
@dataclass(kw_only=True, repr=False, eq=False)
class HandlerOptions:
    """The keywords of `adaptive_flat_map`, which takes them from here and documents each."""

    ordered: bool = False
    timeout: float | None = None
    on_error: OnError = "stop"
    overload: Overload | None = None
    window: int = 256
    on_limit_change: OnLimitChange | None = None


@dataclass(kw_only=True, repr=False, eq=False)
class CallOptions(HandlerOptions):
    """These options, the handler, and how its stage gets a limiter.

    `limiter(run)` makes the limiter of a run, None for a stage that has `parallel` calls at once;
    with `is_shared` its limit is the limit of other stages too.
    """

    handler: Callable[..., Any]
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
