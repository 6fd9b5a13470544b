"""A limiter that stops where more concurrency stops paying.

While the limit is what holds the work back, a higher limit buys goodput in proportion (elasticity
d ln goodput / d ln limit = 1) until the plant behind the handler is full, where it buys nothing
(0) or does harm (below 0). `Elastic` measures goodput and latency over windows of completions,
compares windows at two limits, and settles where the elasticity is 0.15: there the product
goodput^(1/0.15 - 1) / latency is at its maximum, the "power" of Giessler et al. (Free buffer
allocation, 1978) and Kleinrock (1979) with the weight on goodput.

It doubles while doubling pays, first round by round (`slow_start`), then window by window. Then it
holds and probes by a quarter up and down in turn. It never grows while the limit is not in use,
gives way when work is dropped, and starts over when the plant moves or has been down. No latency
target, no time constant: multiplying every time by a constant changes no decision, and the same
calls always give the same limits.
"""

from __future__ import annotations

from collections import deque
from math import exp

from streams.limits.slow_start import SlowStart
from streams.limits.window import Window, elasticity
from streams.limits.windowed import Windowed

__all__ = ["Elastic"]

_TARGET = 0.15  # the elasticity to settle at; chosen, see the module's text
_PROBE = 1.25  # a probe's step: measurable within a few windows, harmless if wrong
_PAYS = 0.5  # above it, doubling is the quicker way
_CHANGED = 0.35  # a move of ln goodput at one level by which the plant itself has changed


