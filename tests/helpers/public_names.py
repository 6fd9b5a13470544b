"""The public names that a folder has, from the table of `penstock`."""

from __future__ import annotations

from typing import Any

import penstock

__all__ = ["with_pages"]


def with_pages(*folders: str) -> dict[str, Any]:
    """Operators, sinks and sources by name: what has a page at the top of its module."""
    return {
        names[0]: getattr(penstock, names[0])
        for module, names in penstock._PUBLIC.items()
        if module.partition(".")[0] in folders
    }
