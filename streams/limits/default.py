"""The default limiter, which stops where more concurrency stops paying.

While the limit holds the work back, a higher limit raises goodput in proportion (elasticity d ln
goodput / d ln limit = 1) until the service behind the handler is saturated, where it gains nothing
(0) or does harm (below 0). `Elastic` measures goodput and latency over windows of completions,
compares windows at two limits, and settles where the elasticity is 0.15: there the product
goodput^(1/0.15 - 1) / latency is at its maximum, the "power" of Giessler et al. (Free buffer
allocation, 1978) and Kleinrock (1979) with the weight on goodput.

It doubles while doubling pays, first round by round (`slow_start`), then window by window
("ramp"). Then it holds, and probes by a quarter up and down alternately, more rarely and by less as
the level settles; where less does as well it goes down step by step ("sink"). It also measures how
much goodput varies by itself: the more it does, the longer and wider the probes.

It never grows while the limit is not in use, gives way when work is dropped, and starts slowly
again when the service changes or has been down. No latency target, no time constant: multiplying
every time by a constant changes no decision, and the same calls always give the same limits.
"""

from __future__ import annotations

from math import exp, log, sqrt

from penstock.streams.base.recorded import recorded
from penstock.streams.limits.slow_start import SlowStart
from penstock.streams.limits.tally import exceeds, refused
from penstock.streams.limits.window import Usual, Window, elasticity
from penstock.streams.limits.windowed import Windowed

__all__ = ["Elastic", "default"]

_TARGET = 0.15  # the elasticity to settle at; chosen, see the module's text
_PROBE = 1.25  # a probe's step: measurable within a few windows, harmless if wrong
_FINE = 1.12  # the smallest one once the level has settled; tried: 1.08 brings no more
_PAYS = 0.5  # above it, doubling is the quicker way
_FLAT = 0.12  # below it, less does as well: too little loses work, too much a little time
_HARMS = 0.22  # while sinking: above it, less does harm
_SURE = 0.3  # a standard error of an elasticity that is good enough to go by
_ENOUGH = 0.75  # of the error of what a probe is compared with: more precision adds nothing
_PATIENCE = 8  # windows after which it must be
_REMEMBERED = 6  # windows at a limit that still count when a probe returns to it
_AGE = 12  # contradicting probes beyond which more of them change nothing
_RAREST = 8  # upward probes to leave out at most before a limit that failed is tried again
_MOST = 0.1  # the least share of the limit that a sudden loss of goodput leaves


