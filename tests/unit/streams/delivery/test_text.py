from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.streams.delivery.text import About, Unusable, body_in, text_of, text_size

# A name of a file may have bytes that are no text.
parts = st.one_of(st.integers(0, 1 << 63), st.text(st.characters(codec=None), max_size=12))
abouts: st.SearchStrategy[About] = st.lists(parts, min_size=1, max_size=4).map(tuple)
bodies = st.text(max_size=60)

HERE: About = ("orders", 0, 10)


def reason(text: str, about: About = HERE) -> str:
    """The name of the reason for which a text is not used."""
    read = body_in(text, about)
    assert isinstance(read, Unusable), read
    return read.name


@given(abouts, bodies)
def test_a_text_is_read_by_who_asks_for_what_it_was_written_for(about: About, body: str) -> None:
    text = text_of(about, body)
    assert body_in(text, about) == body
    assert len(text) == text_size(about) + len(body)


@given(abouts, abouts, bodies)
def test_a_text_is_not_read_for_anything_else(about: About, other: About, body: str) -> None:
    assume([str(part) for part in about] != [str(part) for part in other])
    assert reason(text_of(about, body), other) == "moved"


@given(abouts, bodies, st.data())
def test_a_text_with_another_character_is_not_read(
    about: About, body: str, data: st.DataObject
) -> None:
    text = text_of(about, body)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters().filter(lambda one: one != text[at]))
    assert isinstance(body_in(text[:at] + other + text[at + 1 :], about), Unusable)


@given(abouts, st.text("abc:/%0!~", max_size=60), st.data())
def test_a_text_with_one_bit_changed_is_not_read(
    about: About, body: str, data: st.DataObject
) -> None:
    text = text_of(about, body).encode()
    at = data.draw(st.integers(0, 8 * len(text) - 1))
    changed = bytearray(text)
    changed[at // 8] ^= 1 << at % 8
    assert isinstance(body_in(changed.decode("utf-8", "replace"), about), Unusable)


@given(abouts, bodies, st.data())
def test_a_text_that_is_cut_or_grows_or_has_two_parts_swapped_is_not_read(
    about: About, body: str, data: st.DataObject
) -> None:
    text = text_of(about, body)
    at = data.draw(st.integers(0, len(text) - 1))
    assert isinstance(body_in(text[:at], about), Unusable)
    more = data.draw(st.characters())
    assert isinstance(body_in(text + more, about), Unusable)
    if at + 1 < len(text) and text[at] != text[at + 1]:
        swapped = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
        assert isinstance(body_in(swapped, about), Unusable)


@given(st.text(st.characters(codec=None)), abouts)
def test_no_text_at_all_raises(text: str, about: About) -> None:
    assert isinstance(body_in(text, about), Unusable)
    assert isinstance(body_in(f"penstock2:{text}", about), Unusable)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "foreign"),
        ("of another program", "foreign"),
        ('{"floor": 3}', "foreign"),
        ("penstock1r:AQE=", "version"),
        ("penstock3:0123", "version"),
        ("penstock2:", "damaged"),
        (text_of(HERE, "a")[:-1], "damaged"),
        (text_of(HERE, "a").upper().replace("PENSTOCK", "penstock"), "damaged"),
        (text_of(("orders", 0, 9), "a"), "moved"),
        (text_of(("orders", 1, 10), "a"), "moved"),
        (text_of(("returns", 0, 10), "a"), "moved"),
        (text_of(("orders", 0, 1), "0:a"), "moved"),
        (text_of(("orders/0", 10), "a"), "moved"),
    ],
)
def test_the_reason_has_a_name(text: str, name: str) -> None:
    assert reason(text) == name


def test_the_reason_says_what_a_moved_text_was_written_for() -> None:
    read = body_in(text_of(("orders", 0, 9), "a"), HERE)
    assert str(read) == "it was written for orders/0/9, not for orders/0/10"


def test_the_format_stays() -> None:
    """What was written by an earlier release is read: another format needs another version."""
    assert text_of(HERE, "AQE=") == "penstock2:16a8e5a4:orders/0/10:AQE="
