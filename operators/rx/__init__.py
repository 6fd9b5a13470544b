"""Operators of Rx that this library does by stages of its own, each under its Rx name.

They are `penstock.ops.X` and methods of a stream, and take the place of those of `reactivex`: one
of `reactivex.operators` that is given to `pipe` leads to the one here of the same name.
"""

from __future__ import annotations

from penstock.operators.rx.catch import catch
from penstock.operators.rx.concat import concat
from penstock.operators.rx.do_while import do_while
from penstock.operators.rx.on_error_resume_next import on_error_resume_next
from penstock.operators.rx.repeat import repeat
from penstock.operators.rx.retry import retry
from penstock.operators.rx.sequence_equal import sequence_equal
from penstock.operators.rx.timeout import timeout
from penstock.operators.rx.timeout_with_mapper import timeout_with_mapper
from penstock.operators.rx.while_do import while_do

__all__ = [
    "catch",
    "concat",
    "do_while",
    "on_error_resume_next",
    "repeat",
    "retry",
    "sequence_equal",
    "timeout",
    "timeout_with_mapper",
    "while_do",
]
