"""Builds the stages that lift stock operators; imported when a pipeline has one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache, partial
from inspect import Parameter, signature
from math import inf
from types import FunctionType, MethodType
from typing import Any, cast

from reactivex import Observable, compose
from reactivex import operators as ops

from penstock.streams.base.errors import BadArgument, BuildError, describe
from penstock.streams.base.validation import is_at_least, is_count, require_parameters, takes
from penstock.streams.boundary.once import ReadOnce
from penstock.streams.execution.handler import called_name, with_plain_results
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, Picture, Placement, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx import ours
from penstock.streams.rx.combining.flat_map import MOST_OPEN, FlatMap, without_index
from penstock.streams.rx.combining.inputs import as_stream, columns
from penstock.streams.rx.combining.side_streams import Read
from penstock.streams.rx.lift import (
    HOLD,
    Operator,
    WithStock,
    name_of,
    piped,
    read_on,
)
from penstock.streams.rx.lifted import Lifted, LiftedHolding
from penstock.streams.rx.lists import Lists
from penstock.streams.rx.map_filter import Filter, Map, Scan
from penstock.streams.rx.recognise import Part, recognise, with_arguments
from penstock.streams.rx.table import READING, STATELESS, TABLE, Entry, Kind
from penstock.streams.rx.windows import Window, cut_by, refuse_windows
from penstock.streams.stages.stream import Stream, Whole

__all__ = ["apply_all", "lift_one"]

_MakeStage = Callable[[Subscriber[Any], Run, StageInfo], Any]

# Operators that combine all values at the end, without any function of the user's.
_WHOLE: dict[str, Whole] = {"count": "number", "to_iterable": "values"}

# Operators that subscribe to each window as it begins.
_READS_WINDOWS = (
    *("flat_map", "flat_map_indexed", "flat_map_latest", "merge", "merge_all", "concat_all"),
    *("switch_latest", "exclusive", "concat_map", "switch_map", "switch_map_indexed"),
)

# Arguments of stock operators that are functions, whose results are not streams.
_ASKED = frozenset(
    (
        *("accumulator", "comparer", "element_mapper", "key_mapper", "mapper", "mapper_indexed"),
        *("action", "on_next", "predicate", "predicate_indexed"),
    )
)

# The functions whose results are keys or truths.
_ANSWERING = frozenset(("comparer", "key_mapper", "predicate", "predicate_indexed"))

# Arguments of stock operators that are whole numbers, and those that are times.
_COUNTS = frozenset(("count", "skip", "index"))
_TIMES = frozenset(
    (
        *("duetime", "duration", "end_time", "start_time", "timeshift", "timespan"),
        "window_duration",
    )
)

# Arguments that are functions, which are not called with each value.
_NOT_WITH_EACH = frozenset(("action", "on_error", "on_completed", "handler", "factory"))

# How many arguments the functions of the usual operators get, by the name of the argument.
_PARAMETERS = {
    "accumulator": (2, "what was made so far and a value"),
    "key_mapper": (1, "one value"),
    "mapper": (1, "one value"),
    "mapper_indexed": (2, "a value and its index"),
    "on_next": (1, "one value"),
    "predicate": (1, "one value"),
    "predicate_indexed": (2, "a value and its index"),
}
_USUAL = frozenset(
    (
        *("map", "map_indexed", "filter", "filter_indexed", "flat_map", "flat_map_indexed"),
        *("do_action", "tap", "scan", "reduce", "take_while", "skip_while"),
        "distinct_until_changed",
    )
)

# Operators whose outputs are values that came.
_PASSING = frozenset(
    (
        *("filter", "filter_indexed", "do_action", "take", "take_while", "skip", "skip_while"),
        *("distinct_until_changed", "take_last", "skip_last", "first", "last"),
    )
)

# Operators that may answer one input with several values.
_EXPANDING = ("flat_map", "flat_map_indexed", "dematerialize")


def lift_one(
    operator: Operator, source: Stream[Any], holds: bool | None = None, hold: int = HOLD
) -> Stream[Any]:
    """Read `source` through one operator; `holds` as in `lift`, None leaves it to the table."""
    parts = [_prepared(part) for part in recognise(operator)]
    if holds is None and len(parts) == 1 and parts[0].entry.kind is Kind.OURS:
        stream: Stream[Any] = _ours(parts[0])(source)
        return stream
    if holds is not None:
        entry = _declared(Kind.HOLDS if holds else Kind.AT_ONCE, [part.entry for part in parts])
        parts = [_as_one(parts, Part(_names(parts) or None, entry, operator, {}))]
    return _lift_chain(parts, source, hold)


def _declared(kind: Kind, entries: Sequence[Entry]) -> Entry:
    """The entry of an operator that answers like this, as the user has said."""
    if len(entries) == 1:
        return replace(entries[0], kind=kind, latest=False, folds=False)
    return Entry(
        kind,
        "",
        by_ticks=all(entry.by_ticks for entry in entries),
        windows=any(entry.windows for entry in entries),
        delays=any(entry.delays for entry in entries),
    )


def apply_all(
    operators: Sequence[Operator],
    source: Stream[Any],
    apply_unknown: Callable[[Operator, Stream[Any]], Any],
) -> Any:
    """Read `source` through operators: stock ones are lifted, others go to `apply_unknown`.

    The result is a stream, unless the last operator is a `Last`.
    """
    result: Any = source
    windows: list[Part] = []
    if source.cut is not None:
        result, windows = source.cut[0], list(source.cut[1])
    # What is recorded already, and the operators since then.
    before, base, since = source, result, list[Operator]()
    for operator in operators:
        stream = read_on(result)
        if stream is not base:
            before, base, since = piped(before, since, stream), stream, []
        since.append(operator)
        if windows and isinstance(operator, WithStock):
            operator = operator.stock
        parts = [_prepared(part) for part in recognise(operator)]
        if len(parts) == 1 and parts[0].name is None:
            if windows:
                refuse_windows(windows)
            result = apply_unknown(operator, stream)
            continue
        for part in parts:
            stream = read_on(result)
            if windows and _reads_windows(part):
                # A window's values are hot: their reader must be part of the same chain. All of
                # them are the stream's own, so what reads them needs no bound of its own.
                reader = replace(part, entry=Entry(Kind.AT_ONCE, "reads windows at once"))
                result = _lift_chain([*windows, reader], stream, HOLD)
                windows = []
            elif windows:
                if part.entry.kind is not Kind.AT_ONCE:
                    refuse_windows(windows)
                windows.append(part)
            elif part.entry.windows:
                windows.append(_with_windows(part))
            elif part.entry.kind is Kind.OURS:
                result = _ours(part)(stream)
            else:
                result = _lift_chain([part], stream, HOLD)
    if windows:
        result = cut_by(windows, read_on(result))
    return piped(before, since, result)


def _reads_windows(part: Part) -> bool:
    # Merged with other streams, the windows would come out unread.
    is_merge = part.name == "merge" and part.arguments.get("max_concurrent") is None
    return part.name in _READS_WINDOWS and not is_merge


def _with_windows(part: Part) -> Part:
    """`part` with streams of the class `Window`."""
    make = part.make
    if make is None:
        return replace(part, operator=partial(_cut, part.operator))

    def cut(read: Read, at: int) -> Operator:
        return partial(_cut, make(read, at))

    return replace(part, operator=partial(_cut, part.operator), make=cut)


def _cut(operator: Operator, source: Observable[Any]) -> Observable[Window[Any]]:
    windows: Observable[Any] = operator(source)
    return windows.pipe(ops.map(Window))


def _prepared(part: Part) -> Part:
    """`part`, which checks what the user's functions return, and reads its other streams with
    demand. Raises BuildError for a number that cannot be one, and for a function that cannot be
    called with what the operator gives it."""
    _check_numbers(part)
    _check_functions(part)
    return _with_demand(_with_checks(part))


def _check_numbers(part: Part) -> None:
    """Raise BuildError for counts and times of a stock operator, which would fail while it runs."""
    if part.entry.kind not in (Kind.AT_ONCE, Kind.HOLDS):
        return
    # A list, or a window, of none would never end.
    least = int(part.entry.lists or part.entry.windows)
    for name, value in part.arguments.items():
        if value is None:
            continue
        needed = ""
        if name in _COUNTS:
            is_zero = not isinstance(value, bool) and value == 0
            if not (is_count(value) or (is_zero and not least)):
                needed = f"a whole number of at least {least}"
        elif name in _TIMES and not _is_time(value):
            needed = "seconds or a timedelta"
        if needed:
            raise BadArgument(f"{part.name}({name}={describe(value, 80)}): must be {needed}")


def _check_functions(part: Part) -> None:
    """Raise BuildError for a function of a usual operator, which would fail with each value."""
    if part.name not in _USUAL or part.entry.kind is Kind.REFUSED:
        return
    for name, value in part.arguments.items():
        known = _PARAMETERS.get(name.rstrip("_"))
        if known is not None and not takes(value, known[0]):
            what = f"{part.name}({name.rstrip('_')}={describe(value, 80)})"
            require_parameters(value, what, *known)


def _is_time(value: Any) -> bool:
    # A time in the past is not waited for.
    return isinstance(value, timedelta | datetime) or is_at_least(value, -inf)


def _with_checks(part: Part) -> Part:
    """`part`, whose operator fails if one of its functions returns a coroutine, or if it reads an
    iterator a second time.

    Rx takes the one for a value, a key, or an answer that is true, and the other for an empty one.
    """
    if part.entry.kind not in (Kind.AT_ONCE, Kind.HOLDS) or part.name in READING:
        return part
    iterators = {
        name: ReadOnce(cast("Iterator[Any]", value))
        for name, value in part.arguments.items()
        if hasattr(cast(object, value), "__next__")
    }
    if not iterators and not any(map(_is_asked, part.arguments.items())):
        return part
    operator = partial(_with_checked, part, iterators)
    return Part(part.name, part.entry, operator, part.arguments, part.others, part.make)


def _is_asked(argument: tuple[str, object]) -> bool:
    """Whether an argument is a function whose results are looked at."""
    name, value = argument
    return isinstance(value, FunctionType | MethodType) and name.rstrip("_") in _ASKED


def _with_checked(part: Part, iterators: Mapping[str, Any], source: Observable[Any]) -> Any:
    # Made where it is applied: a stage without Rx in between needs none.
    checked = dict(iterators)
    for name, value in filter(_is_asked, part.arguments.items()):
        answers = name.rstrip("_") in _ANSWERING
        checked[name] = with_plain_results(value, str(part.name), answers=answers)
    return with_arguments(part, checked)(source)


def _with_demand(part: Part) -> Part:
    """`part`, whose operator reads its other streams with demand if it has any."""
    reading = READING.get(part.name or "")
    if reading is None:
        return part
    name = str(part.name)
    others: list[Stream[Any]] = []

    def prepared(value: Any) -> Callable[[Read, int], Any]:
        """A function that makes one stage's argument in place of this one."""
        if value is None:
            return lambda read, at: None
        if isinstance(value, tuple):
            each = [prepared(one) for one in value]  # pyright: ignore[reportUnknownVariableType] - any
            return lambda read, at: tuple(make(read, at) for make in each)
        if _is_function(value):
            return partial(_by_function, name, value)
        place, stream = len(others), as_stream(name, value)
        others.append(stream)
        return lambda read, at: read(stream, at + place, name)

    makers = {name: prepared(part.arguments[name]) for name in reading}

    def make(read: Read, at: int) -> Operator:
        given = {name: make(read, at) for name, make in makers.items()}
        made: Operator = _made(getattr(ops, name), {**part.arguments, **given})
        return made

    return replace(part, others=tuple(others), make=make)