class Elastic(Windowed):
    """Find the number of events in flight by the elasticity of goodput.

    `floor` and `ceiling` bound the limit, which starts at 2, or at the bound nearest to it.
    TypeError if one is not an int, ValueError if not 1 <= floor <= ceiling.

    Time: a few additions and one logarithm a completion; a decision every max(16, 2 x limit)
    completions or more, in the slow start every limit completions. Memory: constant.
    """

    def __init__(self, floor: int = 1, ceiling: int = 1000) -> None:
        super().__init__(floor, ceiling)
        self.mode = "ramp" if self._slow_start is None else "slow start"
        self.reason = "start"
        self.elasticity = 1.0
        self._level = float(self.limit)  # the limit before rounding: small steps must add up
        self._base: Window | None = None  # what the next window is compared with
        self._recent: deque[float] = deque(maxlen=6)  # goodput of the last windows on hold
        self._blocked: int | None = None  # a limit that dropped work
        self._penalty = self._patience = 1  # upward probes to leave out before trying it again
        self._settled = 0  # probes that led to no big move, since the last one that did
        self._held = 0
        self._strikes = 0
        self._up = True

    def __repr__(self) -> str:
        return f"Elastic(limit={self.limit}, mode={self.mode!r}, reason={self.reason!r})"

    def adopt(self, start: SlowStart) -> None:
        """Go on from the level that the start came to."""
        self._level = float(start.limit)
        self.elasticity, self.reason = start.elasticity, start.reason
        if start.over:
            self.mode = "ramp"

    def decide(self, window: Window) -> None:
        """Act on what one window at the present limit showed."""
        if self.mode == "ramp":
            self._ramp(window)
        elif self.mode == "probe":
            self._probe(window)
        elif self.mode == "sink":
            self._sink(window)
        else:
            self._hold(window)

    def unused(self, share: float) -> None:
        """Learn nothing about a limit that was not what held the work back."""
        # While doubling the base is kept: with none, each time of use would double unjudged.
        if self.mode != "ramp":
            self._base = None
        if self.mode in ("probe", "sink"):
            self.mode = "hold"
        # Sometimes reached: a little room lets bursts through, and bursts show the way.
        if share >= 0.25 and self.limit < self._top():
            self._move(self.limit + max(1, self.limit // 10), self.mode, "reached now and then")

    def give_way(self, share: float) -> None:
        """Go down, to the last level that worked or in proportion to what still works."""
        base, limit = self._base, self.limit
        tried = base is not None and base.limit < limit and self.mode in ("ramp", "probe")
        if base is not None and tried:
            level = float(base.limit)
        else:
            # At least one step: rounding must not make a limit that drops work stand still.
            level = min(limit * max(0.5, share), limit - 1.0)
        if tried or share >= 0.5:
            # Else it is an outage, which says nothing about the level.
            self._blocked = max(limit, self.floor + 1)
            self._penalty = self._patience = min(8, 2 * self._penalty)
            self._up = False
        self._recent.clear()
        self._settle(level, "work was dropped")
        if not tried and share < 0.5:
            # After an outage the way back up is as urgent as the start.
            self._start_slowly(self._top())
            self.mode = "hold" if self._slow_start is None else "slow start"

    def _move(self, level: float, mode: str, reason: str) -> None:
        """Go on at `level` (any real number; the limit is the nearest int within bounds)."""
        self._level = min(max(level, float(self.floor)), float(self.ceiling))
        self.mode = mode
        self._held = 0
        if self._change(round(self._level)):
            self.reason = reason

    def _top(self) -> int:
        return self.ceiling if self._blocked is None else min(self.ceiling, self._blocked - 1)

    def _ramp(self, window: Window) -> None:
        base = self._base
        if base is not None and base.limit < window.limit:
            self.elasticity, error = elasticity(base, window)
            if error > 0.35 and not self._lengthened and abs(self.elasticity - _PAYS) < 2 * error:
                self._lengthen(2)
                return
            if self.elasticity + 0.7 * error <= _PAYS:
                gain = (window.limit / base.limit) ** _clip(self.elasticity, 0.0, 1.0)
                self._settle(base.limit * gain, "doubling paid too little")
                return
        self._base = window
        if window.limit >= self._top():
            self._settle(window.limit, "at the ceiling")
        else:
            self._move(min(2 * window.limit, self._top()), "ramp", "doubling pays")

    def _settle(self, level: float, reason: str) -> None:
        self._base = None
        self._move(level, "hold", reason)

    def _hold(self, window: Window) -> None:
        if self._changed(window.goodput):
            return
        self._recent.append(window.goodput)
        self._base = window if self._base is None else self._base.join(window, self._held)
        self._held += 1
        # Probes grow rarer once the level has settled: each costs a little.
        if self._held >= (1 if self._settled < 3 else min(6, self._settled)):
            self._start_probe()

    def _changed(self, goodput: float) -> bool:
        """Notice that the plant has moved: two windows in a row far off the recent ones."""
        recent = self._recent
        if len(recent) < 2:
            return False
        mean = sum(recent) / len(recent)
        spread = (sum((x - mean) ** 2 for x in recent) / len(recent)) ** 0.5
        moved = goodput - mean
        if abs(moved) <= max(_CHANGED, 3 * spread):
            self._strikes = 0
            return False
        self._strikes += 1
        if self._strikes < 2:
            return True
        recent.clear()
        self._strikes = self._settled = 0
        self._blocked = None
        self._up = True
        self._settle(self._level * max(0.2, exp(min(0.0, moved))), "the plant changed")
        return True

    def _start_probe(self) -> None:
        limit, top = self.limit, self._top()
        if self._up and limit >= top and limit < self.ceiling:
            # A level that dropped work is tried again, ever more rarely.
            self._patience -= 1
            if self._patience <= 0:
                self._patience = self._penalty
                top = limit + 1
        up = min(top, max(limit + 1, round(limit * _PROBE)))
        down = max(self.floor, min(limit - 1, round(limit / _PROBE)))
        if self._up and up <= limit:
            self._up = False
        target = up if self._up else down
        self._up = not self._up
        if target == limit:
            self._held = 0
            return
        base_level = self._level
        self._move(target, "probe", "probing")
        # A probe is no decision: the level to return to stays.
        self._level = base_level

    def _probe(self, window: Window) -> None:
        base = self._base
        if base is None:
            self._settle(self._level, "back from a probe")
            return
        slope, error = elasticity(base, window)
        if error > 0.3 and not self._lengthened:
            self._lengthen(7)
            return
        self.elasticity = slope
        if self._blocked is not None and window.limit >= self._blocked:
            self._blocked = window.limit + 1
            self._penalty = 1
        if not -1.2 - 2 * error <= slope <= 1.4 + 2 * error:
            # No level explains this: the plant moved between the windows.
            self._settle(self._level, "back from a probe")
        elif window.limit > base.limit and slope > _PAYS and slope - _TARGET > error:
            self._settled = 0
            self._base = window
            self._recent.clear()
            self._move(min(2 * window.limit, max(self._top(), window.limit)), "ramp", "more pays")
            if self.limit == window.limit:
                self._settle(window.limit, "more pays")
        elif window.limit < base.limit and slope < min(0.2, _PAYS - error) and error < 0.3:
            self._base = window
            self._recent.clear()
            self._move(window.limit / 1.2, "sink", "less does as well")
        else:
            self._settled = min(12, self._settled + 1)
            gain = 0.5 / (1 + (2 * error) ** 2) / (1 + 0.35 * self._settled)
            step = exp(gain * _clip(slope - _TARGET, -0.3, 1.0))
            level = self._level * step
            if step > 1:
                level = min(level, max(self._level, float(self._top())))
            self._settle(level, "more pays" if step > 1 else "less does as well")

    def _sink(self, window: Window) -> None:
        base = self._base
        if base is None or base.limit <= window.limit:
            self._settle(window.limit, "nothing left to give back")
            return
        self.elasticity, _ = elasticity(window, base)
        if self.elasticity >= 0.35:
            self._settle(base.limit, "less does harm")
        else:
            self._base = window
            self._move(window.limit / 1.5, "sink", "less does as well")


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
