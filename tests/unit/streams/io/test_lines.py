from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.io.lines import Line, LineSplitter, TooLong

ALPHABET = st.sampled_from([b"\n", b"\r\n", b"a", b"bc", b"\x00", b"\xff", b"d" * 20])
TEXTS = st.lists(ALPHABET, max_size=30).map(b"".join)


def split(text: bytes, cuts: list[int], longest: int) -> list[Line]:
    splitter = LineSplitter(longest)
    lines: list[Line] = []
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for start, end in pairwise(edges):
        lines += splitter.feed(text[start:end])
    return lines + splitter.end()


def shown(lines: list[Line]) -> list[bytes | None]:
    return [None if isinstance(line, TooLong) else bytes(line) for line in lines]


@given(TEXTS, st.lists(st.integers(0, 300)))
def test_however_the_bytes_are_cut_the_lines_are_those_of_the_whole(
    text: bytes, cuts: list[int]
) -> None:
    expected = text.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert shown(split(text, cuts, 10_000)) == expected


@given(TEXTS, st.lists(st.integers(0, 300)), st.integers(1, 25))
def test_however_the_bytes_are_cut_exactly_the_lines_above_the_bound_are_too_long(
    text: bytes, cuts: list[int], longest: int
) -> None:
    expected = [line if len(line) <= longest else None for line in text.split(b"\n")]
    if expected[-1] == b"":
        expected.pop()
    assert shown(split(text, cuts, longest)) == expected


def test_a_line_that_is_too_long_shows_its_first_bytes() -> None:
    (line,) = split(b"abc" * 1000, [7, 500, 2000], 600)
    assert isinstance(line, TooLong)
    assert line.head == (b"abc" * 1000)[:256]


def test_a_line_is_reported_as_too_long_before_its_end_is_there() -> None:
    splitter = LineSplitter(10)
    assert shown(splitter.feed(b"x" * 11)) == [None]
    assert splitter.feed(b"x" * 1000) == []
    assert shown(splitter.feed(b"x\nshort\n")) == [b"short"]
    assert splitter.end() == []