def _by_function(
    name: str, function: Callable[..., Any], read: Read, at: int
) -> Callable[..., Observable[Any]]:
    """`function`, which returns a stream, with what is read in place of that."""

    def made(*args: Any) -> Observable[Any]:
        return read(as_stream(name, function(*args)), 0, name)

    return made


def _as_one(parts: Sequence[Part], whole: Part) -> Part:
    """`whole`, a composition of `parts`, whose operators read their other streams with demand."""

    def make(read: Read, at: int) -> Operator:
        made: list[Operator] = []
        for part in parts:
            made.append(part.operator if part.make is None else part.make(read, at))
            at += len(part.others)
        return compose(*made)

    others = tuple(stream for part in parts for stream in part.others)
    reads = any(part.make is not None for part in parts)
    return replace(whole, others=others, make=make) if reads else whole


def _ours(part: Part) -> Callable[[Stream[Any]], Any]:
    """The operator of this library that does what a stock one of the same name does."""
    # `replay` and `publish_value` are made of `multicast`, and a subject.
    name = "multicast" if "subject_factory" in part.arguments else str(part.name)
    operator: Callable[[Stream[Any]], Any] = _made(ours.find(name), part.arguments)
    return operator


def _made(make: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """The result of `make` for the arguments that a stock operator was built with."""
    parameters = signature(make).parameters
    # The stock functions name what they have completed by a default with an underscore at the end,
    # and some have more options inside than they offer. Where there are none, it is their state.
    options = {
        name.rstrip("_"): value
        for name, value in arguments.items()
        if name.rstrip("_") in parameters or (parameters and value is not None)
    }
    several: Sequence[Any] = ()
    for parameter in parameters.values():
        if parameter.kind is Parameter.VAR_POSITIONAL:
            # Some operators use another name for the argument inside.
            several = options.pop(parameter.name, ()) or options.pop("args", ())
    return make(*several, **options)


def _names(parts: Sequence[Part]) -> str:
    return " > ".join([part.name or name_of(part.operator) for part in parts])


def _lift_chain(parts: Sequence[Part], source: Stream[Any], hold: int) -> Stream[Any]:
    if not parts:
        return source
    name = _names(parts)
    lists = hold == HOLD and len(parts) == 1 and parts[0].entry.lists
    if lists:
        hold = _counted(parts[0])
    elif hold == HOLD:
        hold = max(hold, *[_counted(part) for part in parts])
    make: _MakeStage | None = _stage_without_rx(parts, lists=lists)
    info = _described(
        name,
        tuple([(part.name, part.entry) for part in parts]),
        hold if lists else hold + 1,
        # FlatMap observes its calls itself.
        "" if _is_flat_map(make) else _called_by(parts),
        makes=_makes_streams(parts),
    )
    holds = any(part.entry.kind is Kind.HOLDS for part in parts)
    if holds and source.turns:
        raise BuildError(
            f"{name} holds events, which between spread() and the working stage would hold "
            "their groups' turns for ever: put it into group_by(each=lambda group: "
            "group.pipe(...), idle=...), or after the working stage"
        )
    others = [part for part in parts if part.others]
    if others:
        # Those that need only the latest inputs have ticks from the others.
        absorbs = any(part.entry.latest for part in others)
        info = info._replace(
            inputs=columns([stream for part in others for stream in part.others]),
            delivery=info.delivery._replace(absorbs_inputs=absorbs),
        )
    if make is None and holds:
        make = partial(LiftedHolding, parts=parts, hold=hold)
    elif make is None:
        make = partial(Lifted, parts=parts, one_by_one=bool(info.bound))
    flowable = source.then(make, info, passes=name in _PASSING)
    if holds and len(parts) == 1 and hold == HOLD and not any(parts[0].arguments.values()):
        flowable.whole = _WHOLE.get(name)
    return flowable


# The same object for the stages of all groups. There are about as many as stock operators.
@lru_cache(maxsize=512)
def _described(
    name: str, kinds: Sequence[tuple[str | None, Entry]], held: int, calls: str, *, makes: bool
) -> StageInfo:
    """The description of a stage of these operators, without the streams that it reads besides.

    A holding one requests one more than it may hold, which may be answered; a list leaves with its
    last input. So there may be `held` inputs. `calls` and `makes` as in `StageInfo`. Raises
    BuildError for an operator that cannot be lifted.
    """
    for refused, entry in kinds:
        if entry.kind is Kind.REFUSED:
            raise BuildError(f"{refused} {entry.why}; use {entry.instead}")
    holding = [entry for _, entry in kinds if entry.kind is Kind.HOLDS]
    names = [name for name, _ in kinds]
    one_by_one = any(name in _EXPANDING or name not in TABLE for name in names)
    # A function of flat_map may return streams, of which several are open at once, each of which
    # has an event here.
    opens = any(name in ("flat_map", "flat_map_indexed") for name in names)
    in_order = all(entry.in_order for _, entry in kinds)
    return StageInfo(
        name,
        "",
        held if holding else 2 * MOST_OPEN if opens else int(one_by_one),
        "holds events" if holding else "",
        gathers=1 if in_order or not holding else held,
        delivery=Delivery(
            until_more=any(not entry.by_ticks for entry in holding),
            makes=makes,
        ),
        placement=Placement(keeps=not all(name in STATELESS for name in names)),
        picture=Picture(calls=calls),
    )


def _counted(part: Part) -> int:
    """How many inputs an operator holds because its arguments say so."""
    if not part.entry.counts:
        return 0
    return max([int(part.arguments.get(name) or 0) for name in ("count", "skip")])


def _called_by(parts: Sequence[Part]) -> str:
    """The name of the first function of the user's that these operators call with each value."""
    given = [item for part in parts for item in part.arguments.items()]
    return called_name(*[value for name, value in given if name not in _NOT_WITH_EACH])


def _stage_without_rx(parts: Sequence[Part], *, lists: bool) -> _MakeStage | None:
    """A factory of the stage of an operator that is done without Rx in between; None for others.

    `lists`: lists are, because they hold only as many events as their arguments say.
    """
    if len(parts) != 1:
        return None
    (part,) = parts
    match part.name:
        case "map" if callable(part.arguments.get("mapper")):
            return partial(Map, function=part.arguments["mapper"])
        case "scan" if callable(part.arguments.get("accumulator")):
            given = part.arguments
            return partial(Scan, accumulator=given["accumulator"], seed=given["seed"])
        case "filter" if callable(part.arguments.get("predicate")):
            return partial(Filter, function=part.arguments["predicate"])
        case "flat_map" if _is_function(part.arguments.get("mapper")):
            function = without_index(part.arguments["mapper"])
            return partial(FlatMap, function=function, calls=_called_by(parts))
        case "flat_map_indexed" if _is_function(part.arguments.get("mapper_indexed")):
            function = part.arguments["mapper_indexed"]
            return partial(FlatMap, function=function, calls=_called_by(parts))
        case "buffer_with_count" if lists:
            count = part.arguments["count"]
            return partial(Lists, count=count, skip=part.arguments.get("skip") or count)
        case _:
            return None


def _makes_streams(parts: Sequence[Part]) -> bool:
    """Whether a function of the operators may return streams that are not known before."""
    given = [
        part.arguments.get(name) for part in parts for name in READING.get(part.name or "", ())
    ]
    if any(map(_is_function, given)):
        return True
    # After an operator that makes windows, it reads those.
    return parts[0].name in ("flat_map", "flat_map_indexed")


def _is_flat_map(make: _MakeStage | None) -> bool:
    return isinstance(make, partial) and make.func is FlatMap


def _is_function(value: object) -> bool:
    return callable(value) and not isinstance(value, Observable)
