"""The file that `--kafka-config` names."""

from __future__ import annotations

from typing import Any

from penstock.streams.base.errors import BuildError, CannotOpen

__all__ = ["settings_in"]


def settings_in(path: str) -> dict[str, Any]:
    """The settings in a file of lines `name=value`, such as client.properties.
    Raises CannotOpen, and BuildError for a line that is not one."""
    settings: dict[str, Any] = {}
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotOpen(f"--kafka-config {path}: {error}") from None
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise BuildError(f"--kafka-config {path}, line {number}: write name=value")
        value = value.strip()
        # A password with zeros in front is not a number.
        is_number = value.isdecimal() and str(int(value)) == value
        settings[name.strip()] = int(value) if is_number else value
    return settings
