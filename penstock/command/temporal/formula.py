"""`penstock formula`: shows, translates and compares formulas of temporal logic."""

from __future__ import annotations

from argparse import Namespace

from penstock.command.output import mention, put, write
from penstock.streams.base.errors import BuildError
from penstock.streams.pictures.automaton import to_svg
from penstock.streams.temporal.automata.automaton import Automaton
from penstock.streams.temporal.automata.degeneralise import degeneralised
from penstock.streams.temporal.automata.hoa import to_hoa
from penstock.streams.temporal.automata.lbtt import to_lbtt
from penstock.streams.temporal.automata.translate import translate
from penstock.streams.temporal.automata.words import Lasso
from penstock.streams.temporal.errors import TimedFormula, bounded_recursion
from penstock.streams.temporal.formula.formula import Formula, Unary, propositions
from penstock.streams.temporal.formula.lexer import told_of_split_words
from penstock.streams.temporal.formula.linear import left_matches, to_ltl
from penstock.streams.temporal.formula.parser import parse
from penstock.streams.temporal.formula.printer import quoted, to_text
from penstock.streams.temporal.formula.simplify import simplify
from penstock.streams.temporal.formula.timed_rules import split
from penstock.streams.temporal.monitors.examples import (
    Trace,
    compare,
    infinite_word,
    shortest_trace,
)

__all__ = ["call"]

_DIFFER = 1


@bounded_recursion()
def call(options: Namespace, words: list[str]) -> int:
    """Print what was asked for, by default the formula as it was read.

    Returns 0, or 1 if the two formulas of `--compare` differ. Raises BuildError for a formula that
    cannot be read, is too large, or cannot be drawn.
    """
    _refuse_ignored(options)
    formula = parse(options.formula)
    _mention_split_words(options)
    if options.ltl:
        formula = to_ltl(formula)
        for match in left_matches(formula):
            mention(f"{to_text(match)} is left as it is: it has no simple form in LTL")
    if options.simplify:
        formula = simplify(formula)
    found = 0
    if options.compare is not None:
        text, differ = _compared(formula, parse(options.compare))
        found = _DIFFER if differ else 0
    elif options.examples:
        text = _examples(formula)
    elif options.lbtt or options.hoa or options.svg or options.ba:
        automaton = translate(formula)
        text = _written(degeneralised(automaton) if options.ba else automaton, options)
    else:
        _mention_unwatchable(formula)
        text = to_text(formula, unicode=options.unicode) + "\n"
    if options.output is None:
        return put(text) or found
    write(text, options.output)
    return found


def _refuse_ignored(options: Namespace) -> None:
    asked = options.compare is not None or options.examples
    if options.ba and asked:
        raise BuildError("--ba is about an automaton; --compare and --examples print none")
    if options.unicode and (asked or options.lbtt or options.hoa or options.svg or options.ba):
        raise BuildError("--unicode is for the formula itself, which no other option prints")


def _mention_split_words(options: Namespace) -> None:
    if warning := told_of_split_words(f"{options.formula} {options.compare or ''}"):
        mention(warning)


def _mention_unwatchable(formula: Formula) -> None:
    try:
        split(formula)
    except TimedFormula as error:
        mention(f"no monitor accepts it: {error}")


def _written(automaton: Automaton, options: Namespace) -> str:
    if options.svg:
        return to_svg(automaton, lines=True)
    return to_lbtt(automaton) if options.lbtt else to_hoa(automaton)


def _compared(one: Formula, other: Formula) -> tuple[str, bool]:
    """The text that `--compare` prints, and whether the formulas differ."""
    found = compare(one, other)
    names = found.names
    text = ""
    for where, first, second in (
        ("finite traces", found.only_first_trace, found.only_second_trace),
        ("infinite words", found.only_first_word, found.only_second_word),
    ):
        if first is None:
            relation = "equivalent" if second is None else "the first is stronger"
        else:
            relation = "the first is weaker" if second is None else "neither implies the other"
        text += f"{where}: {relation}\n"
        for which, example in (("first", first), ("second", second)):
            if example is not None:
                text += f"    only the {which} holds on: {_shown(example, names)}\n"
    return text, any(example is not None for example in found[1:])


def _examples(formula: Formula) -> str:
    names = tuple(propositions(formula))
    text = ""
    for verb, wanted in (("satisfied", formula), ("violated", Unary("!", formula))):
        example = shortest_trace(wanted, names)
        if example is not None:
            text += f"{verb} by: {_shown(example, names)}\n"
            continue
        word = infinite_word(wanted, names)
        also = "nor infinite word" if word is None else "only by words such as: "
        shown = "" if word is None else _shown(word, names)
        text += f"{verb} by no finite trace, {also}{shown}\n"
    return text


def _shown(example: Trace | Lasso, names: tuple[str, ...]) -> str:
    """`{a} {a, b}`; of an infinite word, the stem, `·` and the loop."""
    if not isinstance(example, Lasso):
        return " ".join(_letter(letter, names) for letter in example)
    stem, loop = (" ".join(_letter(letter, names) for letter in part) for part in example)
    return f"{stem} · ({loop}) for ever".lstrip()


def _letter(letter: int, names: tuple[str, ...]) -> str:
    """The propositions that hold of one event."""
    held = (quoted(name) for bit, name in enumerate(names) if letter >> bit & 1)
    return "{" + ", ".join(held) + "}"
