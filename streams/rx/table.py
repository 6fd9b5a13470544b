"""The lift table: how each stock `reactivex` operator behaves under demand.

A stock operator has no demand, so what may be requested from its source depends on when it
answers. The table says when, for every public name of `reactivex.operators`:

**AT_ONCE**  every output leaves inside the `on_next` of the input that caused it, or at
    subscription or completion, where only constants leave (a default, a verdict) and no
    input's value. It may remember a constant number of values, as `pairwise` does, but an
    input that made no output never makes one later: it is finished.
**HOLDS**    an input may be answered later, by a later input, a timer or completion, and
    stays unfinished until then. Any operator that is not in the table is treated as this kind.
**OURS**     `penstock.operators.rx` has a stage for it, which the name leads to.
**REFUSED**  it cannot be bounded, or makes no sense on a stream that is read on demand. Each
    entry says why, and what to use instead.

The entries follow the source of reactivex 6.1 and are tested against its behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

__all__ = [
    "READING",
    "SPECIAL",
    "STATELESS",
    "TABLE",
    "WITH_ASYNC",
    "WITH_ASYNC_GENERATOR",
    "Entry",
    "Kind",
]


class Kind(Enum):
    """When an operator answers its inputs."""

    AT_ONCE = "answers at once"
    HOLDS = "holds"
    OURS = "is done by a stage of this library"
    REFUSED = "refused"


# Compared by identity, which is quick.
@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """An entry of the table.

    `why` is a clause that follows the operator's name; `instead` follows the word "use" and
    is empty unless the operator is refused. The rest is of operators that hold:

    by_ticks   it holds an input for a limited time, or until another source emits, and not until
               more inputs come
    latest     it needs only the latest inputs: `count` of them, or one
    folds      it makes one value of all inputs
    counts     it needs to hold as many inputs as its arguments `count` and `skip` say
    lists      it holds no more inputs than these arguments say
    windows    it emits streams, whose values are lost unless they are read at once
    gaps       an input may come while no list or window is open, and is in none
    delays     it emits each input some time later, however slow the reader is
    in_order   one output for each input, in the order of the inputs
    """

    kind: Kind
    why: str
    instead: str = ""
    by_ticks: bool = False
    latest: bool = False
    folds: bool = False
    counts: bool = False
    lists: bool = False
    windows: bool = False
    gaps: bool = False
    delays: bool = False
    in_order: bool = False


def _at_once(why: str, names: str) -> dict[str, Entry]:
    return dict.fromkeys(names.split(), Entry(Kind.AT_ONCE, why))


def _holds(why: str, names: str, **how: bool) -> dict[str, Entry]:
    return dict.fromkeys(names.split(), Entry(Kind.HOLDS, why, "", **how))


def _ours(why: str, names: str) -> dict[str, Entry]:
    return dict.fromkeys(names.split(), Entry(Kind.OURS, why))


def _refused(names: str, why: str, instead: str) -> dict[str, Entry]:
    return dict.fromkeys(names.split(), Entry(Kind.REFUSED, why, instead))


_ANSWERING_AT_ONCE = {
    **_at_once(
        "emits one output for each input and remembers nothing of it",
        "as_observable do do_action finally_action map map_indexed pluck pluck_attr starmap"
        " starmap_indexed tap timestamp",
    ),
    **_at_once(
        "emits one output for each input and remembers a state, such as the value or time before",
        "materialize scan time_interval",
    ),
    **_at_once(
        "emits each input's outputs, none or many, before it takes the next input",
        "dematerialize flat_map flat_map_indexed",
    ),
    **_at_once(
        "emits an input or drops it for good",
        "distinct_until_changed filter filter_indexed ignore_elements skip"
        " skip_until_with_time skip_while skip_while_indexed skip_with_time throttle_first",
    ),
    **_at_once(
        "reads nothing before its time has come, and then emits each input",
        "delay_subscription",
    ),
    **_at_once(
        "emits inputs until it completes",
        "slice take take_until_with_time take_while take_while_indexed take_with_time",
    ),
    **_at_once(
        "pairs an input with what it already has: the input before, the latest of another"
        " source, the next of a plain iterable",
        "pairwise zip_with_iterable zip_with_list",
    ),
    **_at_once(
        "emits the inputs, and values given when it was built if there are none or before them",
        "default_if_empty start_with",
    ),
    **_at_once(
        "emits once, at the input that decides it; at completion it emits a default or a"
        " verdict, or fails, where no input decided",
        "all contains element_at element_at_or_default find find_index first first_or_default"
        " is_empty some",
    ),
}

# The reasons that several entries share.
_WINDOWS = (
    "emits streams whose values arrive later; they are lost unless it is followed at once by an "
    "operator that subscribes to them, such as flat_map"
)
_LAST = "emits the last inputs, which it cannot know before completion"
_DELAYS = "emits an input when a time has passed"

_HOLDING = {
    **_holds(
        "gathers inputs into a list, which leaves when it is full, or at completion",
        "buffer_with_count",
        counts=True,
        lists=True,
    ),
    **_holds(
        "gathers inputs into a list, which leaves when it is full, at a tick, or at completion",
        "buffer_with_time_or_count",
        by_ticks=True,
        counts=True,
        lists=True,
    ),
    **_holds(
        "gathers inputs into a list, which leaves at a tick or at completion",
        "buffer buffer_when buffer_with_time",
        by_ticks=True,
    ),
    **_holds(
        "gathers inputs into lists, each of which begins and leaves at a tick",
        "buffer_toggle",
        by_ticks=True,
        gaps=True,
    ),
    **_holds(_WINDOWS, "window_with_count", counts=True, windows=True),
    **_holds(_WINDOWS, "window_with_time_or_count", by_ticks=True, counts=True, windows=True),
    **_holds(_WINDOWS, "window window_when window_with_time", by_ticks=True, windows=True),
    **_holds(_WINDOWS, "window_toggle", by_ticks=True, windows=True, gaps=True),
    **_holds(
        "emits what it made of all inputs, at completion",
        "max_by min_by to_dict to_iterable to_list to_marbles to_set",
    ),
    **_holds(
        "emits one value that it made of all inputs, at completion",
        "average count max min reduce sum",
        folds=True,
    ),
    **_holds(
        "emits inputs that it cannot know before completion",
        "single single_or_default single_or_default_async take_last_with_time",
    ),
    **_holds(_LAST, "fork_join last last_or_default", latest=True),
    **_holds(_LAST, "take_last take_last_buffer", latest=True, counts=True),
    **_holds(
        "emits an input when enough later ones have followed it",
        "skip_last",
        counts=True,
    ),
    **_holds(
        "emits an input when enough time has followed it",
        "skip_last_with_time",
    ),
    **_holds(_DELAYS, "delay", by_ticks=True, delays=True, in_order=True),
    **_holds(_DELAYS, "delay_with_mapper", by_ticks=True, delays=True),
    **_holds(
        "keeps the latest input until a tick or a silence; a newer one replaces it",
        "debounce sample throttle_with_mapper throttle_with_timeout",
        by_ticks=True,
        latest=True,
    ),
    **_holds(
        "keeps the latest input until every other source has a new value too",
        "zip_latest",
        latest=True,
    ),
}

_OURS = {
    **_ours(
        "reads several streams at once, as far ahead as it says",
        "amb combine_latest merge with_latest_from zip",
    ),
    **_ours(
        "reads the streams that are its values, a number of them at once",
        "concat_all concat_map exclusive flat_map_latest merge_all switch_latest switch_map"
        " switch_map_indexed",
    ),
    **_ours(
        "shares one reading of its source among its readers; the slowest sets the demand",
        "multicast partition partition_indexed publish publish_value ref_count replay share",
    ),
    **_ours(
        "reads one stream after another",
        "catch concat do_while on_error_resume_next repeat retry timeout timeout_with_mapper"
        " while_do",
    ),
    **_ours("passes on events until another stream emits, or after that", "skip_until take_until"),
    **_ours("compares two streams pair by pair", "sequence_equal"),
    **_ours("makes a future of the last value", "to_future"),
}

_REFUSED = {
    **_refused(
        "distinct",
        "remembers every key for ever and searches them one by one",
        "distinct_within(seconds, by), which remembers a key for that time",
    ),
    **_refused(
        "group_by group_by_until",
        "keeps a group for every key it ever saw and pushes into the groups without demand",
        "penstock.group_by(by, idle=...), followed by spread()",
    ),
    **_refused(
        "expand",
        "feeds its own outputs back to itself without a bound",
        "adaptive_flat_map(handler), where the handler is an async generator that walks the tree",
    ),
    **_refused(
        "join group_join",
        "keeps the values of both sources for as long as their durations last",
        "penstock.join(other, by, within) for the times of events, with_latest_from(other), or "
        "Flowable.of(...) around the join of plain sources",
    ),
    # Where work runs
    **_refused(
        "observe_on subscribe_on",
        "moves events to another scheduler, behind a queue without a bound",
        "adaptive_flat_map(in_threads(n)(handler)) or in_processes(n) for work off the loop;"
        " a stream stays on its loop",
    ),
}

#: Every public name of `reactivex.operators`, by how it behaves under demand.
TABLE: Mapping[str, Entry] = MappingProxyType(
    {**_ANSWERING_AT_ONCE, **_HOLDING, **_OURS, **_REFUSED}
)

#: Operators that keep nothing from one event to the next, nor do anything when the stream begins or
#: ends: a part of the events may pass through one instance, the rest through another.
STATELESS = frozenset(("map", "pluck", "pluck_attr", "starmap", "filter", "flat_map"))

#: Lifted operators that read other streams, and the arguments that are streams or return them.
READING: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "buffer": ("boundaries",),
        "buffer_toggle": ("openings", "closing_mapper"),
        "buffer_when": ("closing_mapper",),
        "delay_with_mapper": ("subscription_delay", "delay_duration_mapper"),
        "fork_join": ("args",),
        "throttle_with_mapper": ("throttle_duration_mapper",),
        "window": ("boundaries",),
        "window_toggle": ("openings", "closing_mapper"),
        "window_when": ("closing_mapper",),
        "zip_latest": ("others",),
    }
)

#: What replaces an entry of the table when the operator was built with certain arguments.
SPECIAL: Mapping[str, Entry] = MappingProxyType(
    {
        **_holds("with a negative bound counts from the end, at completion", "slice"),
        **_ours("emits the newest event when another stream emits", "sample"),
    }
)

#: What replaces the entry of any operator that is built with an async function.
WITH_ASYNC = Entry(
    Kind.REFUSED,
    "is given an async function, whose coroutines it would not await",
    "adaptive_flat_map(handler), which does; to filter, let the handler be an async generator that"
    " yields what passes",
)

#: The same for an async generator function.
WITH_ASYNC_GENERATOR = Entry(
    Kind.REFUSED,
    "is given an async generator function, whose generators it would not read",
    "adaptive_flat_map(handler), which does; for spread(), which rotates over them, a plain "
    "function that returns them, as in ops.map(lambda value: pages(value))",
)
