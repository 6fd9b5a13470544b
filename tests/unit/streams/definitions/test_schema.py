from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from penstock import Pipeline
from penstock.command.dispatch import run_command
from penstock.streams.base.errors import BuildError
from penstock.streams.definitions.catalog import catalog
from penstock.streams.definitions.schema import schema
from tests.helpers.random_definitions import pipelines
from tests.helpers.walks import some_of
from tests.unit.streams.definitions.test_files import ORDERS

PUBLISHED = Path(__file__).parents[4] / "docs" / "reference" / "definition.schema.json"
VALIDATOR: Any = Draft202012Validator(schema())


def faults(data: Any) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(data)]


def test_the_published_schema_is_the_one_that_this_version_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["schema"]) == 0
    assert PUBLISHED.read_text(encoding="utf-8") == capsys.readouterr().out, (
        "write it again: make schema"
    )


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(schema())


def test_the_schema_has_every_function_with_all_its_options() -> None:
    known = schema()["$defs"]
    for name, function in catalog().items():
        assert f"use {name}" in known, function
    assert list(known["use chunk"]["properties"]) == ["use", "size", "wait"]


@settings(
    max_examples=some_of(200),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(st.data())
def test_the_schema_accepts_what_is_written(data: st.DataObject) -> None:
    try:
        pipeline = data.draw(pipelines())
    except BuildError:
        reject()
    assert faults(tomllib.loads(pipeline.as_text("toml"))) == []
    assert faults(json.loads(pipeline.as_text("json"))) == []
    assert faults(pipeline.definition()) == []


def test_the_schema_accepts_a_file_that_is_written_by_hand() -> None:
    assert faults(tomllib.loads(ORDERS)) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("limit = 8", "limt = 8"),
        ("limit = 8", 'limit = "eight"'),
        ("limit = 8", 'limit = { use = "chunk", size = 1 }'),
        ("limit = 8", "ordered = 1"),
        ('"filter"', '"fliter"'),
        ('use = "filter"', 'us = "filter"'),
        ('use = "filter"', 'use = "write_jsonl"'),
        ("times = 3", "tmes = 3"),
        ("times = 3, ", ""),
        ('use = "retry"', 'use = "route"'),
        ('on_error = { use = "retry"', 'on_error = "ignore"\nkey2 = { use = "retry"'),
        ("[[sinks]]", "[[sink]]"),
        ("[[sinks]]", "[sinks]"),
        ('"write_jsonl"', '"read_jsonl"'),
        ('"read_jsonl"', '"write_jsonl"'),
        ('key = "client"', "key = 1.5"),
        ("# The orders.", "penstock = 2"),
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(right: str, wrong: str, tmp_path: Path) -> None:
    text = ORDERS.replace(right, wrong)
    assert faults(tomllib.loads(text))
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(BuildError):
        Pipeline.from_file(path)
