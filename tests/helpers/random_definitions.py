"""Random pipelines of named functions, of all operators, sources and sinks that a file can have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from penstock import (
    Backoff,
    Fixed,
    HillClimb,
    Pipeline,
    RateLimit,
    Shared,
    Store,
    adaptive_flat_map,
    agg,
    batch,
    calendar,
    chunk,
    count_over_time,
    dead_letters,
    distinct_within,
    event_time,
    for_each,
    from_iterable,
    group_by,
    in_processes,
    in_threads,
    join,
    latency_histogram,
    lookup,
    monitor,
    ops,
    rate_limit,
    read_jetstream,
    read_jsonl,
    read_kafka,
    read_lines,
    read_table,
    retry,
    route,
    session,
    sliding,
    spread,
    stateful,
    table,
    tumbling,
    using,
    violations,
    window,
    write_jetstream,
    write_jsonl,
    write_kafka,
    write_table,
)
from penstock.streams.limits import default
from tests.unit.streams.definitions import named

__all__ = ["pipelines"]

Draw = Callable[[Any], Any]

NAMES = st.sampled_from(["a", "client", "x:y", "ärger", "a b", "$HOME", "${x}"])
FIELDS = st.one_of(NAMES, st.sampled_from([0, named.client, len]))
SECONDS = st.one_of(st.integers(1, 60), st.floats(0.5, 60))
COUNTS = st.integers(1, 1000)
FUNCTIONS = st.sampled_from([named.client, named.is_large, str, len, str.upper, named.Config("a")])
PLAIN: Any = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False),
        st.text(max_size=5),
        st.binary(max_size=3),
        NAMES,
        st.sampled_from([named.client, named.Colour.RED]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(NAMES, st.sampled_from(["use", "text"])), inner, max_size=3),
        st.dictionaries(st.integers(), inner, max_size=2),
    ),
    max_leaves=5,
)


def options(draw: Draw, **given: Any) -> dict[str, Any]:
    """Some of these options."""
    chosen = [name for name in given if draw(st.booleans())]
    return {name: draw(given[name]) for name in chosen}


class _Parts:
    """What the parts of one pipeline are drawn from, with what several of them share."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.stores = [Store("sqlite:///states.db"), Store("other.db", every=0.5, cache=10)]
        self.limits = [Shared((1, 8)), Fixed(4), HillClimb(0.2, seed=3), default(ceiling=9)]
        self.rates = [RateLimit(5), RateLimit(1.5, burst=2)]
        self.letters = [dead_letters("bad.jsonl"), write_jsonl("letters.jsonl"), for_each(print)]
        self.streams: list[Any] = []
        self.number = 0

    def store(self) -> Any:
        return st.sampled_from([None, self.stores[0]])

    def name(self) -> str:
        """One of its own for each stage with state."""
        self.number += 1
        return f"stage {self.number}"

    def on_error(self, *, retries: bool = False) -> Any:
        routes = st.sampled_from(self.letters).map(route)
        words = st.sampled_from(["stop", "skip", "revert"])
        last = st.one_of(words, routes)
        if not retries:
            return last
        backoffs = st.builds(Backoff, cap=st.floats(1, 9), seed=COUNTS)
        types = st.sampled_from([OSError, (OSError, ValueError)])
        again = st.builds(retry, COUNTS, st.one_of(st.none(), backoffs), last, on=types)
        return st.one_of(last, again)

    # Sources.

    def source(self) -> Any:
        draw = self.draw
        bad = st.one_of(st.sampled_from(["report", "stop"]), self.on_error().filter(_is_route))
        match draw(st.integers(0, 6)):
            case 0 | 1:
                reads = draw(st.sampled_from([read_jsonl, read_lines]))
                return reads(
                    draw(st.sampled_from(["-", "a.jsonl", "b.jsonl.gz"])),
                    **options(draw, created=FIELDS, on_bad_line=bad, max_line=COUNTS),
                )
            case 2:
                return from_iterable(draw(st.lists(PLAIN, max_size=3)))
            case 3:
                return from_iterable(draw(st.sampled_from([list, range(5), (1, 2), "ab", "a:b"])))
            case 4:
                return read_table(
                    "sqlite:///queue.db",
                    **options(
                        draw,
                        by=st.just("client"),
                        attempts=COUNTS,
                        backoff=st.just(Backoff(1)),
                        lease=SECONDS,
                        columns=st.just({"id": "key"}),
                    ),
                )
            case 5:
                topics = draw(st.sampled_from(["orders", ["a", "b"]]))
                return read_kafka(
                    topics, "g", **options(draw, since=st.just("new"), config=st.just({"a.b": 1}))
                )
            case _:
                return read_jetstream("orders.>", **options(draw, follow=st.just(False)))

    def stream(self, depth: int) -> Any:
        """A stream with some operators, or one that is read already."""
        draw = self.draw
        if self.streams and draw(st.integers(0, 3)) == 0:
            return draw(st.sampled_from(self.streams))
        stream = self.source()
        for _ in range(draw(st.integers(1 - depth, 5 if depth == 0 else 1))):
            stream = self.through(stream, depth)
        if draw(st.integers(0, 3)) == 0:
            stream = stream.pipe(ops.share(prefetch=draw(COUNTS)))
            self.streams.append(stream)
        return stream

    # Operators.

    def through(self, stream: Any, depth: int) -> Any:
        draw = self.draw
        kinds = [self.stock, self.work, self.grouped, self.kept, self.timed, self.watched]
        kind = draw(st.sampled_from(kinds + ([self.several] if depth < 2 else [])))
        return kind(stream, depth)

    def stock(self, stream: Any, _: int) -> Any:
        one = self.draw(
            st.one_of(
                FUNCTIONS.map(ops.map),
                FUNCTIONS.map(ops.filter),
                COUNTS.map(ops.take),
                st.builds(ops.scan, st.just(max)),
                st.builds(ops.scan, st.just(max), PLAIN),
                st.lists(PLAIN, max_size=2).map(lambda values: ops.start_with(*values)),
                st.builds(ops.buffer_with_count, COUNTS, st.one_of(st.none(), COUNTS)),
                st.builds(ops.take_while, FUNCTIONS, inclusive=st.booleans()),
                st.builds(ops.distinct_until_changed, FUNCTIONS),
                st.builds(ops.flat_map, st.just(named.client)),
                st.just(ops.pairwise()),
                SECONDS.map(ops.debounce),
                st.builds(ops.element_at_or_default, COUNTS, PLAIN),
                NAMES.map(ops.pluck),
                st.builds(ops.retry, COUNTS),
                st.builds(ops.to_list),
            )
        )
        return stream.pipe(one)

    def work(self, stream: Any, _: int) -> Any:
        draw = self.draw
        match draw(st.integers(0, 3)):
            case 0:
                most = draw(COUNTS)
                limits = st.one_of(COUNTS, st.just((1, 8)), st.sampled_from(self.limits))
                return stream.pipe(
                    adaptive_flat_map(
                        named.project,
                        **options(
                            draw,
                            limit=limits,
                            ordered=st.booleans(),
                            timeout=SECONDS,
                            window=st.just(most),
                            overload=st.just(named.is_large),
                            key=FIELDS,
                            on_error=self.on_error(retries=True),
                        ),
                    )
                )
            case 1:
                wrapped = [in_threads(3)(named.client), in_processes(2)(len)]
                wrapped += [using(named.Prices)(named.slowly)]  # type: ignore[arg-type]
                return stream.pipe(adaptive_flat_map(draw(st.sampled_from(wrapped))))
            case 2:
                return stream.pipe(
                    batch(list, **options(draw, max_size=COUNTS, on_error=self.on_error()))
                )
            case _:
                rates = st.one_of(COUNTS, st.sampled_from(self.rates))
                return stream.pipe(
                    chunk(draw(COUNTS), draw(st.one_of(st.none(), SECONDS))),
                    rate_limit(draw(rates), **options(draw, cost=NAMES, on_error=self.on_error())),
                )

    def grouped(self, stream: Any, _: int) -> Any:
        draw = self.draw
        routed = self.on_error().filter(_is_route)
        each = {"each": named.inside, "idle": draw(SECONDS)} if draw(st.booleans()) else {}
        stream = stream.pipe(
            group_by(
                draw(FIELDS),
                draw(st.integers(100, 200)),
                **each,
                **options(
                    draw,
                    share=st.integers(1, 100),
                    overflow=st.one_of(st.sampled_from(["spill", "wait"]), routed),
                    spill_events=COUNTS,
                    on_error=self.on_error(),
                ),
            ),
            spread(draw(st.one_of(st.none(), COUNTS))),
        )
        return stream.pipe(adaptive_flat_map(named.project)) if draw(st.booleans()) else stream

    def kept(self, stream: Any, _: int) -> Any:
        draw = self.draw
        store, name = draw(self.store()), self.name()
        if draw(st.booleans()):
            return stream.pipe(
                stateful(
                    named.count,
                    draw(FIELDS),
                    store=store,
                    name=name,
                    **options(draw, ttl=SECONDS, on_error=self.on_error()),
                )
            )
        more = {} if store is None else {"store": store, "name": name}
        return stream.pipe(
            distinct_within(draw(SECONDS), draw(FIELDS), **more, **options(draw, hold=COUNTS))
        )

    def timed(self, stream: Any, depth: int) -> Any:
        draw = self.draw
        shapes = st.one_of(
            SECONDS.map(tumbling),
            st.builds(tumbling, count=COUNTS),
            st.builds(sliding, st.just(60), st.just(10)),
            st.builds(session, SECONDS, most=st.just(1000)),
            st.builds(calendar, st.just("day"), zone=st.just("Europe/Berlin")),
        )
        values = st.sampled_from(
            [
                agg.count(),
                agg.top(3, "a"),
                {"n": agg.count(), "s": agg.sum(len)},
                agg.fold(0, max),
                agg.quantiles("total", 0.5, 0.99),
                agg.list(most=5),
            ]
        )
        match draw(st.integers(0, 3)):
            case 0:
                return stream.pipe(
                    window(
                        draw(shapes),
                        draw(values),
                        draw(st.one_of(st.none(), FIELDS)),
                        time="at",
                        **options(draw, lateness=SECONDS, late=self.on_error()),
                    )
                )
            case 1:
                return stream.pipe(
                    event_time("at", **options(draw, lateness=SECONDS, idle=SECONDS))
                )
            case 2 if depth < 2:
                rows = self.stream(depth + 1)
                found = table(rows, draw(FIELDS), time="at", **options(draw, keep=SECONDS))
                return stream.pipe(event_time("at"), lookup(found, draw(FIELDS)))
            case _ if depth < 2:
                other = self.stream(depth + 1)
                how = st.sampled_from(["inner", "left", "outer"])
                return stream.pipe(
                    join(other, draw(FIELDS), draw(SECONDS), time="at", **options(draw, how=how))
                )
            case _:
                return stream.pipe(count_over_time(draw(FIELDS), **options(draw, id=FIELDS)))

    def watched(self, stream: Any, _: int) -> Any:
        draw = self.draw
        rules = draw(st.sampled_from([monitor, violations]))
        tests = st.one_of(st.just(named.is_large), st.just({"kind": "order"}))
        return stream.pipe(
            rules(
                "G(paid -> X sent)",
                draw(FIELDS),
                paid=draw(tests),
                **options(draw, where=st.just({}), evidence=COUNTS, restart=st.booleans()),
                sent=draw(tests),
            )
        )

    def several(self, stream: Any, depth: int) -> Any:
        draw = self.draw
        others = [self.stream(depth + 1) for _ in range(draw(st.integers(1, 2)))]
        combine = draw(
            st.sampled_from([ops.merge, ops.zip, ops.combine_latest, ops.concat, ops.amb])
        )
        if combine is ops.amb:
            return stream.pipe(ops.amb(others[0]))
        if combine is ops.concat:
            return stream.pipe(ops.concat(*others))
        return stream.pipe(combine(*others, **options(draw, prefetch=COUNTS)))

    # Sinks.

    def sink(self, number: int) -> Any:
        draw = self.draw
        errors = self.on_error()
        match draw(st.integers(0, 5)):
            case 0:
                return write_jsonl(f"out {number}.jsonl", append=draw(st.booleans()))
            case 1:
                return for_each(draw(FUNCTIONS), **options(draw, on_error=errors))
            case 2:
                return write_table(
                    "sqlite:///results.db",
                    f"results_{number}",
                    **options(draw, columns=st.just(["a", "b"]), on_error=errors),
                )
            case 3:
                return write_kafka("done", **options(draw, key=FIELDS, window=COUNTS))
            case 4:
                return write_jetstream("done", **options(draw, id=FIELDS, on_error=errors))
            case _:
                return latency_histogram(draw(st.one_of(st.none(), SECONDS)), report=None)


def _is_route(policy: Any) -> bool:
    return not isinstance(policy, str)


@st.composite
def pipelines(draw: Draw) -> Pipeline:
    """A random pipeline; raises BuildError for parts that do not go together."""
    parts = _Parts(draw)
    stream = parts.stream(0)
    sinks = [parts.sink(number) for number in range(draw(st.integers(1, 3)))]
    made: Pipeline = stream.to(*sinks)
    return made
