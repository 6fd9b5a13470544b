from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.streams.pictures.automaton import to_svg
from penstock.streams.pictures.sheet import sheet
from penstock.streams.pictures.steps import as_svg as steps_svg
from penstock.streams.pictures.svg import in_xml
from penstock.streams.pictures.workflow import as_svg as workflow_svg
from penstock.streams.pictures.workflow import picture_of
from penstock.streams.temporal import translate
from penstock.streams.temporal.formula.formula import Proposition
from penstock.streams.temporal.workflow.workflow import Node, Workflow

CONTROL = "a\x01\x1b\ufffe\ud800"


@example("".join(map(chr, range(0x300))) + "\ud800\uffff")
@given(st.text(st.characters()))
def test_any_text_may_stand_in_a_document(text: str) -> None:
    ElementTree.fromstring(f'<svg label="{in_xml(text)}">{in_xml(text)}</svg>')


def test_what_a_document_may_have_is_shown_as_it_is() -> None:
    text = "a<b>\n\t\N{GREEK SMALL LETTER ALPHA} & 'c'"
    found = ElementTree.fromstring(f"<text>{in_xml(text)}</text>")
    assert found.text == text


def test_pictures_of_names_with_control_characters_can_be_read() -> None:
    automaton = translate(Proposition(CONTROL))
    workflow = Workflow([Node(CONTROL, ("end",)), Node("end")])
    for picture in (
        to_svg(automaton),
        workflow_svg(picture_of(workflow, None)),
        steps_svg((CONTROL, {CONTROL: [(0, 1, 2)]})),
        sheet(CONTROL),
    ):
        assert "\\x01\\x1b\\ufffe\\ud800" in "".join(ElementTree.fromstring(picture).itertext()) + (
            ElementTree.fromstring(picture).get("aria-label") or ""
        )
