"""Rows that a reader cannot claim now but may have to process later, such as those held by
others."""

from __future__ import annotations

from penstock.streams.sql_queue.claimed import ClaimTerms
from penstock.streams.sql_queue.store import Store

__all__ = ["Elsewhere"]

_IN_WORK = """SELECT t.{owner}, count(*), {seconds}min(t.{expires}) - {now}), min(t.{expires})
FROM {table} AS t WHERE t.{status} >= 9 AND t.{status} <= 9 AND t.{owner} <> :owner{spared}
GROUP BY t.{owner} ORDER BY t.{owner}"""

# With keys, rows that are due and could not be claimed belong to keys that others hold. Without,
# they have become due since then, or another transaction has a lock on them.
_TO_COME = """SELECT due, count(*), {seconds}min(run_at) - {now}) FROM (
    SELECT t.{run_at} AS run_at, CASE
        WHEN {is_due} THEN 1
        WHEN t.{attempts} > 0 THEN 0 END AS due
    FROM {table} AS t
    WHERE t.{status} >= 0 AND t.{status} <= 0 AND t.{attempts} IS NOT NULL{spared}) AS found
WHERE due IS NOT NULL GROUP BY due ORDER BY due"""


class Elsewhere:
    """The rows that other readers hold, that keys hold back, or that are to be tried again later.

    `text` describes them, and is empty if there are none. `seconds` is at most how long it takes
    until one of them changes by itself.
    """

    def __init__(self, store: Store, terms: ClaimTerms) -> None:
        self.text = ""
        self.seconds = 0.0
        self._store = store
        self._owner = terms.owner
        self._due = "due by now" if terms.by is None else "with keys that others hold"
        self._expired: dict[str, object] = {}

    async def look(self, *, holding: bool) -> None:
        """Look again. A reader that is `holding` rows that only its end will finish does not wait
        for readers that are seen to be alive: they may be waiting for it."""
        others = await self._store.read(_IN_WORK, owner=self._owner)
        came = {int(due): (count, wait) for due, count, wait in await self._store.read(_TO_COME)}
        alive = {
            owner
            for owner, _, _, expires in others
            if self._expired.setdefault(owner, expires) != expires
        }
        parts: list[str] = []
        waits: list[float] = []
        for owner, count, wait, _ in others:
            if not (holding and owner in alive):
                lease = "renews its lease" if owner in alive else f"lease of {max(0.0, wait):.1f} s"
                parts.append(f"{count} in work at {owner} ({lease})")
                waits.append(wait)
        if 0 in came:
            parts.append(f"{came[0][0]} to be tried again")
            waits.append(came[0][1])
        if 1 in came and not holding:
            parts.append(f"{came[1][0]} {self._due}")
        self.text = ", ".join(parts)
        self.seconds = max(0.0, min(waits, default=0.0))
