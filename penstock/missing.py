"""The error for a name that the package `penstock` does not have."""

from __future__ import annotations

from importlib import import_module
from types import FrameType

__all__ = ["missing"]

# Where else a name may be; imported only once one is asked for that is not in the package.
_ELSEWHERE = ("ops", "streams.base.errors", "streams.limits", "streams.testing", "streams.temporal")


def missing(name: str, asking: FrameType | None) -> Exception:
    """The error for the module's attribute `name`, for which code of the frame `asking` asks.

    It says where the name is, if that is a public module of penstock: an ImportError for a `from
    penstock import name`, because Python does not show the message of an AttributeError there, and
    an AttributeError for `penstock.name`. Where neither is in the code, as for `hasattr`, it costs
    no imports.
    """
    how = _instruction(asking)
    plain = AttributeError(f"module 'penstock' has no attribute {name!r}", name=name)
    if name.startswith("_") or not how.startswith(("IMPORT_FROM", "LOAD_")):
        return plain
    for place in _ELSEWHERE:
        module = import_module(f"penstock.{place}")
        if name in getattr(module, "__all__", dir(module)):
            hint = f"Did you mean `from penstock.{place} import {name}`?"
            if how == "IMPORT_FROM":
                return ImportError(
                    f"cannot import name {name!r} from 'penstock'. {hint}", name="penstock"
                )
            return AttributeError(f"{plain}. {hint}", name=name)
    return plain


def _instruction(frame: FrameType | None) -> str:
    """The name of the instruction that a frame executes."""
    from opcode import opname

    return "" if frame is None else opname[frame.f_code.co_code[frame.f_lasti]]
