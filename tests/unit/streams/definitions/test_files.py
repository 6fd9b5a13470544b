from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Pipeline,
    collect,
    for_each,
    from_iterable,
    ops,
    read_jsonl,
    read_table,
    write_jsonl,
)
from penstock.streams.base.errors import BadDefinition, BuildError, CannotOpen, NotNamed
from tests.unit.streams.definitions import named
from tests.unit.streams.definitions.named import client

HERE = "tests.unit.streams.definitions.named"
ORDERS = f"""
# The orders.
[source]
use = "read_jsonl"
path = "orders.jsonl"

[[operators]]
use = "filter"
predicate = "{HERE}:is_large"

[[operators]]
use = "adaptive_flat_map"
handler = "{HERE}:project"
key = "client"
limit = 8
on_error = {{ use = "retry", times = 3, on = ["builtins:OSError"] }}

[[sinks]]
use = "write_jsonl"
"""


def written(tmp_path: Path, text: str, name: str = "orders.toml") -> str:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def message(tmp_path: Path, text: str, name: str = "orders.toml") -> str:
    """What is said about a wrong file, without the path."""
    path = written(tmp_path, text, name)
    with pytest.raises(BadDefinition) as caught:
        Pipeline.from_file(path)
    told = str(caught.value)
    assert told.startswith(path)
    return told.removeprefix(path)


def test_a_file_of_toml_is_a_pipeline(tmp_path: Path) -> None:
    from penstock import adaptive_flat_map, retry

    pipeline = (
        read_jsonl("orders.jsonl")
        .pipe(
            ops.filter(named.is_large),
            adaptive_flat_map(named.project, 8, "client", on_error=retry(3, on=(OSError,))),
        )
        .to(write_jsonl())
    )
    assert Pipeline.from_file(written(tmp_path, ORDERS)) == pipeline


@pytest.mark.parametrize("name", ["orders.toml", "orders.yaml", "orders.yml", "orders.json"])
def test_a_pipeline_is_written_to_a_file_and_read(tmp_path: Path, name: str) -> None:
    pipeline = Pipeline.from_file(written(tmp_path, ORDERS, "first.toml"))
    pipeline.to_file(tmp_path / name)
    assert Pipeline.from_file(tmp_path / name) == pipeline


def test_none_is_written_where_the_form_has_no_null(tmp_path: Path) -> None:
    from penstock import latency_histogram

    pipeline = from_iterable([None]).to(latency_histogram(None))
    pipeline.to_file(tmp_path / "a.toml")
    assert Pipeline.from_file(tmp_path / "a.toml") == pipeline


def test_a_stream_and_a_store_are_shared_by_name(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        f"""
source = {{ shared = "orders" }}

[shared.states]
use = "Store"
path = "states.db"

[shared.orders]
source = {{ use = "read_jsonl" }}
operators = [{{ use = "share" }}]

[[operators]]
use = "merge"
sources = [{{ shared = "orders" }}]

[[operators]]
use = "distinct_within"
seconds = 10
by = "id"
store = {{ shared = "states" }}
name = "one"

[[operators]]
use = "stateful"
step = "{HERE}:count"
by = "id"
store = {{ shared = "states" }}

[[sinks]]
use = "write_jsonl"
""",
    )
    definition = Pipeline.from_file(path).definition()
    assert [one["name"] for one in definition["stages"]].count("read_jsonl") == 1
    assert definition["operators"][1]["store"] == {"shared": "store"}
    assert definition["operators"][2]["store"] == {"shared": "store"}


