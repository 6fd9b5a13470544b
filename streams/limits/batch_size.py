"""How many events one call of a batch handler takes.

A call of n events that takes c(n) seconds gives n / c(n) events a second. `BatchSize` measures
that rate at two sizes, call by call, and goes on from the better one: by doubling while that
pays, then by steps that shrink to 8 %. It settles where the elasticity of the rate,
d ln rate / d ln size, is 0.03: more would make every event wait longer for next to nothing. That
finds the knee of a plant that has one, the maximum of one that does worse with more, and about
32 a / b where c(n) = a + b n. The comparison of two levels is that of `streams.limits.elastic`;
here the samples are calls, not events, for those of one call are no two observations. Trials go on
for ever, small steps and large ones, but what they lose is kept below 1 % of the calls' time.

Multiplying every time by a constant changes no decision, unless there is a target for latency;
the same calls always give the same sizes.
"""

from __future__ import annotations

from math import exp, log, sqrt

from streams.limits.checks import check_count
from streams.limits.outcome import Outcome

__all__ = ["BatchSize"]

_TARGET = 0.03  # the elasticity to settle at: at most about 3 % are left unused
_DOUBLE, _FINEST = 2.0, 1.08  # the largest step, and the least: a finer one is lost in noise
_FEWEST, _MOST = 3, 96  # calls at a size before two sizes are compared, and that are remembered
_SURE, _DOUBT = 2.0, 0.3  # standard errors that decide early, and in the end in favour of more
_SPREAD, _WEIGHT = 0.1, 4.0  # what calls are taken to differ by at first, and for how many of them
_NOISE = 0.01  # of a call's time; however alike they were, the next may differ
_CHANGED = 0.2  # a move of ln rate at one size by which the plant itself has changed
_CREDIT, _SHARE = 20.0, 0.01  # what trials may cost: so many calls, and that share of all others


class _Calls:
    """What the calls at one size took, in logarithms: now and then one takes very much longer."""

    __slots__ = ("count", "logs", "oldest", "size", "squares")

    def __init__(self, size: int) -> None:
        self.size = size
        self.count = self.logs = self.squares = self.oldest = 0.0

    def add(self, seconds: float, oldest: float) -> None:
        logged = log(seconds)
        self.count += 1
        self.logs += logged
        self.squares += logged * logged
        self.oldest += oldest

    def join(self, other: _Calls) -> None:
        """Add later calls of the same size; those of long ago fade."""
        fade = min(1.0, _MOST / (self.count + other.count))
        for name in ("count", "logs", "squares", "oldest"):
            setattr(self, name, fade * (getattr(self, name) + getattr(other, name)))

    @property
    def rate(self) -> float:
        """The logarithm of the events a second."""
        return log(self.size) - self.logs / self.count

    @property
    def spread(self) -> float:
        """The squares of the deviations from the mean."""
        return max(0.0, self.squares - self.logs * self.logs / self.count)

    @property
    def latency(self) -> float:
        return self.oldest / self.count


