"""Groups must be read: by spread(), by `async for`, or by a handler."""

from __future__ import annotations

from typing import Any

import pytest
from reactivex import operators as ops

from operators import adaptive_flat_map, group_by, spread
from sinks import collect
from streams import from_iterable
from streams.errors import BuildError
from streams.groups import holds_groups


def test_groups_cannot_end_in_a_sink_however_they_get_there() -> None:
    groups: Any = from_iterable("ab").pipe(group_by(0), ops.map(lambda group: group))
    with pytest.raises(BuildError, match=r"insert spread\(\)"):
        groups.to(collect([]))


def test_a_stream_holds_groups_from_group_by_to_spread() -> None:
    grouped = from_iterable("ab").pipe(group_by(0))
    assert holds_groups(grouped)
    assert not holds_groups(grouped.pipe(spread()))
    assert not holds_groups(grouped.pipe(spread(), adaptive_flat_map(str)))
    assert holds_groups(grouped.pipe(spread(), adaptive_flat_map(str), group_by(0)))