class Elastic(Windowed):
    """Find the number of events in flight by the elasticity of goodput.

    `floor` and `ceiling` bound the limit, which starts at `floor`. BadArgument unless they are ints
    with 1 <= floor <= ceiling.

    Time: a few additions and one logarithm per completion; a decision every max(16, 2 x limit)
    completions or more, in the slow start every limit completions. Memory: constant.
    """

    def __init__(self, floor: int = 1, ceiling: int = 1000) -> None:
        super().__init__(floor, ceiling)
        self.mode = "hold" if self._slow_start is None else "slow start"
        self.reason = "start"
        self.elasticity = 1.0
        self._level = float(self.limit)  # the limit before rounding: small steps must add up
        self._here: Window | None = None  # the mean of the windows at this limit
        self._size = 0  # how many they are
        self._stay = 0  # and how many since the limit was last changed
        self._base: Window | None = None  # what they are compared with
        self._base_size = 0
        self._origin: Window | None = None  # where the way down began
        self._usual = Usual(self._spread)
        self._evidence = self._weight = 0.0  # the mean elasticity of recent probes
        self._blocked: int | None = None  # a limit at which calls began to fail
        self._penalty = self._patience = 1  # upward probes to leave out before trying it again
        self._leap = 1  # how far above a limit that works again others may be tried
        self._settled = 0  # how long probes have contradicted one another
        self._went_up = False
        self._up = True

    def __repr__(self) -> str:
        return f"Elastic(limit={self.limit}, mode={self.mode!r}, reason={self.reason!r})"

    def adopt(self, start: SlowStart) -> None:
        """Go on from the level that the start reached."""
        self._level = float(start.limit)
        self.elasticity, self.reason = start.elasticity, start.reason
        if start.failed:
            self._block(start.limit + 1)
            self.mode = "hold"
        elif start.over:
            self.mode = "ramp"

    def decide(self, window: Window) -> None:
        """Act on the result of one window at the present limit."""
        # A probe itself may change goodput as much as the limit.
        away = abs(log(window.limit / self._level))
        if self.mode != "ramp" and self._usual.odd(window, away):
            if self._usual.changed:
                self._start_over(window)
            return
        self._here = window if self._here is None else self._here.join(window, self._size)
        self._size += 1
        self._stay += 1
        if self.mode == "hold":
            self._hold(self._here, window)
        elif self.mode == "ramp":
            self._ramp(self._here)
        elif self.mode == "probe":
            self._probe(self._here)
        else:
            self._sink(self._here)

    def give_way(self, share: float, *, often: bool) -> None:
        """Go down in proportion to what still works; by at least one if `often`."""
        outage = share < 0.5
        level = self.limit * max(0.5, share) if share else float(self.floor)
        if round(level) == self.limit:
            if not often:
                # An occasional refusal costs nothing: a lower limit would do less work.
                return
            level = self.limit - 1.0
        if not outage:
            # An outage says nothing about the level.
            self._block(self.limit)
        self._settle(level, "work was dropped")
        if outage:
            # After an outage the recovery is as urgent as the start.
            self._restart()

    def take_back(self, level: int, reason: str) -> None:
        """Go back below the limit at which calls began to fail."""
        self._block(level + 1)
        self._settle(float(level), reason)

    def _block(self, limit: int) -> None:
        """Avoid this limit, and try it again ever more rarely."""
        again = self._blocked is not None and limit >= self._blocked
        self._penalty = self._patience = min(_RAREST, 2 * self._penalty) if again else 2
        self._blocked = max(limit, self.floor + 1)
        self._leap = 1
        self._up = False

    def _restart(self) -> None:
        self._forget()
        self._start_slowly(self._top())
        if self._slow_start is not None:
            self.mode = "slow start"

    def _forget(self) -> None:
        """Forget what was known of the service."""
        self._usual.clear()
        self._usual_failures.clear()
        self._expect(None)
        self._weight = 0.0
        self._settled = 0

    def _start_over(self, window: Window) -> None:
        """Follow a service that has changed."""
        usual = self._usual.goodput
        assert usual is not None
        self._base = None
        self._blocked = None
        self._up = True
        share = exp(min(0.0, window.goodput - usual))
        self._settle(self._level * max(_MOST, share), "the service changed")
        # Or the work became slower or quicker: doubling finds out which, and is soon done.
        self._restart()

    def _move(self, level: float, mode: str, reason: str) -> None:
        """Go on at `level` (any real number; the limit is the nearest int within bounds)."""
        self._level = min(max(level, float(self.floor)), float(self.ceiling))
        self.mode = mode
        self._here, self._size, self._stay = None, 0, 0
        if self._change(round(self._level)):
            self.reason = reason

    def _settle(self, level: float, reason: str) -> None:
        base, self._base = self._base, None
        self._move(level, "hold", reason)
        if base is not None and base.limit == self.limit:
            self._here, self._size = base, min(_REMEMBERED, self._base_size)

    def _top(self) -> int:
        return self.ceiling if self._blocked is None else min(self.ceiling, self._blocked - 1)

    def _hold(self, here: Window, window: Window) -> None:
        drift = self._usual.drifts(window)
        failures = self._usual_failures
        if drift or exceeds(window.failed, window.calls, refused(failures.share)):
            here, self._here, self._size = window, window, 1
            # Too little for a change of the service, but reason enough to look for the best again.
            self._forget()
            self._up = drift > 0
        failures.learn(window.calls, window.failed)
        self._usual.add(window)
        self._expect(self._usual.goodput)
        # Rarer once the level has settled, as each costs a little; downwards, at a ceiling, most.
        needed = min(6 if self.limit < self._top() else 12, self._settled)
        # Measuring here costs nothing, a probe does: measure as exactly before one as in one, and
        # longer where goodput varies by itself.
        known = sqrt(2) * here.error if self._blocked is None else 0.0
        unsure = max(here.wobble, known) > _SURE * log(_PROBE) and self._stay < _PATIENCE
        if not unsure and (self._stay >= needed or self._settled < 3):
            self._start_probe(here)

    def _start_probe(self, here: Window) -> None:
        limit, top = self.limit, self._top()
        if self._up and limit >= top and limit < self.ceiling:
            # A level that dropped work is tried again, ever more rarely.
            self._patience -= 1
            if self._patience <= 0:
                self._patience = self._penalty
                top = limit + 1
        step = self._stride(self._step_at(here))
        up = min(top, max(limit + 1, round(limit * step)))
        down = max(self.floor, min(limit - 1, round(limit / step)))
        if self._up and up <= limit:
            self._up = False
        target, self._up = (up if self._up else down), not self._up
        if target == limit:
            self._size, self._stay = min(_REMEMBERED, self._size), 0
            return
        level, self._base, self._base_size = self._level, here, self._size
        self._move(target, "probe", "probing")
        # A probe is not a decision: the level to return to stays.
        self._level = level

    def _step_at(self, here: Window) -> float:
        # At the right level wide steps cost most: as narrow as can be measured in this time.
        fine = max(_FINE, exp(sqrt(2) * here.error / _SURE))
        return min(_PROBE, fine) if self._settled > 3 else _PROBE

    def _stride(self, step: float = _PROBE) -> float:
        # Wider where goodput varies by itself, or the answer would be lost in that.
        return min(2.0, max(step, exp(1.25 * self._spread.wobble)))

    def _probe(self, here: Window) -> None:
        base = self._base
        assert base is not None
        slope, error = elasticity(base, here)
        unsure = error > _SURE and here.error > _ENOUGH * base.error
        if unsure and self._stay < _PATIENCE:
            return
        self.elasticity = slope
        if not -1.2 - 2 * error <= slope <= 1.4 + 2 * error:
            # No level explains this: the service changed between the windows.
            self._settle(self._level, "back from a probe")
            return
        if self._blocked is not None and here.limit >= self._top():
            # Further with every limit that works again.
            self._blocked = here.limit + 1 + self._leap
            self._leap *= 2
            self._penalty = self._patience = 1
        certainty = error**-2
        weight = 0.6 * self._weight
        self._evidence = (weight * self._evidence + certainty * slope) / (weight + certainty)
        self._weight = weight + certainty
        flat = min(_FLAT, _PAYS - self._weight**-0.5)
        if here.limit > base.limit and slope - error <= _PAYS and here.fails_more(base):
            self.take_back(base.limit, "more calls failed")
            return
        surely = slope - error > _PAYS
        pays = surely or (self._evidence > _PAYS and slope - 1.5 * error > _TARGET)
        if here.limit > base.limit and pays:
            self._forget()
            self._base = here
            self._grow(here, "more pays")
        elif here.limit < base.limit and max(slope, self._evidence) < flat:
            self._weight = 0.0
            self._origin, self._base = base, here
            self._move(here.limit / self._stride(), "sink", "less does as well")
        else:
            self._step(slope, error)
            if here.limit > base.limit and slope > _PAYS:
                # It may well pay: ask again, and with a wider step.
                self._settled = min(0, self._settled)
                self._up = True

    def _step(self, slope: float, error: float) -> None:
        up = slope > _TARGET
        gain = 0.5 / (1 + (2 * error) ** 2) / (1 + 0.35 * self._settled)
        level = self._level * exp(gain * _clip(slope - _TARGET, -0.35, 0.6))
        if up:
            level = min(level, max(self._level, float(self._top())))
        # At the right level probes contradict one another, and steps become smaller. Where they
        # agree it may take several to come to the next limit; below one that dropped work, and
        # at the floor, they agree for ever.
        moved = round(level) != round(self._level)
        bound = self._blocked is not None or round(self._level) == self.floor
        if up != self._went_up or (bound and not moved):
            self._settled = min(_AGE, self._settled + 1)
        elif moved:
            self._settled = max(-1, self._settled - 1)
        self._went_up = up
        self._settle(level, "more pays" if up else "less does as well")

    def _grow(self, here: Window, reason: str) -> None:
        if here.limit >= self._top():
            self._settle(here.limit, "at the ceiling")
        else:
            self._base = here
            self._move(min(2 * here.limit, self._top()), "ramp", reason)

    def _ramp(self, here: Window) -> None:
        base = self._base
        if base is None:
            self._grow(here, "doubling pays")
            return
        self.elasticity, error = elasticity(base, here)
        if error > _SURE and abs(self.elasticity - _PAYS) < 2 * error and self._stay < 3:
            return
        if self.elasticity - error <= _PAYS and here.fails_more(base):
            self.take_back(base.limit, "more calls failed")
        elif self.elasticity + 0.7 * error > _PAYS:
            self._grow(here, "doubling pays")
        else:
            gain = (here.limit / base.limit) ** _clip(self.elasticity, 0.0, 1.0)
            self._up = False  # More is known not to pay.
            self._settle(base.limit * gain, "doubling paid too little")

    def _sink(self, here: Window) -> None:
        base, origin = self._base, self._origin
        assert base is not None
        assert origin is not None
        if base.limit <= here.limit:
            self._settle(here.limit, "nothing left to give back")
            return
        self.elasticity, error = elasticity(here, base)
        if error > _SURE and self._stay < _PATIENCE:
            return
        # A noisy step proves nothing while the whole way down has cost nothing.
        if self.elasticity - error >= _HARMS or elasticity(here, origin)[0] >= _TARGET:
            self._settled = min(_AGE, self._settled + 1)
            self._settle(base.limit, "less does harm")
        else:
            self._settled = 0
            self._base = here
            self._move(here.limit / self._stride(), "sink", "less does as well")


@recorded
def default(floor: int = 1, ceiling: int = 1000) -> Elastic:
    """Return a fresh default limiter that stays within `floor` and `ceiling`.

    Errors: BadArgument unless the bounds are ints with 1 <= floor <= ceiling.
    """
    return Elastic(floor, ceiling)


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
