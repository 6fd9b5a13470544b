"""Operators of this library that have the name of a stock one, or of a method of a stream.

They import this room, so `find` is set from above: by the package `penstock`, when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["find"]

find: Callable[[str], Callable[..., Any]]
"""The function of this name, which makes the operator."""
