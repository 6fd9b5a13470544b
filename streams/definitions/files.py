"""Files of definitions: TOML, YAML and JSON, by the end of their names."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.streams.base.errors import BadDefinition, CannotOpen, NotNamed, place_in
from penstock.streams.definitions.building import built
from penstock.streams.definitions.definition import Definition
from penstock.streams.definitions.names import is_a
from penstock.streams.definitions.toml_lines import toml_lines
from penstock.streams.definitions.toml_text import toml_text
from penstock.streams.stages.stream import Stream

__all__ = ["as_text", "form_of", "parsed", "read_file", "write_file"]

_Place = tuple[str | int, ...]
_Lines = Callable[[str], Mapping[_Place, int]]


def form_of(path: str) -> str | None:
    """The form of a file by the end of its name: "toml", "yaml" or "json"; None for others."""
    end = os.path.splitext(path)[1].lower()
    return {".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}.get(end)


def read_file(path: str) -> tuple[Stream[Any], list[Any]]:
    """The stream and the sinks of the pipeline in a file.

    Raises BadDefinition, whose text begins with the path and the line, and CannotOpen.
    """
    text = _text_of(path)
    form = _known_form(path)
    data = _parsed(text, form, path)
    try:
        return built(data)
    except BadDefinition as error:
        line = _line_of(error.path, _LINES[form](text))
        where = f"{path}:{line}" if line else path
        place = f"{place_in(error.path)}: " if error.path else ""
        raise BadDefinition(f"{where}: {place}{error.message}") from error


def parsed(path: str) -> Any:
    """The data in a file, which need not be a definition. Raises BadDefinition and CannotOpen."""
    return _parsed(_text_of(path), _known_form(path), path)


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise CannotOpen(f"Cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadDefinition(f"{path}: this is not UTF-8: {error}") from error


def _known_form(path: str) -> str:
    form = form_of(path)
    if form is None:
        raise BadDefinition(f"{path}: the name of a definition ends in .toml, .yaml or .json")
    return form


def _parsed(text: str, form: str, path: str) -> Any:
    try:
        if form == "toml":
            return tomllib.loads(text)
        if form == "json":
            return json.loads(text)
    except ValueError as error:
        raise BadDefinition(f"{path}: this is not {form.upper()}: {error}") from error
    from penstock.streams.definitions.yaml_files import loaded

    return loaded(text, path)


def _yaml_lines(text: str) -> Mapping[_Place, int]:
    from penstock.streams.definitions.yaml_files import yaml_lines

    return yaml_lines(text)


# JSON is YAML, but its library may not be there; such a file is mostly made by a program.
_LINES: dict[str, _Lines] = {"toml": toml_lines, "yaml": _yaml_lines, "json": lambda _: {}}


def _line_of(place: _Place, lines: Mapping[_Place, int]) -> int | None:
    """The line of a place, or of what it is in."""
    while place and place not in lines:
        place = place[:-1]
    return lines.get(place)


def write_file(definition: Definition, version: int, path: str) -> None:
    """Write a pipeline to a file, whose name says the form. Raises NotNamed, and CannotOpen."""
    text = as_text(definition, version, _known_form(path))
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise CannotOpen(f"Cannot write {path}: {error.strerror}") from error


def as_text(definition: Definition, version: int, form: str) -> str:
    """A definition as the text of a file. Raises NotNamed for what has no name, MissingExtra."""
    for place, what in _unwritable(definition.data, ()):
        raise NotNamed(f"{place_in(place)}: {what}")
    data = {"penstock": version, **definition.data}
    if form == "json":
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    if form == "yaml":
        from penstock.streams.definitions.yaml_files import dumped

        return dumped(data)
    return toml_text(data)


def _unwritable(data: Any, place: _Place) -> Iterator[tuple[_Place, str]]:
    """The places of what a file cannot say, and why."""
    match data:
        case {"unnamed": str(text), **others} if not others:
            yield (
                place,
                f"{text} has no name that a file could have: give a function at the top of a "
                "module, or what is made of such functions",
            )
        case {"secret": str(text), **others} if not others:
            yield (
                place,
                f"{text} has a password, which would be in the file: leave it to the environment "
                "(PGPASSWORD) or to a file of passwords, or write ${NAME} into the file by hand",
            )
        case _:
            for key, one in _items(data):
                yield from _unwritable(one, (*place, key))


def _items(data: Any) -> list[tuple[Any, Any]]:
    """The keys, or the numbers, and the values of a table or a list."""
    if is_a(data, dict):
        return list(data.items())
    return [(number, data[number]) for number in range(len(data))] if is_a(data, list) else []
