"""Files of definitions in YAML, for which PyYAML must be installed."""

from __future__ import annotations

import re
from typing import Any

from penstock.streams.base.errors import BadDefinition
from penstock.streams.base.extras import missing_extra

try:
    import yaml
except ImportError as _error:
    raise missing_extra("A definition in YAML needs PyYAML", "yaml") from _error

__all__ = ["dumped", "loaded", "yaml_lines"]

_Place = tuple[str | int, ...]


# Its functions have no types.
_library: Any = yaml


class _Loader(yaml.SafeLoader):
    """Reads as YAML 1.2 does: `on`, `off`, `yes` and `no` are texts, and `on` is a key."""


_BOOL = "tag:yaml.org,2002:bool"

_resolvers: Any = _Loader
_resolvers.yaml_implicit_resolvers = {
    first: [(tag, text) for tag, text in known if tag != _BOOL]
    for first, known in _resolvers.yaml_implicit_resolvers.items()
}
_resolvers.add_implicit_resolver(
    _BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


class _Dumper(yaml.SafeDumper):
    """Writes no anchors: each thing stands where it is."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def loaded(text: str, path: str) -> Any:
    """The data in a text. Raises BadDefinition, which names the line."""
    try:
        return _library.load(text, _Loader)
    except yaml.YAMLError as error:
        told = " ".join(str(error).split())
        raise BadDefinition(f"{path}: this is not YAML: {told}") from error


def dumped(data: Any) -> str:
    """The data as a text."""
    text: str = _library.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def yaml_lines(text: str) -> dict[_Place, int]:
    """The number of the line, from 1 on, for the path of each value."""
    lines: dict[_Place, int] = {}

    def note(node: Any, place: _Place) -> None:
        lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                lines[(*place, key.value)] = key.start_mark.line + 1
                note(value, (*place, key.value))
        elif isinstance(node, yaml.SequenceNode):
            for number, value in enumerate(node.value):
                note(value, (*place, number))

    root = _library.compose(text, _Loader)
    if root is not None:
        note(root, ())
    return lines
