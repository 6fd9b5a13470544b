"""`penstock schema`: what a file of a definition may have, in the form that editors read."""

from __future__ import annotations

import argparse
from json import dumps

from penstock.command.output import put
from penstock.streams.definitions.schema import schema

__all__ = ["call"]


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Print it; returns the exit status."""
    return put(dumps(schema(), indent=1))
