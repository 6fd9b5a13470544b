from __future__ import annotations

from streams.limits.usual import Usual
from streams.limits.window import Spread, Window


def window(goodput: float, error: float = 0.05) -> Window:
    return Window(8, goodput, error, 0.0, error)


def usual(*goodputs: float) -> Usual:
    made = Usual(Spread())
    for goodput in goodputs:
        made.add(window(goodput))
    return made


def test_where_nothing_is_known_nothing_is_odd() -> None:
    assert not usual().odd(window(9.0), 0.0)


def test_two_windows_in_a_row_that_are_far_off_are_a_change() -> None:
    known = usual(1.0, 1.0, 1.0)
    assert known.odd(window(2.0), 0.0)
    assert not known.changed
    assert known.odd(window(2.0), 0.0)
    assert known.changed


def test_one_window_that_is_far_off_is_none() -> None:
    known = usual(1.0, 1.0, 1.0)
    assert known.odd(window(2.0), 0.0)
    assert not known.odd(window(1.0), 0.0)
    assert known.odd(window(2.0), 0.0)
    assert not known.changed


def test_what_the_limit_explains_is_not_odd() -> None:
    assert usual(1.0, 1.0).odd(window(1.5), 0.0)
    assert not usual(1.0, 1.0).odd(window(1.5), 0.25)


def test_where_goodput_goes_up_and_down_by_itself_more_is_usual() -> None:
    spread = Spread()
    known = Usual(spread)
    for goodput in (1.0, 1.6, 0.9, 1.7, 1.0, 1.6):
        known.add(window(goodput))
    calm = window(1.95)
    assert not known.odd(calm._replace(wobble=spread.wobble), 0.0)
    assert known.odd(calm, 0.0)


def test_two_windows_a_little_off_the_same_way_are_a_drift() -> None:
    known = usual(1.0, 1.0, 1.0)
    assert [known.drifts(window(goodput)) for goodput in (1.2, 1.2)] == [0, 1]
    assert [known.drifts(window(goodput)) for goodput in (1.2, 0.8)] == [1, 0]
    assert [known.drifts(window(goodput)) for goodput in (0.8, 1.0, 0.8)] == [-1, 0, 0]


def test_what_was_usual_can_be_forgotten() -> None:
    known = usual(1.0, 1.0)
    known.odd(window(2.0), 0.0)
    known.clear()
    assert known.goodput is None
    assert not known.odd(window(2.0), 0.0)
