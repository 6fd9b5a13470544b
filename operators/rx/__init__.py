"""Operators of Rx that this library does by stages of its own, each under its Rx name.

They are `penstock.ops.X` and methods of a stream, and take the place of those of `reactivex`: one
of `reactivex.operators` that is given to `pipe` leads to the one here of the same name.
"""

from __future__ import annotations

from penstock.operators.rx.amb import amb
from penstock.operators.rx.catch import catch
from penstock.operators.rx.combine_latest import combine_latest
from penstock.operators.rx.concat import concat
from penstock.operators.rx.concat_all import concat_all
from penstock.operators.rx.concat_map import concat_map
from penstock.operators.rx.do_while import do_while
from penstock.operators.rx.exclusive import exclusive
from penstock.operators.rx.flat_map import flat_map
from penstock.operators.rx.flat_map_latest import flat_map_latest
from penstock.operators.rx.merge import merge
from penstock.operators.rx.merge_all import merge_all
from penstock.operators.rx.multicast import multicast
from penstock.operators.rx.on_error_resume_next import on_error_resume_next
from penstock.operators.rx.publish import publish
from penstock.operators.rx.publish_value import publish_value
from penstock.operators.rx.ref_count import ref_count
from penstock.operators.rx.repeat import repeat
from penstock.operators.rx.replay import replay
from penstock.operators.rx.retry import retry
from penstock.operators.rx.sequence_equal import sequence_equal
from penstock.operators.rx.share import share
from penstock.operators.rx.switch_latest import switch_latest
from penstock.operators.rx.switch_map import switch_map
from penstock.operators.rx.timeout import timeout
from penstock.operators.rx.timeout_with_mapper import timeout_with_mapper
from penstock.operators.rx.while_do import while_do
from penstock.operators.rx.with_latest_from import with_latest_from
from penstock.operators.rx.zip import zip
from penstock.streams.pages import show_pages

__all__ = [
    "amb",
    "catch",
    "combine_latest",
    "concat",
    "concat_all",
    "concat_map",
    "do_while",
    "exclusive",
    "flat_map",
    "flat_map_latest",
    "merge",
    "merge_all",
    "multicast",
    "on_error_resume_next",
    "publish",
    "publish_value",
    "ref_count",
    "repeat",
    "replay",
    "retry",
    "sequence_equal",
    "share",
    "switch_latest",
    "switch_map",
    "timeout",
    "timeout_with_mapper",
    "while_do",
    "with_latest_from",
    "zip",
]

show_pages(__name__, __all__)
