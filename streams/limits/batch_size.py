"""The batch size that follows the load: how many events one call of a batch handler takes.

A call of n events that takes c(n) seconds processes n / c(n) events per second. `BatchSize`
measures that rate at two sizes alternately, a few calls each, and goes on from the better one: by
doubling while that pays, then by steps that shrink to 8 %. It settles where the elasticity of the
rate, d ln rate / d ln size, is 0.02: more would make every event wait longer for next to nothing.
That finds the knee of a rate that has one, the maximum of one that falls with larger sizes, and
about 49 a / b where c(n) = a + b n.

Calls at another size are compared with those just before and after them: linear drift cancels
out, so a machine that becomes slower or faster does not affect the comparison. How far a
comparison can be trusted is measured in the same way, where the size stayed the same. Samples
are calls, not events: the events of one call are not separate observations. A trial is a
sequential test whose boundaries meet (a triangular test: J. Whitehead, The Design and Analysis of
Sequential Clinical Trials, 1983): the longer it has taken, the less there is to lose by
deciding. Trials never stop, in small steps and large ones, but cost less than 1 % of the calls'
time.

Multiplying every time by a constant changes no decision, unless there is a target for latency;
the same calls always give the same sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, log, sqrt

from penstock.streams.base.validation import check_count
from penstock.streams.limits.limiter import Outcome

__all__ = ["BatchSize"]

_TARGET = 0.02  # the elasticity to settle at: at most about 2 % are left unused
_DOUBLE, _FINEST = 2.0, 1.08  # the largest step, and the least: a finer one is lost in noise
_BLOCK, _MOST = 3, 32  # calls at a size before the other follows, and how often each in a trial
_SURE, _WORSE, _DOUBT = 2.0, 3.0, 0.3  # standard errors: more pays, it does not; both at first
_SPREAD, _WEIGHT = 0.1, 4.0  # assumed standard deviation of comparisons at first, and its weight
_NOISE = 0.007  # of the rate; the least deviation assumed, however alike they were
_HOPELESS = 0.3  # so much less of ln rate
_CHANGED = 0.2  # a move of ln rate at one size that shows that the cost has changed
_CREDIT, _SHARE = 20.0, 0.01  # what trials may cost: so many calls, plus this share of all others
_FADE = 0.9  # the weight of earlier blocks or trials after each new one
_RENEWED = 0.01  # what they may cost besides when the cost changes, of all calls


@dataclass(slots=True)
class Block:
    """A few calls at one size, one after the other."""

    size: int
    took: list[float] = field(default_factory=list[float])
    oldest: float = 0.0

    def add(self, seconds: float, oldest: float) -> None:
        self.took.append(seconds)
        self.oldest += oldest

    @property
    def rate(self) -> float:
        """The logarithm of the events per second."""
        # Without the slowest: occasionally a call takes much longer.
        usual = sorted(self.took)[: max(2, len(self.took) - 1)]
        return log(self.size) - sum(map(log, usual)) / len(usual)

    @property
    def latency(self) -> float:
        """The time of the oldest event of a call, on average."""
        return self.oldest / len(self.took)


class Variance:
    """A fading mean of squares, which starts from an assumed value."""

    def __init__(self, value: float, weight: float) -> None:
        self._sum, self._weight = value * weight, weight

    def add(self, squares: float, weight: float = 1.0) -> None:
        self._sum = _FADE * self._sum + squares
        self._weight = _FADE * self._weight + weight

    @property
    def value(self) -> float:
        return self._sum / self._weight


class BatchSize:
    """Find the number of events per call, from 1 to `ceiling`; `latency` bounds it (seconds).

    `latency` is the time that the oldest event of a call may take on average, from its arrival to
    the end of the call. TypeError or ValueError for a ceiling that is not an int of at least 1.
    Time: a few additions per call, a decision every three calls. Memory: constant.
    """

    def __init__(self, ceiling: int, latency: float | None = None) -> None:
        self.ceiling = check_count("ceiling", ceiling)
        self.reason = "start"
        self._latency = latency
        self._block = Block(1)
        self._skips = False
        # The size to go back to, and the one that is compared with it.
        self._base, self._trial = 1, 0
        # ln rate of block after block: of the base, or of base and trial alternately.
        self._rates: list[float] = []
        self._step, self._up, self._failed = _DOUBLE, True, 0
        # What trials may still lose, in calls at the base; and if the cost changes.
        self._credit, self._reserve = _CREDIT, 0.0
        self._errors = Variance(_SPREAD**2, _WEIGHT)
        # The usual rate at the base, and how far blocks are from it.
        self._level: float | None = None
        self._moves = Variance(_SPREAD**2, _WEIGHT)
        self._strikes = 0
        self._late = 0
        # A size that was dropped; the trials that will stay below it, and how many did last time.
        self._dropped, self._penance, self._penances = ceiling + 1, 0, 1

    def __repr__(self) -> str:
        return f"BatchSize(size={self.size}, reason={self.reason!r})"

    @property
    def size(self) -> int:
        """Events that the next call should take, if so many wait."""
        return self._block.size

    def on_complete(
        self, seconds: float, events: int, of: int, oldest: float, outcome: Outcome
    ) -> None:
        """Record one call, with the time it took to find out which of its events failed.

        It took `seconds` for `events` events when the size was `of`; the oldest of them arrived
        `oldest` seconds before its end. A call with fewer events says nothing about the size.
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
            self._block.add(seconds, oldest)
            if len(self._block.took) >= _BLOCK or self._is_hopeless():
                self._judge(self._block)

    def _look_for_late(self, events: int, oldest: float) -> None:
        if self._latency is None or oldest <= self._latency:
            self._late = 0
            return
        self._late += 1
        if self._late >= _BLOCK:
            self._cut(round(events * max(0.5, 0.9 * self._latency / oldest)), "too late")

    def _cut(self, size: int, reason: str) -> None:
        """Go on below, by small steps."""
        self._late = 0
        self._settle_at(max(1, min(size, self.size)), reason)
        self._step, self._up, self._failed = min(self._step, sqrt(sqrt(_DOUBLE))), True, 0
        self._measure(self._base)

    def _settle_at(self, size: int, reason: str) -> None:
        self._base, self._trial, self.reason = size, 0, reason
        self._rates, self._level, self._strikes = [], None, 0

    def _measure(self, size: int) -> None:
        # The events in the first call of another size waited for a call of the previous size.
        self._skips = self._latency is not None and size != self.size
        self._block = Block(size)

    # Judging.

    def _is_hopeless(self) -> bool:
        """Whether no further call can make the trial as good as the base, which is far better."""
        block = self._block
        if not self._rates or block.size != self._trial or len(block.took) < _BLOCK - 1:
            return False
        worst = max(_HOPELESS, 4 * sqrt(self._errors.value))
        return log(block.size / min(block.took)) < self._rates[-1] - worst

    def _judge(self, block: Block) -> None:
        if self._latency is not None and block.latency > self._latency:
            if self._trial and block.size > self._base:
                self._credit -= len(block.took)
                self._decide(more=False)
            else:
                share = max(0.5, 0.9 * self._latency / block.latency)
                self._cut(int(block.size * share), "too late")
            return
        self._rates.append(block.rate)
        if self._trial:
            self._compare()
        else:
            self._hold(block.rate)

    def _hold(self, rate: float) -> None:
        rates = self._rates = self._rates[-3:]
        if len(rates) == 3:
            self._errors.add((rates[1] - (rates[0] + rates[2]) / 2) ** 2)
        if self._level is None:
            self._level = rate
        moved = rate - self._level
        if abs(moved) > max(_CHANGED, 4 * sqrt(self._moves.value)):
            self._strikes += 1
        else:
            self._strikes = 0
        if self._strikes >= 2:
            # The best size has moved about as far as the rate.
            self._start_over(min(_DOUBLE, exp(abs(moved))), rate)
        elif not self._strikes:
            self._moves.add(moved**2)
            self._level += 0.1 * moved
        self._reserve = min(_CREDIT, self._reserve + _RENEWED * _BLOCK)
        self._credit = min(_CREDIT, self._credit + _SHARE * _BLOCK)
        self._go_on()

    def _start_over(self, step: float, rate: float) -> None:
        self._moves.add((rate - (self._level or 0.0)) ** 2)
        self._strikes = self._failed = 0
        self._level = rate
        self._step, self._up = step, True
        self._credit = max(self._credit, 0.0) + self._reserve
        self._reserve = 0.0
        self.reason = "the cost has changed"

    def _go_on(self) -> None:
        if self._strikes or self._credit <= 0 or not self._try():
            self._measure(self._base)

    def _try(self) -> bool:
        """Begin to measure another size, if there is one in this direction or the other."""
        for _ in range(2):
            size = self._base
            if self._up:
                other = min(self._top(), max(size + 1, round(size * self._step)))
            else:
                other = max(1, min(size - 1, round(size / self._step)))
            if other != size:
                self._trial = other
                self._rates = self._rates[-1:]
                self._measure(other)
                return True
            self._failed_here()
        return False

    def _top(self) -> int:
        if not self._penance:
            return self.ceiling
        self._penance -= 1
        return max(self._base, self._dropped - 1)

    def _failed_here(self) -> None:
        self._up = not self._up
        self._failed += 1
        if self._failed >= 2:
            self._failed = 0
            self._up = True
            if self._step > _FINEST:
                self._step = max(_FINEST, sqrt(self._step))
            else:
                # From far away again: chance may have misled it.
                self._step = _DOUBLE

    def _compare(self) -> None:
        """Decide, or go on with the other size."""
        gains = self._gains()
        pairs = len(gains)
        step = log(self._trial / self._base)
        elasticity = sum(gains) / pairs / step
        error = sqrt(max(_NOISE**2, self._errors.value) / pairs) / abs(step)
        # Where doubling gains much, certainty costs more than a mistake.
        doubling = self._up and self._step == _DOUBLE and elasticity > 0.5
        left = error * (1 - pairs / _MOST)
        sure = doubling or not -_WORSE * left < elasticity - _TARGET < _SURE * left
        if not sure:
            self._measure(self._trial if self.size == self._base else self._base)
            return
        # If in doubt, more: a little too much costs little.
        self._decide(elasticity + _DOUBT * error > _TARGET)

    def _gains(self) -> list[float]:
        """How far ln rate of each block of the trial was above that of the base around it."""
        rates = self._rates
        if len(rates) % 2 == 0:
            rates = [*rates, rates[-2]]
        around = zip(rates[::2], rates[1::2], rates[2::2], strict=False)
        return [trial - (before + after) / 2 for before, trial, after in around]

    def _decide(self, more: bool) -> None:
        trial, gains = self._trial, self._gains()
        self._trial = 0
        mean = sum(gains) / max(1, len(gains))
        if len(gains) > 1:
            self._errors.add(sum((gain - mean) ** 2 for gain in gains), len(gains) - 1)
        if more != self._up:
            lost = trial / self._base * (exp(min(20.0, -mean)) - 1)
            self._credit -= _BLOCK * len(gains) * lost
            self._failed_here()
            self._rates = []
            self._measure(self._base)
            return
        # If the trial was measured last, it is the base from now on.
        known = self._rates[-1:] if self.size == trial else []
        self._settle_at(trial, "more pays" if more else "less does as well")
        if trial >= self._dropped:
            self._dropped, self._penances = self.ceiling + 1, 1
        # The size it came from is known to be worse.
        self._failed = 1
        if known:
            self._rates = known
            self._go_on()
        else:
            self._measure(trial)
