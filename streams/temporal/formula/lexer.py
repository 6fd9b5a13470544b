"""The lexer: cuts a formula's text into tokens."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["SYMBOLS", "WORD", "Token", "is_plain_name", "tokens", "told_of_split_words"]

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")

_SPACE = re.compile(r"\s*")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_NUMBER = re.compile(r"[0-9]+")
# The operators that have a symbol in Unicode.
SYMBOLS = {
    "G": "□",
    "F": "◇",
    "X": "○",
    "!": "¬",
    "&": "∧",
    "|": "\N{LOGICAL OR}",
    "->": "→",
    "<->": "↔",
    "<=": "≤",
}
# Operators with several spellings: each is known by one of them.
_SPELLINGS = {
    "[]->": "|->",
    "[]=>": "|=>",
    # As in Spot, Goal and LBTT.
    "⊕": "^",
    "=>": "->",
    "-->": "->",
    "<=>": "<->",
    "<-->": "<->",
    "/\\": "&",
    "\\/": "|",
    "~": "!",
    **{symbol: operator for operator, symbol in SYMBOLS.items()},
}
# The longest first.
_SIGNS = re.compile(
    r"\[\]->|\[\]=>|\|->|\|=>|<>->|<>=>|<-->|<=>|<->|<=|-->|->|=>|/\\|\\/|~|\|\||\||&&|&|\[\*|\[\+\]|\[->|\[=|\.\.|[!^(){};:,$\[\]]"
    + f"|[⊕{''.join(SYMBOLS.values())}]"
)
# PSL's words with an exclamation mark, and those with an underline after it.
_MARKED = re.compile(r"eventually!|next!|(?:until|before)(?:!_(?![A-Za-z0-9.])|!)")
# They remain names of propositions where no bracket follows.
_WITH_BRACKETS = re.compile(r"next_[ae]!?(?=\s*\[(?![*+=-]))|next_event!?(?=\s*\()")
# `X!a` is `X !a`, but in `X! a` the mark belongs to the operator.
_STRONG = re.compile(r"X!(?=\s)")
_RESERVED = frozenset(
    (
        "U",
        "W",
        "R",
        "M",
        "xor",
        "true",
        "false",
        "always",
        "never",
        "eventually",
        "next",
        "until",
        "until_",
        "before",
        "before_",
    )
)


class Token(NamedTuple):
    """`kind` is the token itself, or one of `name`, `number`, `bad` and `end`."""

    kind: str
    text: str
    position: int


def tokens(text: str) -> list[Token]:
    """All tokens; a character that belongs to none becomes a token of the kind `bad`. Linear
    time."""
    found: list[Token] = []
    position = 0
    while True:
        space = _SPACE.match(text, position)
        position = space.end() if space else position
        if position == len(text):
            return [*found, Token("end", "", position)]
        token, position = _next(text, position)
        found.append(token)


def told_of_split_words(text: str) -> str:
    """What to say of words that begin with operators, such as `Foo`, which is read as `F oo`; empty
    without such a word."""
    words = _split_words(text)
    how = ", ".join(f"{word} as {read}" for word, read in words.items())
    return how and f"read {how}; write a name that begins with F, G or X in quotes"


def _split_words(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    letters = ""
    end = -1
    for token in tokens(text):
        if token.position != end:
            letters = ""
        end = token.position + len(token.text)
        if token.text in ("F", "G", "X"):
            letters += token.text
            continue
        # The text of a quoted name begins after its quotation mark.
        if letters and token.kind == "name" and text[token.position] != '"':
            found[letters + token.text] = " ".join((*letters, token.text))
        letters = ""
    return found


def is_plain_name(name: str) -> bool:
    """Whether a proposition of this name can be written without quotes."""
    return WORD.fullmatch(name) is not None and name not in _RESERVED and name[0] not in "FGX"


def _next(text: str, begin: int) -> tuple[Token, int]:
    if quoted := _QUOTED.match(text, begin):
        name = re.sub(r"\\(.)", r"\1", quoted[1], flags=re.DOTALL)
        return Token("name", name, begin), quoted.end()
    if strong := _STRONG.match(text, begin):
        return Token("X", strong[0], begin), strong.end()
    # A word that begins with F, G or X begins with an operator: `GFp` is `G F p`.
    if text[begin] in "FGX":
        return Token(text[begin], text[begin], begin), begin + 1
    if found := _MARKED.match(text, begin) or _WITH_BRACKETS.match(text, begin):
        return Token(found[0], found[0], begin), found.end()
    if found := WORD.match(text, begin):
        word = found[0]
        kind = "^" if word == "xor" else word if word in _RESERVED else "name"
        return Token(kind, word, begin), found.end()
    if found := _NUMBER.match(text, begin):
        return Token("number", found[0], begin), found.end()
    if found := _SIGNS.match(text, begin):
        sign = found[0]
        return Token(_SPELLINGS.get(sign, sign), sign, begin), found.end()
    return Token("bad", text[begin], begin), begin + 1
