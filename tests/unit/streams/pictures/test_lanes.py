"""Where stages stand in a picture: laws about random graphs of streams."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

from hypothesis import example, given
from hypothesis import strategies as st

from penstock import Flowable, collect, from_iterable, group_by, ops, spread
from penstock.streams.pictures.lanes import Layout, layout
from penstock.streams.pictures.pipeline import as_svg
from penstock.streams.protocol.numbering import with_above
from penstock.streams.protocol.stage_info import StageInfo
from tests.helpers.walks import examples

SVG = "{http://www.w3.org/2000/svg}"

Stream = Flowable[Any]


def mapped(stream: Stream, times: int) -> Stream:
    for _ in range(times):
        stream = stream.pipe(ops.map(str))
    return stream


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """A stream that reads others, some of which are shared, and are read more than once."""
    made: list[Stream] = []
    shared: list[Stream] = []
    for _ in range(draw(st.integers(1, 9))):
        what = draw(st.sampled_from(["new", "join", "join", "share", "read", "groups"]))
        stream = draw(st.sampled_from(made)) if made else from_iterable([1])
        if what == "new":
            stream = from_iterable([1])
        elif what == "join" and made:
            others = draw(st.lists(st.sampled_from([*made, *shared]), min_size=1, max_size=3))
            stream = stream.pipe(draw(st.sampled_from([ops.merge, ops.zip]))(*others))
        elif what == "share":
            shared.append(stream := stream.pipe(ops.share()))
        elif what == "read" and shared:
            stream = draw(st.sampled_from(shared))
        elif what == "groups":
            stream = stream.pipe(group_by(str), spread(feeders=3), ops.adaptive_flat_map(str))
        made.append(mapped(stream, draw(st.integers(0, 3))))
    return made[-1]


def read_again_below_another() -> Stream:
    """A stream that is read beside its start and again far below, with another one between."""
    shared = from_iterable([1]).pipe(ops.share())
    stream = mapped(shared, 3).pipe(ops.merge(mapped(from_iterable([1]), 1)), ops.map(str))
    return stream.pipe(ops.merge(mapped(shared, 1), shared))


def read_again_beside_another() -> Stream:
    """A stream that is read again where another one is read that begins beside what is between."""
    shared = from_iterable([1]).pipe(ops.share())
    return shared.pipe(ops.map(str), ops.merge(from_iterable([1]), shared))


def column_of(stream: Stream) -> list[StageInfo]:
    return [one.info for one in stream.chain()]


def between(laid: Layout) -> list[tuple[int, int]]:
    """The places, by row and lane, through which arrows go that begin or end in another row."""
    found: list[tuple[int, int]] = []
    for arrow in laid.arrows:
        rows = range(laid.places[arrow.above].row + 1, laid.places[arrow.below].row)
        found += [(row, arrow.lane) for row in rows]
    return found


@examples(150)
@given(stream=streams())
@example(stream=read_again_below_another())
@example(stream=read_again_beside_another())
def test_nothing_stands_or_lies_on_anything_else(stream: Stream) -> None:
    laid = layout(column_of(stream))
    taken = [(place.row, place.lane) for place in laid.places.values()] + between(laid)
    assert len(taken) == len(set(taken))
    assert all(row < len(laid.tracks) and lane < laid.lanes for row, lane in taken)


@examples(150)
@given(stream=streams())
@example(stream=read_again_below_another())
@example(stream=read_again_beside_another())
def test_there_is_an_arrow_down_from_each_stage_to_each_that_reads_it(stream: Stream) -> None:
    column = column_of(stream)
    laid = layout(column)
    read = [(one, stage.number) for stage, above in with_above(column) for one in above]
    assert sorted((arrow.above, arrow.below) for arrow in laid.arrows) == sorted(read)
    for arrow in laid.arrows:
        assert laid.places[arrow.above].row < laid.places[arrow.below].row
    assert [laid.places[stage.number].lane for stage in column] == [0] * len(column)


def boxes_of(root: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    found = [one for one in root.iter(f"{SVG}rect") if one.get("class") in ("stage", "ends")]
    sides = [[float(box.get(name, 0)) for name in ("x", "y", "width", "height")] for box in found]
    return [(x, y, x + width, y + height) for x, y, width, height in sides]


def corners(path: str) -> list[tuple[float, float]]:
    """The points of an arrow that goes straight down and to the side."""
    points: list[tuple[float, float]] = []
    for kind, said in re.findall(r"([MLQV])([^MLQV]+)", path):
        numbers = [float(one) for one in said.split()]
        if kind == "V":
            numbers = [points[-1][0], numbers[0]]
        points += zip(numbers[::2], numbers[1::2], strict=True)
    return points


@examples(150)
@given(stream=streams())
@example(stream=read_again_below_another())
@example(stream=read_again_beside_another())
def test_an_arrow_goes_from_box_to_box_through_no_other_and_lies_on_no_other_arrow(
    stream: Stream,
) -> None:
    root = ElementTree.fromstring(as_svg(column_of(stream), [], "a stream"))
    boxes = boxes_of(root)
    sheet = float(root.get("width", 0)), float(root.get("height", 0))
    assert all(0 < x < end < sheet[0] and 0 < y < low < sheet[1] for x, y, end, low in boxes)
    level: dict[float, list[tuple[float, float]]] = {}
    for one in root.iter(f"{SVG}path"):
        if one.get("class") != "pipe":
            continue
        points = corners(one.get("d", ""))
        (x, y), (to_x, to_y) = points[0], points[-1]
        assert any(left < x < right and y == low for left, _, right, low in boxes)
        assert any(left < to_x < right and to_y == top - 8 for left, top, right, _ in boxes)
        for (x, y), (to_x, to_y) in pairwise(points):
            for left, top, right, low in boxes:
                outside = max(x, to_x) <= left or min(x, to_x) >= right
                assert outside or max(y, to_y) <= top or min(y, to_y) >= low
        for y in {y for _, y in points}:
            across = [x for x, at in points if at == y]
            if min(across) < max(across):
                assert 0 < min(across) < max(across) < sheet[0]
                level.setdefault(y, []).append((min(across), max(across)))
    for sides in level.values():
        sides.sort()
        assert all(one[1] < other[0] for one, other in pairwise(sides)), sides


def test_a_stream_stands_beside_what_reads_it_and_two_may_stand_below_each_other() -> None:
    stream = mapped(from_iterable([1]), 3)
    for _ in range(2):
        stream = mapped(stream.pipe(ops.merge(from_iterable([1]).pipe(ops.map(str)))), 3)
    laid = layout(column_of(stream))
    assert [(p.row, p.lane) for p in laid.places.values() if p.lane] == [
        (2, 1),
        (3, 1),
        (6, 1),
        (7, 1),
    ]
    assert laid.lanes == 2


def test_a_picture_has_what_went_over_each_arrow_of_a_stage_that_several_read() -> None:
    shared = from_iterable([1]).pipe(ops.share())
    column = column_of(shared.pipe(ops.map(str), ops.zip(shared)))
    sent = {(1, 2): "one", (2, 3): "two", (2, 4): "three", (3, 4): "four"}
    root = ElementTree.fromstring(as_svg(column, [], "a stream", sent))
    flows = [one for one in root.iter(f"{SVG}text") if one.get("class") == "flow"]
    assert sorted(filter(None, (one.text for one in flows))) == sorted(sent.values())
    boxes = boxes_of(root)
    for one in flows:
        x, y = float(one.get("x", 0)), float(one.get("y", 0))
        assert not any(left < x < right and top < y - 4 < low for left, top, right, low in boxes)


def test_the_picture_of_a_pipeline_draws_each_stage_of_its_branches_as_a_box() -> None:
    other = from_iterable([1]).pipe(ops.map(str), ops.merge(from_iterable([1])))
    pipeline = from_iterable([1]).pipe(ops.zip(other)).to(collect([]), collect([]))
    root = ElementTree.fromstring(pipeline._repr_svg_())
    names = [one.text for one in root.iter(f"{SVG}text") if one.get("class") == "name"]
    expected = ["from_iterable"] * 3 + ["map", "merge", "zip", "collect", "collect"]
    assert sorted(filter(None, names)) == sorted(expected)


def test_an_arrow_past_other_stages_goes_down_in_a_lane_of_its_own() -> None:
    shared = from_iterable([1]).pipe(ops.share())
    column = column_of(mapped(shared, 2).pipe(ops.zip(mapped(shared, 1), shared)))
    laid = layout(column)
    far = [arrow for arrow in laid.arrows if len(arrow.bends) == 2]
    assert [(arrow.above, arrow.below, arrow.lane) for arrow in far] == [(2, 6, 2)]
    root = ElementTree.fromstring(as_svg(column, [], "a stream"))
    paths = [one.get("d", "") for one in root.iter(f"{SVG}path") if one.get("class") == "pipe"]
    farthest = max(x for path in map(corners, paths) for x, _ in path)
    assert farthest > max(right for _, _, right, _ in boxes_of(root))
