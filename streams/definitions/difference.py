"""What is different between two definitions, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from penstock.streams.base.errors import counted
from penstock.streams.definitions.names import is_a

__all__ = ["differences"]

Lines = Iterator[str]
_NOT_GIVEN = object()


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """A line for each difference, in the order of the pipeline; none if there is none.

    Of operators and sinks those with one name, in order, are compared with each other.
    """
    lines = [*_named("shared", old.get("shared", {}), new.get("shared", {}))]
    lines += _value("source", old.get("source"), new.get("source"))
    lines += _several("operator", old.get("operators", []), new.get("operators", []))
    lines += _several("sink", old.get("sinks", []), new.get("sinks", []))
    if "stages" in old and "stages" in new:
        lines += _bounds(old["stages"], new["stages"])
    return lines


def _named(place: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Lines:
    for name in dict.fromkeys([*old, *new]):
        yield from _value(f"{place} {name!r}", old.get(name, _NOT_GIVEN), new.get(name, _NOT_GIVEN))


def _several(kind: str, old: Sequence[Any], new: Sequence[Any]) -> Lines:
    """The differences between the operators, or the sinks, of two streams."""
    gone: list[tuple[int, Any]] = []
    come: list[tuple[int, Any]] = []
    changed: list[str] = []
    for same, first, last, begin, end in _aligned(old, new):
        if same:
            for n, (one, other) in enumerate(zip(old[first:last], new[begin:end], strict=True)):
                changed += _value(f"{kind} {begin + n + 1} {_name_of(other)}", one, other)
        else:
            gone += [(first + n + 1, one) for n, one in enumerate(old[first:last])]
            come += [(begin + n + 1, one) for n, one in enumerate(new[begin:end])]
    for place, one in gone:
        moved = next((there for there, other in come if other == one), None)
        if moved is None:
            yield f"{kind} {place} {_shown(one)}: removed"
        else:
            come.remove((moved, one))
            yield f"{kind} {place} {_shown(one)}: moved to place {moved}"
    yield from (f"{kind} {place} {_shown(one)}: added" for place, one in come)
    yield from changed


def _aligned(old: Sequence[Any], new: Sequence[Any]) -> list[tuple[bool, int, int, int, int]]:
    """The parts of both that have the same names, and those between."""
    names = [_name_of(one) for one in old], [_name_of(one) for one in new]
    matcher = SequenceMatcher(None, *names, autojunk=False)
    return [
        (code == "equal", first, last, begin, end)
        for code, first, last, begin, end in matcher.get_opcodes()
    ]


def _value(place: str, old: Any, new: Any) -> Lines:
    if old == new and type(old) is type(new):
        return
    if _is_table(old) and _is_table(new):
        if "use" in old and old.get("use") == new.get("use"):
            for key in dict.fromkeys([*old, *new]):
                one, other = old.get(key, _NOT_GIVEN), new.get(key, _NOT_GIVEN)
                yield from _value(f"{place}, {key}", one, other)
            return
        if "source" in old or "source" in new:
            one, other = (side if "source" in side else {"source": side} for side in (old, new))
            yield from _value(f"{place}, source", one["source"], other["source"])
            sides = (side.get("operators", []) for side in (one, other))
            yield from (f"{place}, {line}" for line in _several("operator", *sides))
            return
    elif is_a(old, list) and is_a(new, list) and any(map(_is_table, [*old, *new])):
        yield from (f"{place}: {line}" for line in _several("item", old, new))
        return
    if new is _NOT_GIVEN:
        yield f"{place}: no longer given, was {_shown(old)}"
    elif old is _NOT_GIVEN:
        yield f"{place}: {_shown(new)}, was not given"
    else:
        yield f"{place}: {_shown(new)}, was {_shown(old)}"


def _bounds(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> Lines:
    """The stages that both have, and that may hold another number of events."""
    named = [[{"use": stage["name"]} for stage in side] for side in (old, new)]
    for same, first, last, begin, end in _aligned(*named):
        if not same:
            continue
        for one, other in zip(old[first:last], new[begin:end], strict=True):
            for key, where in (("holds", ""), ("on_disk", " on disk")):
                if one[key] != other[key]:
                    yield (
                        f"stage {other['number']} {other['name']}: holds at most "
                        f"{_number(other[key])}{where}, was {_number(one[key])}"
                    )


def _number(events: int | None) -> str:
    return "any number of events" if events is None else counted(events, "event")


def _is_table(data: Any) -> bool:
    return is_a(data, dict)


def _name_of(data: Any) -> str:
    return str(data["use"]) if _is_table(data) and "use" in data else _shown(data)


def _shown(data: Any) -> str:
    """A value as in Python: a call as a call, a function by its name."""
    if is_a(data, list):
        return f"[{', '.join(map(_shown, data))}]"
    if not _is_table(data):
        return repr(data)
    given = [f"{key}={_shown(one)}" for key, one in data.items() if key != "use"]
    if "use" in data:
        return f"{data['use']}({', '.join(given)})"
    if len(data) == 1 and (key := next(iter(data))) in ("import", "unnamed", "secret", "shared"):
        return f"shared {data[key]!r}" if key == "shared" else str(data[key])
    if "source" in data:
        names = " > ".join(map(_name_of, [data["source"], *data.get("operators", [])]))
        return f"the stream {names}"
    return f"{{{', '.join(f'{key!r}: {_shown(one)}' for key, one in data.items())}}}"
