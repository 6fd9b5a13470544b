"""Where events come from: one source a module, named as its module."""

from __future__ import annotations

from sources.jsonl import read_jsonl

__all__ = ["read_jsonl"]
