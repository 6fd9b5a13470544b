"""Operators of Rx under their Rx names, one module a mechanism, with its page at the top.

They are `penstock.ops.X` and methods of a stream, and take the place of those of `reactivex`: one
of `reactivex.operators` that is given to `pipe` leads to the one here of the same name. Windows,
lists and `start_with` are done by those of `reactivex`, lifted.
"""

from __future__ import annotations

from penstock.operators.rx.amb import amb
from penstock.operators.rx.buffers import (
    buffer,
    buffer_toggle,
    buffer_when,
    buffer_with_count,
    buffer_with_time,
    buffer_with_time_or_count,
)
from penstock.operators.rx.catch import catch, on_error_resume_next
from penstock.operators.rx.combine_latest import combine_latest
from penstock.operators.rx.concat import concat
from penstock.operators.rx.exhaust_map import exclusive, exhaust_map
from penstock.operators.rx.flat_map import concat_all, concat_map, flat_map, merge_all
from penstock.operators.rx.merge import merge
from penstock.operators.rx.partition import partition, partition_indexed
from penstock.operators.rx.publish import multicast, publish, publish_value, replay
from penstock.operators.rx.repeat import repeat
from penstock.operators.rx.retry import retry
from penstock.operators.rx.sample import sample
from penstock.operators.rx.sequence_equal import sequence_equal
from penstock.operators.rx.share import ref_count, share
from penstock.operators.rx.skip_until import skip_until
from penstock.operators.rx.start_with import start_with
from penstock.operators.rx.switch_map import (
    flat_map_latest,
    switch_latest,
    switch_map,
    switch_map_indexed,
)
from penstock.operators.rx.take_until import take_until
from penstock.operators.rx.timeout import timeout
from penstock.operators.rx.timeout_with_mapper import timeout_with_mapper
from penstock.operators.rx.to_future import to_future
from penstock.operators.rx.while_do import do_while, while_do
from penstock.operators.rx.windows import (
    window,
    window_toggle,
    window_when,
    window_with_count,
    window_with_time,
    window_with_time_or_count,
)
from penstock.operators.rx.with_latest_from import with_latest_from
from penstock.operators.rx.zip import zip
from penstock.streams.base.pages import show_page

__all__ = [
    "amb",
    "buffer",
    "buffer_toggle",
    "buffer_when",
    "buffer_with_count",
    "buffer_with_time",
    "buffer_with_time_or_count",
    "catch",
    "combine_latest",
    "concat",
    "concat_all",
    "concat_map",
    "do_while",
    "exclusive",
    "exhaust_map",
    "flat_map",
    "flat_map_latest",
    "merge",
    "merge_all",
    "multicast",
    "on_error_resume_next",
    "partition",
    "partition_indexed",
    "publish",
    "publish_value",
    "ref_count",
    "repeat",
    "replay",
    "retry",
    "sample",
    "sequence_equal",
    "share",
    "skip_until",
    "start_with",
    "switch_latest",
    "switch_map",
    "switch_map_indexed",
    "take_until",
    "timeout",
    "timeout_with_mapper",
    "to_future",
    "while_do",
    "window",
    "window_toggle",
    "window_when",
    "window_with_count",
    "window_with_time",
    "window_with_time_or_count",
    "with_latest_from",
    "zip",
]

for _name in __all__:
    show_page(globals()[_name])