class BatchSize:
    """Find the number of events a call, from 1 to `ceiling`; `latency` bounds it (seconds).

    `latency` is what the oldest event of a call may take on average, from its arrival to the
    end of the call. TypeError or ValueError for a ceiling that is no int of at least 1.

    Time: a few additions a call, a decision every three calls or more. Memory: constant.
    """

    def __init__(self, ceiling: int, latency: float | None = None) -> None:
        self.ceiling = check_count("ceiling", ceiling)
        self.reason = "start"
        self._latency = latency
        self._base = _Calls(1)
        self._trial: _Calls | None = None
        self._window = _Calls(1)
        self._left = _FEWEST
        self._skips = False
        self._step, self._up, self._failed = _DOUBLE, True, 0
        # What trials may still lose, in calls at the base.
        self._credit = _CREDIT
        self._strikes = 0
        # Of all sizes, for a lucky calm window must not look certain.
        self._spread, self._freedom = _WEIGHT * _SPREAD**2, _WEIGHT
        self._late = 0
        # A size that was dropped; the trials that will stay below it, and that did the last time.
        self._dropped, self._penance, self._penances = ceiling + 1, 0, 1

    def __repr__(self) -> str:
        return f"BatchSize(size={self.size}, reason={self.reason!r})"

    @property
    def size(self) -> int:
        """Events that the next call should take, if so many wait."""
        return self._window.size

    def on_complete(
        self, seconds: float, events: int, of: int, oldest: float, outcome: Outcome
    ) -> None:
        """Hear of one call, with what it took to find out which of its events failed.

        It took `seconds` for `events` events when `of` was the size; the oldest of them had
        come `oldest` seconds before its end. A call of fewer says nothing about the size.
        """
        if of > self.size and outcome is Outcome.DROPPED:
            return  # It began before the size was cut.
        if outcome is Outcome.DROPPED:
            self._dropped = max(2, events)
            self._penance = self._penances = min(64, 2 * self._penances)
            self._cut(events // 2, "a call was dropped")
        elif events < of:
            self._look_for_late(events, oldest)
        elif of == self.size and outcome is Outcome.SUCCESS and seconds > 0:
            if self._skips:
                self._skips = False
                return
            self._window.add(seconds, oldest)
            self._left -= 1
            if self._left <= 0:
                self._judge()

    def _look_for_late(self, events: int, oldest: float) -> None:
        if self._latency is None or oldest <= self._latency:
            self._late = 0
            return
        self._late += 1
        if self._late >= _FEWEST:
            self._cut(round(events * max(0.5, 0.9 * self._latency / oldest)), "too late")

    def _cut(self, size: int, reason: str) -> None:
        """Go on below; from there by small steps."""
        self._late = 0
        self._base = _Calls(max(1, min(size, self.size)))
        self._trial = None
        self._step, self._up, self._failed = min(self._step, sqrt(sqrt(_DOUBLE))), True, 0
        self._measure(self._base)
        self.reason = reason

    def _measure(self, calls: _Calls) -> None:
        # Whoever is in the first call of another size has waited for one of the size before.
        self._skips = self._latency is not None and calls.size != self._window.size
        self._window = _Calls(calls.size)
        # As many again as there were: a comparison that is uncertain needs many more.
        self._left = max(_FEWEST, int(min(calls.count, _MOST / 2)))

    # Judging.

    def _judge(self) -> None:
        window = self._window
        self._spread = 0.9 * self._spread + window.spread
        self._freedom = 0.9 * self._freedom + window.count - 1
        if self._latency is not None and window.latency > self._latency:
            if self._trial is not None and window.size > self._base.size:
                self._credit -= window.count
                self._decide(more=False)
            else:
                share = max(0.5, 0.9 * self._latency / window.latency)
                self._cut(int(window.size * share), "too late")
        elif self._trial is None:
            self._hold(window)
        else:
            self._compare(window, self._trial)

    def _error(self, one: _Calls, other: _Calls) -> float:
        """The standard error of the difference of ln rate."""
        variance = max(_NOISE**2, self._spread / self._freedom)
        return sqrt(variance * (1 / one.count + 1 / other.count))

    def _hold(self, window: _Calls) -> None:
        base = self._base
        if base.count:
            moved = abs(window.rate - base.rate)
            if moved > max(_CHANGED, 3 * self._error(window, base)):
                self._strikes += 1
                if self._strikes < 2:
                    self._measure(_Calls(base.size))
                    return
                self._start_over(window)
                return
        self._strikes = 0
        base.join(window)
        self._credit = min(_CREDIT, self._credit + _SHARE * window.count)
        self._go_on()

    def _go_on(self) -> None:
        if self._credit <= 0 or not self._try():
            self._measure(_Calls(self._base.size))

    def _start_over(self, window: _Calls) -> None:
        self._base = window
        self._strikes = self._failed = 0
        self._step, self._up, self._credit = _DOUBLE, True, _CREDIT
        self.reason = "the plant has changed"
        self._go_on()

    def _try(self) -> bool:
        """Begin to measure another size, if there is one in this direction or the other."""
        for _ in range(2):
            size = self._base.size
            if self._up:
                other = min(self._top(), max(size + 1, round(size * self._step)))
            else:
                other = max(1, min(size - 1, round(size / self._step)))
            if other != size:
                self._trial = _Calls(other)
                self._measure(self._trial)
                return True
            self._failed_here()
        return False

    def _top(self) -> int:
        if not self._penance:
            return self.ceiling
        self._penance -= 1
        return max(self._base.size, self._dropped - 1)

    def _failed_here(self) -> None:
        self._up = not self._up
        self._failed += 1
        if self._failed >= 2:
            self._failed = 0
            self._up = True
            if self._step > _FINEST:
                self._step = max(_FINEST, sqrt(self._step))
            else:
                # From far away again: chance may have led astray.
                self._step = _DOUBLE

    def _compare(self, window: _Calls, trial: _Calls) -> None:
        base = self._base
        (trial if window.size == trial.size else base).join(window)
        if base.count < _FEWEST:
            self._measure(base)
            return
        step = log(trial.size / base.size)
        elasticity = (trial.rate - base.rate) / step
        error = self._error(base, trial) / abs(step)
        fewer = min(base, trial, key=lambda calls: calls.count)
        # Where much is gained by doubling, to be sure of it costs more than to be wrong.
        doubling = self._up and self._step == _DOUBLE and elasticity > 0.5
        sure = doubling or abs(elasticity - _TARGET) > _SURE * error
        if not sure and fewer.count < _MOST / 2:
            self._measure(fewer)
            return
        # In doubt more: too much costs little, where it is not too much by far.
        self._decide(elasticity + _DOUBT * error > _TARGET)

    def _decide(self, more: bool) -> None:
        trial = self._trial
        assert trial is not None
        self._trial = None
        if more == self._up:
            self.reason = "more pays" if more else "less does as well"
            self._base = trial
            if trial.size >= self._dropped:
                self._dropped, self._penances = self.ceiling + 1, 1
            # Where it comes from is known to be worse.
            self._failed = 1
        else:
            self._credit -= trial.count * self._lost(trial)
            self._failed_here()
        self._go_on()

    def _lost(self, trial: _Calls) -> float:
        """What a call of a trial lost, in calls at the base."""
        if not trial.count:
            return 0.0
        base = self._base
        return trial.size / base.size * (exp(min(20.0, base.rate - trial.rate)) - 1)
