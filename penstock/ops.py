"""All operators in one place: penstock's own, and those of reactivex, which `Flowable.pipe` lifts.

    from penstock import from_iterable, ops, run

    run(from_iterable(range(9)).pipe(ops.filter(bool), ops.batch(work)).to(...))

Where both have a name, such as `group_by`, it is penstock's; `ops.window` is Rx's, and windows by
event time are `penstock.window`. `pipe` refuses an operator of
reactivex that cannot be bounded; the error gives the reason and what to use instead. Importing this
takes longer than importing `penstock`, because reactivex's operators are all imported.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Of two definitions mypy takes the first, pyright and the interpreter take the last.
    # isort: off
    from penstock.operators.rx import *  # noqa: F403
    from penstock import group_by as group_by, join as join
    # isort: on

from reactivex.operators import *  # type: ignore[assignment, no-redef]  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]

# Ours take the place of those of the same name, and `window` is that of Rx.
# isort: off
from penstock import (
    adaptive_flat_map as adaptive_flat_map,
    batch as batch,
    chunk as chunk,
    count_over_time as count_over_time,
    database_table as database_table,
    distinct_within as distinct_within,
    event_time as event_time,
    group_by as group_by,
    in_processes as in_processes,
    in_threads as in_threads,
    join as join,
    lookup as lookup,
    monitor as monitor,
    rate_limit as rate_limit,
    spread as spread,
    stateful as stateful,
    table as table,
    using as using,
    violations as violations,
)
from penstock.operators.rx import *  # noqa: F403

if not TYPE_CHECKING:
    from functools import cache as _cache
    from inspect import isfunction as _isfunction

    from penstock.streams.base.recorded import recorded as _recorded

    # Some have two names.
    _once = _cache(_recorded)

    # What a stock operator is made of shows its options only where it is not made of others.
    for _name, _one in list(globals().items()):
        if _isfunction(_one) and _one.__module__ == "reactivex.operators":
            globals()[_name] = _once(_one)
