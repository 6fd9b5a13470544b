"""Values of common libraries become JSON as their own library writes it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum
from math import inf, isfinite, nan
from typing import Any
from uuid import UUID

import msgspec
import orjson
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.io.encoding import encoded, json_line, json_lines

DAY, ID = date(2024, 1, 2), UUID(int=7)


@dataclass
class Data:
    day: date = DAY
    inner: list[Any] = field(default_factory=list)


class Struct(msgspec.Struct, rename="camel"):
    of_day: date = DAY
    inner: Any = None


class Model(pydantic.BaseModel):
    id: UUID = ID
    price: Decimal = Decimal("1.50")
    day: date = pydantic.Field(DAY, serialization_alias="of")
    inner: Any = None


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Data(), {"day": "2024-01-02", "inner": []}),
        (Struct(), {"ofDay": "2024-01-02", "inner": None}),
        (Model(), {"id": str(ID), "price": "1.50", "day": "2024-01-02", "inner": None}),
        (Data(inner=[Struct(inner=Model())]), None),
        (Struct(inner=[Struct(), Data(), Model()]), None),
        ({"deep": [Model(inner=Data())]}, None),
        (pydantic.RootModel[list[int]]([1, 2]), [1, 2]),
    ],
    ids=["dataclass", "struct", "model", "dataclass of", "struct of", "model in", "root"],
)
def test_a_record_is_written_by_its_fields(value: Any, written: Any) -> None:
    found = orjson.loads(encoded(value))
    assert "2024-01-02" in str(found) or found == [1, 2]
    assert written is None or found == written


@pytest.mark.parametrize("value", [object(), Struct, Model, Data, Struct(inner=object()), {1}])
def test_what_has_no_fields_cannot_be_encoded(value: Any) -> None:
    with pytest.raises(TypeError, match="not JSON serializable") as raised:
        encoded(value)
    assert raised.value.__cause__ is None


def test_an_error_of_encoding_is_reported_once() -> None:
    with pytest.raises(TypeError, match="not JSON serializable: object") as raised:
        encoded([object()])
    assert raised.value.__cause__ is raised.value.__context__ is None


def test_what_a_record_itself_raises_is_the_cause() -> None:
    class Broken(pydantic.BaseModel):
        @pydantic.model_serializer
        def fields(self) -> dict[str, Any]:
            raise ValueError("no fields today")

    with pytest.raises(TypeError, match="not JSON serializable: Broken") as raised:
        encoded(Broken())
    assert "no fields today" in str(raised.value.__cause__)


def test_no_library_is_imported_for_values_that_are_not_of_it() -> None:
    program = (
        "import sys\n"
        "from penstock.streams.io.encoding import encoded\n"
        "class Own: pass\n"
        "try: encoded([Own()])\n"
        "except TypeError: print(*({'msgspec', 'pydantic'} & sys.modules.keys()))\n"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert out.stdout.split() == []


class Odd(Enum):
    NUMBER = nan


class Half(pydantic.BaseModel):
    inner: float = inf


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (nan, ""),
        ({"of": [None, {"deep": -inf}]}, "['of'][1]['deep']"),
        ({nan: 1}, "a key"),
        ([(1, nan)], "[0][1]"),
        (Data(inner=[nan]), ".inner[0]"),
        (Struct(inner=inf), "['inner']"),
        ([Half()], "['inner']"),
        (Odd.NUMBER, ""),
    ],
    ids=["itself", "deep", "key", "tuple", "dataclass", "struct", "model", "enum"],
)
def test_a_number_that_json_does_not_have_is_an_error_that_says_where_it_is(
    value: Any, place: str
) -> None:
    with pytest.raises(TypeError, match=r"JSON has no number -?(nan|inf)") as raised:
        encoded(value, orjson.OPT_NON_STR_KEYS)
    assert place in str(raised.value)


def test_a_field_that_is_not_written_may_hold_any_number() -> None:
    @dataclass
    class Hidden:
        _secret: float = nan
        shown: None = None

    assert encoded(Hidden()) == b'{"shown":null}'


_NUMBERS = st.recursive(
    st.none() | st.floats() | st.text(max_size=4) | st.just("null"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def _floats(value: Any) -> list[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for part in value for number in _floats(part)]
    return [value] if isinstance(value, float) else []


@given(st.lists(_NUMBERS, max_size=5))
def test_lines_are_written_exactly_if_every_number_in_them_is_finite(values: list[Any]) -> None:
    if all(map(isfinite, _floats(values))):
        lines = json_lines(values)
        assert list(map(orjson.loads, lines.splitlines())) == values
        assert lines == b"".join(map(json_line, values))
    else:
        with pytest.raises(TypeError, match="JSON has no number"):
            json_lines(values)
