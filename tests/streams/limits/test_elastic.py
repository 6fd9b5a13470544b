from __future__ import annotations

from math import log

from streams.limits.elastic import Elastic
from streams.limits.window import Window


def window(limit: int, goodput: float) -> Window:
    return Window(limit, log(goodput), 0.02, log(limit / goodput), 0.02, dropped=False)


def ramp() -> Elastic:
    limiter = Elastic(4, 64)
    limiter.mode = "ramp"
    limiter.decide(window(4, 10.0))
    assert limiter.limit == 8
    return limiter


def test_a_doubling_is_judged_even_if_the_limit_was_out_of_use_meanwhile() -> None:
    limiter = ramp()
    limiter.unused(0.1)
    limiter.decide(window(8, 10.0))
    assert (limiter.limit, limiter.mode) == (4, "hold")


def test_a_doubling_that_doubles_goodput_is_followed_by_another() -> None:
    limiter = ramp()
    limiter.unused(0.1)
    limiter.decide(window(8, 20.0))
    assert (limiter.limit, limiter.mode) == (16, "ramp")
