"""The reason why a reader waits, as the server says, and whether it has caught up."""

from __future__ import annotations

from penstock.streams.nats.streams.consumers import Standing
from penstock.streams.runtime.error_log import ErrorLog

__all__ = ["Standstill"]

# Seconds for which the server may count a message that is acknowledged; for which nothing ends
# before a bound of the consumer is held for the reason; and a lease that others renew is longer by.
_LAG, _STILL, _MARGIN = 0.3, 1.0, 1.0
# Seconds for which handlers are free before that is held for more than a moment.
_STARVED = 3.0


class Standstill:
    """Judges the standing of a consumer from which nothing comes; each reason is reported once."""

    def __init__(self, errors: ErrorLog) -> None:
        self._errors = errors
        self._told: set[str] = set()
        self._starved_since: float | None = None

    def has_caught_up(self, now: Standing, held: int, quiet: float, retry_after: float) -> bool:
        """Whether nothing more comes before the reader ends. It holds `held` messages; none has
        come or ended for `quiet` seconds."""
        if now.pending:
            return False
        elsewhere = now.out - held
        if elsewhere <= 0:
            return not held or quiet >= _LAG
        if quiet >= _LAG:
            self._tell(
                "elsewhere",
                f"waiting for {elsewhere} messages that are delivered and not acknowledged: other "
                "readers have them, or they come again, those of a reader that died when its lease "
                f"of {now.lease:g} s is over",
            )
        # What only the end of this reader will finish, others may be waiting for. They are alive if
        # nothing has come for so long.
        return held > 0 and quiet >= max(now.lease, retry_after) + _MARGIN

    def explain(self, now: Standing, held: int, quiet: float) -> None:
        """Report why the server delivers nothing, if that lasts."""
        if not now.pending or quiet < _STILL:
            return
        if now.paused:
            self._tell(
                "paused", f"the consumer '{now.name}' is paused for {now.paused:,.0f} s more"
            )
        elif held and 0 < now.most_out <= now.out:
            self._tell_of_bound(now, now.pending, held)

    def starve(self, now: Standing, pending: int, held: int, at: float) -> None:
        """Report that handlers are free at this time, and have been for a while, because the reader
        holds as many messages as it may, and so many more are pending."""
        # Some are acknowledged, and not replaced yet.
        if not pending or not 0 < 0.9 * now.most_out <= held:
            self._starved_since = None
        elif self._starved_since is None:
            self._starved_since = at
        elif at >= self._starved_since + _STARVED:
            self._tell_of_bound(now, pending, held)

    def _tell_of_bound(self, now: Standing, pending: int, held: int) -> None:
        self._tell(
            "bound",
            f"{pending} messages wait, but the consumer '{now.name}' has at most {now.most_out} "
            f"unacknowledged ones (max_ack_pending), and the pipeline holds {held} of them, "
            "although it could work on others. Raise the bound, or hold fewer",
        )

    def warn_of_bounds(self, now: Standing) -> None:
        """Report which messages are lost to all readers, whatever these do."""
        if now.most_deliveries:
            self._tell(
                "deliveries",
                f"the consumer '{now.name}' delivers a message at most {now.most_deliveries} times "
                "(max_deliver): one that has failed, was returned or had a reader that died so "
                "often is never delivered again",
            )

    def _tell(self, reason: str, text: str) -> None:
        if reason not in self._told:
            self._told.add(reason)
            self._errors.warn(f"read_jetstream: {text}")
