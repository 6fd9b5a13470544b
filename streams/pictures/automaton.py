"""Draws automata and monitors, as Graphviz text or directly as SVG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.streams.base.errors import BuildError
from penstock.streams.pictures.states import (
    KEY_GAP,
    LINE,
    RADIUS,
    Arc,
    Graph,
    Layout,
    Point,
    bend,
    laid_out,
)
from penstock.streams.pictures.svg import FONT, document, text
from penstock.streams.temporal.automata.automaton import Automaton
from penstock.streams.temporal.automata.guards import sets_of
from penstock.streams.temporal.automata.lbtt import first_lines
from penstock.streams.temporal.formula.cubes import Guards
from penstock.streams.temporal.formula.decisions import Decisions
from penstock.streams.temporal.formula.printer import in_quotes, quoted
from penstock.streams.temporal.monitors.machine import Machine
from penstock.streams.temporal.monitors.monitor import Monitor
from penstock.streams.temporal.monitors.timed.deadlines import Deadlines
from penstock.streams.temporal.monitors.verdict import Verdict

__all__ = ["Live", "live_svg", "to_dot", "to_svg"]

# A larger drawing is unreadable; Graphviz may still try.
_MOST_STATES = 60

# In pixels, including the approximate width of a letter in a title.
_LETTER, _LEFT, _TITLE = 8.0, 30, 40

# The label of a violation that time alone, or an event at a wrong time, brings about.
_BOUND = "bound in time"

_SYMBOLS = {
    Verdict.TRUE: "\N{DOWN TACK}",
    Verdict.FALSE: "⊥",
    Verdict.INCONCLUSIVE: "?",
}

# Keys have so many colours.
_MARKS = 5

_STYLE = (
    FONT
    + """
    svg { color: #c8552b; }
    .mark1 { color: #0072b2; } .mark2 { color: #00805e; }
    .mark3 { color: #a3508a; } .mark4 { color: #8a6d00; }
    .sheet { fill: #ffffff; }
    .state { fill: #f4f8fb; stroke: #9db8cc; stroke-width: 1.5; }
    .name { fill: #14344c; font-size: 13px; text-anchor: middle; }
    .edge { stroke: #7d97a9; stroke-width: 1.3; fill: none; }
    .tip { fill: #7d97a9; }
    .on { stroke: currentColor; }
    .edge.on { stroke-width: 2.6; }
    .tip.on { fill: currentColor; stroke: none; }
    .dashed { stroke-dasharray: 4 4; }
    .count { fill: #4a6478; font-size: 10px; text-anchor: middle; }
    .key { fill: currentColor; font-size: 12px; font-weight: 600; text-anchor: end;
      paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }
    .title { fill: #14344c; font-size: 14px; font-weight: 600; }
    .label { fill: #14344c; font-size: 12px; text-anchor: middle; paint-order: stroke;
      stroke: #ffffff; stroke-width: 4px; }
    @media (prefers-color-scheme: dark) {
      svg { color: #ef8a62; }
      .mark1 { color: #6bb8ea; } .mark2 { color: #35c99b; }
      .mark3 { color: #dd9ac6; } .mark4 { color: #e0b73a; }
      .sheet { fill: #10181f; }
      .state { fill: #182530; stroke: #3d5a70; }
      .name, .label, .title { fill: #e4eef5; }
      .label, .key { stroke: #10181f; }
      .count { fill: #a9c0d0; }
    }
"""
)


class Live(NamedTuple):
    """Where the keys of a monitor stand: in a state of its machine, or at a verdict.

    `counts` is how many there are, `names` those to be named, and `walked` the steps of each of
    these.
    """

    counts: Mapping[int | Verdict, int]
    names: Mapping[int | Verdict, Sequence[str]]
    walked: Mapping[str, Collection[tuple[int, int | Verdict]]]


def to_dot(what: Automaton | Monitor) -> str:
    """The graph as Graphviz text."""
    graph = _graph(what)
    lines = ["digraph automaton {", "    rankdir=LR", "    node [shape=circle]"]
    lines += [f"    {at} [label={in_quotes(name)}]" for at, name in enumerate(graph.states)]
    for at in graph.initial:
        lines += [f'    start{at} [shape=point, label=""]', f"    start{at} -> {at}"]
    for source, target, label, _ in graph.arcs:
        lines.append(f"    {source} -> {target} [label={in_quotes(label)}]")
    return "\n".join([*lines, "}", ""])


def to_svg(what: Automaton | Monitor, *, lines: bool = False) -> str:
    """The graph as SVG: states in rows by their distance from the first. Raises BuildError for more
    than 60 states.

    With `lines`, each edge of an automaton has the number of its line in `to_lbtt`. Of a monitor
    with bounds in time, dashed edges lead to the violations of these: from each state in which an
    operator with a bound can be open.
    """
    graph = _graph(what, lines)
    _check_size(graph)
    layout = laid_out(graph)
    return document(layout.width, layout.height, "automaton", _STYLE, _drawn(graph, layout))


def live_svg(monitor: Monitor, live: Live, title: str) -> str:
    """The machine of a monitor, with how many keys stand in each state.

    Each of the named keys has a colour, up to five, in which the steps that it has taken are drawn;
    a dashed one is a violation of a bound in time. Raises BuildError for more than 60 states.
    """
    graph, numbers = _live_graph(monitor, live)
    _check_size(graph)
    counts = Counter[int]()
    names: dict[int, list[str]] = {}
    for state, count in live.counts.items():
        counts[numbers[state]] += count
    for state, some in live.names.items():
        names.setdefault(numbers[state], []).extend(some)
    layout = laid_out(graph, _TITLE, names)
    marks = {name: at % _MARKS for at, name in enumerate(sorted(live.walked))}
    walkers: dict[tuple[int, int], list[int]] = {}
    for name, mark in marks.items():
        for source, target in live.walked[name]:
            on = walkers.setdefault((numbers[source], numbers[target]), [])
            if mark not in on:
                on.append(mark)
    parts = [text("title", _LEFT, 28, title)]
    parts += _drawn(graph, layout, {at: marks[some[0]] for at, some in names.items()}, walkers)
    for at, (x, y) in enumerate(layout.places):
        parts.append(text("count", x, y + 13, f"{counts[at]:,}"))
        for line, name in enumerate(names.get(at, ())):
            shown = text("key", x - RADIUS - KEY_GAP, y + 4 + line * LINE, name)
            parts.append(_marked(shown, marks[name]))
    width = max(layout.width, 2 * _LEFT + len(title) * _LETTER)
    return document(width, layout.height, title, _STYLE, parts)


def _live_graph(monitor: Monitor, live: Live) -> tuple[Graph, dict[int | Verdict, int]]:
    """The graph, and the place of each state of the machine, and of each verdict, in it."""
    timed = monitor.deadlines is not None
    machine = monitor.machine if timed else monitor.verdicts
    places: dict[int | Verdict, int] = {}
    names: list[str] = []
    if timed:
        # What the operators with a bound will say is not known of any state.
        names = [_SYMBOLS[Verdict.INCONCLUSIVE]] * len(machine)
        places.update({state: state for state in range(len(machine))})
    else:
        names = [_SYMBOLS[output] for output in monitor.verdicts.outputs]
        places.update(_followed(monitor.machine, monitor.verdicts).items())
        places.update({out: at for at, out in enumerate(monitor.verdicts.outputs) if out.is_final})
    for verdict in (Verdict.FALSE, Verdict.TRUE):
        if verdict not in places and (verdict is Verdict.FALSE or live.counts.get(verdict)):
            places[verdict] = len(names)
            names.append(_SYMBOLS[verdict])
    walked = {
        (places[source], places[target])
        for steps in live.walked.values()
        for source, target in steps
    }
    arcs = {
        (state, target): "\n".join(guards)
        for state, step in enumerate(machine.steps)
        for target, guards in _guards(machine, step, monitor.propositions).items()
    }
    drawn = [Arc(*ends, label, "on" if ends in walked else "") for ends, label in arcs.items()]
    drawn += [Arc(*ends, _BOUND, "on dashed") for ends in sorted(walked - arcs.keys())]
    return Graph(names, (0,), drawn), places


def _followed(machine: Machine[Any], smaller: Machine[Any]) -> dict[int, int]:
    """The state of a smaller machine, of the same words, for each state of a machine."""
    found = {0: 0}
    queue = [0]
    for state in queue:
        for _, letter, target in machine.decisions.cubes(machine.steps[state]):
            if target not in found:
                found[target] = smaller.next(found[state], letter)
                queue.append(target)
    return found


def _guards(machine: Machine[Any], step: int, names: tuple[str, ...]) -> dict[int, list[str]]:
    """The guards to each next state, as few and as short as possible."""
    targets: Decisions[frozenset[int]] = Decisions()
    to_sets = machine.decisions.mapping(targets, lambda state: frozenset((state,)))
    guards = Guards(targets)
    return {
        target: [_guard(names, *cube) for cube in guards.cubes.of(number, number)]
        for target, number in guards.of(to_sets(step)).items()
    }


def _check_size(graph: Graph) -> None:
    if len(graph.states) > _MOST_STATES:
        raise BuildError(
            f"{len(graph.states):,} states are too many to draw; use to_dot and Graphviz"
        )


def _drawn(
    graph: Graph,
    layout: Layout,
    marked: Mapping[int, int] = {},
    walkers: Mapping[tuple[int, int], Sequence[int]] = {},
) -> list[str]:
    """The elements of a graph. The states `marked` stand out, in a colour, and so do the arcs of
    `walkers`, in one or more."""
    parts: list[str] = []
    places = layout.places
    for at in graph.initial:
        x, y = places[at]
        parts.append(_line(f"M{x:g} {y - RADIUS - 26:g}V{y - RADIUS - 8:g}"))
        parts.append(_tip(x, y - RADIUS))
    for arc in graph.arcs:
        parts += _arc(arc, places, walkers.get(arc[:2], ()))
    for at, (name, (x, y)) in enumerate(zip(graph.states, places, strict=True)):
        looks = "state on" if at in marked else "state"
        circle = f'<circle class="{looks}" cx="{x:g}" cy="{y:g}" r="{RADIUS}"/>'
        parts.append(_marked(circle, marked.get(at, 0)))
        parts.append(text("name", x, y + 4, name))
    return [*parts, *map(_label, graph.arcs, layout.labels)]


def _marked(element: str, mark: int) -> str:
    """The element in the colour of a mark; the first colour is for everything."""
    return f'<g class="mark{mark}">{element}</g>' if mark else element


def _graph(what: Automaton | Monitor, lines: bool = False) -> Graph:
    labels: dict[tuple[int, int, str], list[str]] = {}
    if isinstance(what, Monitor):
        if what.deadlines is not None:
            return _timed_graph(what, what.deadlines)
        machine = what.verdicts
        for state, step in enumerate(machine.steps):
            for target, guards in _guards(machine, step, what.propositions).items():
                labels[state, target, ""] = guards
        states = [_SYMBOLS[output] for output in machine.outputs]
    else:
        first = first_lines(what)
        for state, leaving in enumerate(what.edges):
            for number, edge in enumerate(leaving, first[state]):
                sets = " " + ",".join(map(str, sets_of(edge))) if edge.marks else ""
                guard = _guard(what.propositions, edge.care, edge.value)
                label = f"{number}: {guard}" if lines else guard
                labels.setdefault((state, edge.target, sets), []).append(label)
        states = [str(at) for at in range(len(what))]
    arcs: dict[tuple[int, int], list[str]] = {}
    for (source, target, sets), guards in labels.items():
        marked = f" {{{sets.strip()}}}" if sets else ""
        arcs.setdefault((source, target), []).append(" | ".join(guards) + marked)
    initial = (0,) if isinstance(what, Monitor) else what.initial
    return Graph(states, initial, [Arc(*ends, "\n".join(each)) for ends, each in arcs.items()])


def _timed_graph(monitor: Monitor, deadlines: Deadlines) -> Graph:
    """The machine of a monitor with bounds in time, and where one can be violated."""
    machine = monitor.machine
    open_in = deadlines.open_in(machine.successors)
    verdicts = [
        output.verdict if deadlines.is_decided(output, state) else Verdict.INCONCLUSIVE
        for state, output in enumerate(machine.outputs)
    ]
    for state in open_in:
        if verdicts[state] is Verdict.TRUE:
            verdicts[state] = Verdict.INCONCLUSIVE
    labels = {
        (state, target): "\n".join(guards)
        for state, step in enumerate(machine.steps)
        for target, guards in _guards(machine, step, monitor.propositions).items()
    }
    open_in = {state for state in open_in if verdicts[state] is not Verdict.FALSE}
    if Verdict.FALSE not in verdicts:
        verdicts.append(Verdict.FALSE)
    end = verdicts.index(Verdict.FALSE)
    arcs = [Arc(*ends, label) for ends, label in labels.items()]
    for state in sorted(open_in):
        if (state, end) in labels:
            # Two arcs of the same ends would lie on each other.
            arcs.remove(Arc(state, end, labels[state, end]))
            arcs.append(Arc(state, end, f"{labels[state, end]}\n{_BOUND}"))
        else:
            arcs.append(Arc(state, end, _BOUND, "dashed"))
    return Graph([_SYMBOLS[verdict] for verdict in verdicts], (0,), arcs)


def _guard(names: tuple[str, ...], care: int, value: int) -> str:
    parts = [
        ("" if value >> bit & 1 else "!") + quoted(name)
        for bit, name in enumerate(names)
        if care >> bit & 1
    ]
    return "&".join(parts) or "true"


def _arc(arc: Arc, places: Sequence[Point], walkers: Sequence[int]) -> list[str]:
    """An arc, in the colours of those that have walked it, alternately."""
    if len(walkers) < 2:
        return [_marked(_curve(arc, places, arc.looks), *(walkers or (0,)))]
    drawn, whole = (4, 8) if "dashed" in arc.looks else (8, 8)
    dashes = f"stroke-dasharray: {drawn} {whole * len(walkers) - drawn}"
    return [
        _marked(
            _curve(
                arc,
                places,
                f"also {arc.looks}" if at else arc.looks,
                f"{dashes}; stroke-dashoffset: {-whole * at}",
            ),
            mark,
        )
        for at, mark in enumerate(walkers)
    ]


def _curve(arc: Arc, places: Sequence[Point], looks: str, style: str = "") -> str:
    x, y = places[arc.source]
    if arc.source == arc.target:
        right = x + RADIUS
        loop = f"M{right - 4:g} {y - 11:g}C{right + 40:g} {y - 34:g} {right + 40:g} {y + 34:g} "
        return _line(f"{loop}{right - 4:g} {y + 11:g}", looks, style)
    bend_x, bend_y = bend(arc, places)
    to_x, to_y = places[arc.target]
    length = max(1.0, ((to_x - bend_x) ** 2 + (to_y - bend_y) ** 2) ** 0.5)
    end_x = to_x - (to_x - bend_x) / length * (RADIUS + 2)
    end_y = to_y - (to_y - bend_y) / length * (RADIUS + 2)
    return (
        _line(f"M{x:g} {y:g}Q{bend_x:g} {bend_y:g} {end_x:.1f} {end_y:.1f}", looks, style)
        + f'<circle class="{f"tip {looks}".strip()}" cx="{end_x:.1f}" cy="{end_y:.1f}" r="4"/>'
    )


def _label(arc: Arc, middle: Point) -> str:
    x, y = middle
    lines = arc.label.split("\n")
    first = y - (len(lines) - 1) * LINE / 2
    return "".join(
        text("label", round(x, 1), round(first + at * LINE, 1), line)
        for at, line in enumerate(lines)
    )


def _line(path: str, looks: str = "", style: str = "") -> str:
    styled = f' style="{style}"' if style else ""
    return f'<path class="{f"edge {looks}".strip()}" d="{path}"{styled}/>'


def _tip(x: float, y: float) -> str:
    return f'<path class="tip" d="M{x - 5:g} {y - 9:g}H{x + 5:g}L{x:g} {y - 1:g}Z"/>'