def test_variables_of_the_environment_stand_for_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS", "/var/orders")
    path = written(tmp_path, ORDERS.replace('"orders.jsonl"', '"${ORDERS}/$$a-${NONE:-b}.jsonl"'))
    pipeline = Pipeline.from_file(path)
    assert pipeline.describe()[0].detail == "/var/orders/$a-b.jsonl"
    assert pipeline.definition()["source"]["path"] == "${ORDERS}/$$a-${NONE:-b}.jsonl"
    pipeline.to_file(path)
    assert Pipeline.from_file(path) == pipeline


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("limit = 8", "limt = 8", ":15: operator 2, limt: adaptive_flat_map has no option 'limt' (did you mean 'limit'?). It takes handler, limit, key, ordered, timeout, on_error, overload, window, on_limit_change"),  # noqa: E501
        ("limit = 8", "limit = 0", ":15: operator 2, limit: limit=0: the limit of Fixed must be at least 1, got 0"),  # noqa: E501
        ("limit = 8", "limit = ", ": this is not TOML: Invalid value (at line 15, column 9)"),
        ('"filter"', '"fliter"', ":8: operator 1, use: there is no 'fliter' (did you mean 'filter'?); a function of your own is module:name"),  # noqa: E501
        ('use = "filter"', 'us = "filter"', ":7: operator 1: there is no `use`, which says by its name what this is, as in use = 'map'"),  # noqa: E501
        (":is_large", ":is_larg", f":9: operator 1, predicate: {HERE}:is_larg cannot be imported: the module '{HERE}' has no 'is_larg'. Did you mean '{HERE}:is_large'?"),  # noqa: E501
        (f"{HERE}:is_large", "nowhere:is_large", ":9: operator 1, predicate: there is no module 'nowhere' for nowhere:is_large"),  # noqa: E501
        ("times = 3", "tmes = 3", ":16: operator 2, on_error, tmes: retry has no option 'tmes' (did you mean 'times'?). It takes times, backoff, then, on, wait"),  # noqa: E501
        ("times = 3, ", "", ":16: operator 2, on_error: retry needs 'times': it takes times, backoff, then, on, wait"),  # noqa: E501
        ("[[sinks]]", "[[sink]]", ":18: sink: a definition has no option 'sink' (did you mean 'sinks'?). It takes penstock, source, operators, sinks, shared, stages"),  # noqa: E501
        ("[[sinks]]", "[sinks]", ":18: sinks: sinks is a list: write [[sinks]]"),
        ("[source]", "[[source]]", ":3: source: there is one source: write [source]"),
        (f"{HERE}:project", "billing.project", ":13: operator 2, handler: 'billing.project' is not the name of a function, which is module:name (did you mean 'billing:project'?)"),  # noqa: E501
        (f"{HERE}:project", "billing.py:project", ":13: operator 2, handler: billing.py:project: a module has no .py in its name (did you mean 'billing:project'?)"),  # noqa: E501
        ('"write_jsonl"', '"read_jsonl"', ":18: sink 1: 'read_jsonl' is not a sink, but a source"),
        ('"read_jsonl"', '"write_jsonl"', ":3: source: 'write_jsonl' is not a source, but a sink"),
        ('"write_jsonl"', '"builtins:dict"', ":18: sink 1: 'builtins:dict' is not a sink, but a dict"),  # noqa: E501
        ('"write_jsonl"', '"filter"', ":18: sink 1: 'filter' is not a sink, but an operator"),
        ('"write_jsonl"', f'"{HERE}:is_large"', f":18: sink 1: {HERE}:is_large needs 'order': it takes order; to call it with each event write use = \"for_each\" and function = \"{HERE}:is_large\""),  # noqa: E501
        ('"write_jsonl"', f'"{HERE}:project"', f":18: sink 1: {HERE}:project needs 'order': it takes order; to call it with each event write use = \"for_each\""),  # noqa: E501
        ('"write_jsonl"', f'"{HERE}:starts"', f":18: sink 1: {HERE}:starts is an async function, and only a plain one can make a part of a pipeline"),  # noqa: E501
        ('"write_jsonl"', f'"{HERE}:refuses"', f":18: sink 1: {HERE}:refuses raised KeyError: 'no' ("),  # noqa: E501
        ('"orders.jsonl"', "5", ":5: source, path: 5 would be the number of an open descriptor, which a file cannot know: give the path as a text, \"5\""),  # noqa: E501
        ('use = "filter"', 'use = "Fixed"\nlimit = 1', ":10: operator 1, predicate: Fixed has no option 'predicate'. It takes limit"),  # noqa: E501
        ('"orders.jsonl"', '"${NOPE}"', ":5: source, path: the variable NOPE of the environment is not set; "),  # noqa: E501
        ('"orders.jsonl"', '{ shared = "x" }', ":5: source, path, shared: there is no 'x' in [shared]"),  # noqa: E501
        ("# The orders.", "penstock = 2", ":2: penstock: this is of version 2, and this penstock reads version 1"),  # noqa: E501
        ('key = "client"', "key = 1.5", ":14: operator 2, key: key=1.5 is not a valid key"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_said_with_its_line_and_what_is_allowed(
    tmp_path: Path, right: str, wrong: str, told: str
) -> None:
    assert right in ORDERS
    assert message(tmp_path, ORDERS.replace(right, wrong)).startswith(told)


def test_only_a_function_that_takes_something_could_be_called_with_each_event(
    tmp_path: Path,
) -> None:
    for name in ("starts", "refuses"):
        told = message(tmp_path, ORDERS.replace('"write_jsonl"', f'"{HERE}:{name}"'))
        assert "each event" not in told


def test_what_is_wrong_in_a_file_of_yaml_is_said_with_its_line(tmp_path: Path) -> None:
    text = """
source: {use: read_jsonl}
operators:
- use: adaptive_flat_map
  handler: builtins:str
  on_error:
    use: retry
    times: 3
    "on": [builtins:OSError]
    tims: 3
sinks: [{use: write_jsonl}]
"""
    told = message(tmp_path, text, "a.yaml")
    assert told.startswith(":10: operator 1, on_error, tims: retry has no option 'tims'")
    assert message(tmp_path, "a: [", "b.yaml").startswith(": this is not YAML: ")


def test_on_is_a_key_and_not_a_truth_in_yaml(tmp_path: Path) -> None:
    text = """
source: {use: read_jsonl}
operators:
- use: adaptive_flat_map
  handler: builtins:str
  ordered: true
  on_error: {use: retry, times: 3, on: [builtins:OSError]}
sinks: [{use: write_jsonl}]
"""
    (stage,) = Pipeline.from_file(written(tmp_path, text, "a.yaml")).definition()["operators"]
    assert stage["on_error"]["on"] == ["builtins:OSError"]
    assert stage["ordered"] is True


def test_shared_things_that_need_each_other_are_refused(tmp_path: Path) -> None:
    shared = """
[shared]
a = { use = "route", sink = { shared = "b" } }
b = { use = "route", sink = { shared = "a" } }
"""
    text = shared + ORDERS.replace('path = "orders.jsonl"', 'on_bad_line = { shared = "a" }')
    assert "a > b > a: it needs itself" in message(tmp_path, text)


def test_a_file_needs_a_source_and_a_sink(tmp_path: Path) -> None:
    assert "there is no source" in message(tmp_path, "")
    assert "there are no sinks" in message(tmp_path, '[source]\nuse = "read_jsonl"\n')


def test_an_error_of_a_module_is_said_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_handlers.py").write_text("import json\nrate = 1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    told = message(tmp_path, ORDERS.replace(f"{HERE}:is_large", "broken_handlers:f"))
    assert "broken_handlers:f cannot be imported: ZeroDivisionError: division by zero" in told
    assert told.endswith("broken_handlers.py, line 2)")


@pytest.mark.parametrize("name", ["orders.txt", "orders"])
def test_the_name_of_a_file_says_its_form(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadDefinition, match=r"ends in \.toml, \.yaml or \.json"):
        Pipeline.from_file(written(tmp_path, ORDERS, name))


def test_a_file_that_is_not_there_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(CannotOpen, match="No such file"):
        Pipeline.from_file(tmp_path / "none.toml")


def nested(number: int) -> Any:
    return lambda order: order + number


@pytest.mark.parametrize(
    ("pipeline", "told"),
    [
        (
            read_jsonl().pipe(ops.map(lambda order: order)).to(write_jsonl()),
            r"operator 1, mapper: lambda at .*test_files\.py:\d+ has no name that a file",
        ),
        (
            read_jsonl().pipe(ops.map(client), ops.map(nested(1))).to(write_jsonl()),
            r"operator 2, mapper: lambda at .*test_files\.py:\d+ has no name",
        ),
        (read_jsonl().to(write_jsonl(), collect([])), "sink 2, into: a list has no name"),
        (
            read_table("postgresql://me:secret@host/shop").to(write_jsonl()),
            r"source, url: postgresql://me:\*\*\*@host/shop has a password",
        ),
        (
            from_iterable([1]).to(for_each(named.Prices().look_up)),
            "sink 1, function, args 1: a Prices has no name",
        ),
    ],
)
@pytest.mark.parametrize("form", ["toml", "yaml", "json"])
def test_what_has_no_name_is_not_written(pipeline: Pipeline, told: str, form: Any) -> None:
    with pytest.raises(NotNamed, match=told):
        pipeline.as_text(form)


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(NotNamed):
        read_jsonl().pipe(ops.map(lambda order: order)).to(write_jsonl()).to_file(
            tmp_path / "orders.toml"
        )
    assert list(tmp_path.iterdir()) == []


def test_a_definition_with_a_lambda_is_not_built() -> None:
    pipeline = read_jsonl().pipe(ops.map(lambda order: order)).to(write_jsonl())
    with pytest.raises(BuildError, match=r"operator 1, mapper: this has no name by which"):
        Pipeline.from_definition(pipeline.definition())


@pytest.mark.parametrize(("form", "module"), [("yaml", "yaml")])
def test_the_extra_of_a_form_is_named_where_it_is_missing(
    form: Any, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.streams.base.errors import MissingExtra

    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "penstock.streams.definitions.yaml_files", raising=False)
    with pytest.raises(MissingExtra, match=rf"\[{form}\]"):
        read_jsonl().to(write_jsonl()).as_text(form)


def test_toml_is_written_with_a_table_for_each_part(tmp_path: Path) -> None:
    written_by_hand = """\
penstock = 1

[source]
use = "from_iterable"
iterable = ["\\u007f\\n\\"", 1.5, true, { none = true }]

[[operators]]
use = "map"
mapper = "builtins:str.upper"

[[sinks]]
use = "write_jsonl"
"""
    pipeline = Pipeline.from_file(written(tmp_path, written_by_hand))
    assert pipeline.as_text("toml") == written_by_hand
