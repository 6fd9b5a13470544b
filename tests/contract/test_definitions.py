"""Random pipelines of named functions are the same after they were written to a file and read."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from penstock import Pipeline
from penstock.streams.base.errors import BuildError
from penstock.streams.definitions.difference import differences
from penstock.streams.definitions.yaml_files import loaded
from tests.helpers.random_definitions import pipelines
from tests.helpers.walks import some_of


def read(text: str, form: str) -> Any:
    if form == "toml":
        return tomllib.loads(text)
    return json.loads(text) if form == "json" else loaded(text, "a text")


@settings(
    max_examples=some_of(300),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(st.data())
def test_a_pipeline_of_named_functions_is_the_same_after_a_file(data: st.DataObject) -> None:
    try:
        pipeline = data.draw(pipelines())
    except BuildError:
        # Parts that do not go together.
        reject()
    definition = pipeline.definition()
    assert json.loads(json.dumps(definition)) == definition
    for form in ("toml", "yaml", "json"):
        text = pipeline.as_text(form)  # type: ignore[arg-type]
        again = Pipeline.from_definition(read(text, form))
        assert again.definition() == definition
        assert again == pipeline
        assert hash(again) == hash(pipeline)
        assert again.as_text(form) == text  # type: ignore[arg-type]
    assert Pipeline.from_definition(definition) == pipeline


@settings(
    max_examples=some_of(100),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(st.data())
def test_two_pipelines_have_differences_unless_they_are_equal(data: st.DataObject) -> None:
    try:
        old, new = data.draw(pipelines()), data.draw(pipelines())
    except BuildError:
        reject()
    before, after = old.definition(), new.definition()
    assert differences(before, before) == []
    del before["stages"], after["stages"]
    assert bool(differences(before, after)) == (old != new)
    assert bool(differences(after, before)) == (old != new)


def test_a_file_is_the_same_after_it_was_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "orders.toml"
    path.write_text(
        '[source]\nuse = "read_jsonl"\n\n[[sinks]]\nuse = "write_jsonl"\n', encoding="utf-8"
    )
    Pipeline.from_file(path).to_file(path)
    written = path.read_text(encoding="utf-8")
    Pipeline.from_file(path).to_file(path)
    assert path.read_text(encoding="utf-8") == written
