"""JSON is decoded in one place: the same values, byte-order marks and depth everywhere."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest

from penstock.streams.base.errors import EventOmitted
from penstock.streams.failures.policy import DeadLetter
from penstock.streams.io.body import NotAValue, json_object, json_value
from penstock.streams.io.encoding import encoded
from penstock.streams.io.letter import Letter, whole
from penstock.streams.io.letter_line import letter_line

MARK = b"\xef\xbb\xbf"


def nested(depth: int) -> bytes:
    """Objects and lists, in turn, of this depth."""
    half, odd = divmod(depth, 2)
    return b'{"n":[' * half + b"[" * odd + b"1" + b"]" * odd + b"]}" * half


def test_a_byte_order_mark_before_a_value_is_ignored() -> None:
    assert json_value(MARK + b'{"n":1}') == json_object(MARK + b' {"n":1}') == {"n": 1}
    assert json_value('\ufeff"\ufeff"') == "\ufeff"


@pytest.mark.parametrize("data", [MARK, MARK * 2 + b"1", b"1" + MARK, MARK + b"{", "\ufeff"])
def test_a_byte_order_mark_elsewhere_is_not_json(data: Any) -> None:
    with pytest.raises(NotAValue, match="not valid JSON"):
        json_value(data)


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("name", ["NaN", "-NaN", "Infinity", "-Infinity", "nan", "inf", "+inf"])
@pytest.mark.parametrize("around", ["{}", '{{"é":{}}}', '{{"a":[1, {},2]}}', "\ufeff[ {}]"])
def test_a_number_that_json_has_not_is_named(around: str, name: str, as_text: bool) -> None:
    text = around.format(name)
    with pytest.raises(NotAValue, match=rf"it has {re.escape(name)}, and JSON has no such number"):
        json_value(text if as_text else text.encode())


@pytest.mark.parametrize("text", ['{"a":Nancy}', '{"a":infinite}', '["NaN",]', "[-x]", "NaNa", ""])
def test_what_only_looks_like_such_a_number_is_not_named(text: str) -> None:
    with pytest.raises(NotAValue) as caught:
        json_value(text)
    assert "no such number" not in str(caught.value)


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("depth", [1, 253, 254])
def test_what_is_read_can_be_written(depth: int, as_text: bool) -> None:
    data = nested(depth)
    assert encoded(json_value(data.decode() if as_text else data)) == data


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("depth", [255, 256, 1000, 1024, 1025, 100_000])
def test_what_is_nested_deeper_than_can_be_written_is_not_a_value(
    depth: int, as_text: bool
) -> None:
    data = nested(depth)
    with pytest.raises(NotAValue, match=r"254 levels|depth limit"):
        json_value(data.decode() if as_text else data)


def test_a_long_value_with_many_lists_is_not_deep() -> None:
    data = b"[" + b"[{}]," * 5_000 + b"1]"
    assert len(json_value(data)) == 5_001


@pytest.mark.parametrize("depth", [252, 253, 254])
def test_a_letter_keeps_an_event_that_is_as_deep_as_it_can_be(depth: int) -> None:
    data = nested(depth)
    about = DeadLetter(orjson.loads(data), ValueError("no"), "stage", 1, 0.0, 0.0, 7)
    line = orjson.loads(letter_line(lambda: 0.0)(about))
    kept = line["value"]
    assert (kept.encode() if isinstance(kept, str) else encoded(kept)) == data
    assert line["token"] == 7
    try:
        assert Letter.of(1, whole(about)).event() == data
    except EventOmitted:
        pytest.fail("the event is not in its letter")


def test_the_shortest_value_that_is_nested_too_deep_is_not_a_value() -> None:
    json_value(b"[" * 254 + b"]" * 254)
    with pytest.raises(NotAValue, match="deep"):
        json_value(b"[" * 255 + b"]" * 255)
