from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from penstock import collect, for_each, from_iterable, group_by, spread
from penstock.command.pipelines.draw import draw

SVG = "{http://www.w3.org/2000/svg}"


def boxes(picture: str) -> list[ElementTree.Element]:
    """The boxes of the stages, from top to bottom, which are all within the picture."""
    root = ElementTree.fromstring(picture)
    found = [one for one in root.iter(f"{SVG}rect") if one.get("class") in ("stage", "ends")]
    bottom = max(float(box.get("y", 0)) + float(box.get("height", 0)) for box in found)
    assert 0 < bottom < float(root.get("height", 0)) < bottom + 80
    return found


def names(picture: str) -> list[str | None]:
    root = ElementTree.fromstring(picture)
    return [one.text for one in root.iter(f"{SVG}text") if one.get("class") == "name"]


def test_a_notebook_shows_a_pipeline_as_the_picture_that_draw_writes(tmp_path: Path) -> None:
    pipeline = from_iterable([1]).pipe(group_by(str), spread()).to(collect([]), for_each(print))
    draw(pipeline, "svg", str(tmp_path / "drawn.svg"))
    assert pipeline._repr_svg_() == (tmp_path / "drawn.svg").read_text(encoding="utf-8")


def test_a_notebook_shows_a_stream_as_its_stages_without_sinks() -> None:
    stream = from_iterable([1]).pipe(group_by(str), spread())
    picture = stream._repr_svg_()
    assert names(picture) == ["from_iterable", "group_by", "spread"]
    assert [box.get("class") for box in boxes(picture)] == ["ends", "stage", "stage"]
    assert "Holds at most 4,096 events in memory and 100,000 on disk at once." in picture


def test_the_picture_of_a_source_alone_is_one_box() -> None:
    assert len(boxes(from_iterable([1])._repr_svg_())) == 1
