"""The reference: a page in Markdown for each public name, made from its docstring.

A page has the signature with its types, the docstring, the six labelled lines as a list, the marble
diagram as a picture, and the public members of a class.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_overloads

import penstock
from docs.site.marble import draw, is_marble
from penstock.operators import rx
from penstock.streams import limits, temporal, testing
from penstock.streams.execution import options

__all__ = ["Entry", "entries", "page", "pages"]

LABELS = ("Items", "Time", "Memory", "Demand", "Ends", "Errors")
TITLES = {
    "operators": "Operators",
    "rx": "Operators of Rx, as penstock.ops.X",
    "sources": "Sources",
    "sinks": "Sinks",
    "streams": "Streams and pipelines",
    "limits": "Limits",
    "testing": "Testing kit",
    "temporal": "Temporal formulas, workflows and counts",
}
PACKAGES: dict[str, ModuleType] = {"limits": limits, "testing": testing, "temporal": temporal}
_LABELLED = re.compile(rf"^({'|'.join(LABELS)}):\s+", re.MULTILINE)
_MADE = re.compile(r"\b(made|created|given) by\b", re.IGNORECASE)
# Words of Python and of the library that are not ours to explain, though a public name is the same.
_COMMON = {"error", "Event", "run", "parse"}


@dataclass(frozen=True)
class Entry:
    """A public name: its section, the package it is imported from, and the file of its page."""

    name: str
    section: str
    package: str
    thing: Any
    file: str

    @property
    def path(self) -> str:
        return f"reference/{self.section}/{self.file}.md"

    @property
    def title(self) -> str:
        return f"{self.name}()" if inspect.isroutine(self.thing) else self.name


def entries() -> list[Entry]:
    """All that is public, by section and name; a name that is in two packages is there once."""
    found: list[Entry] = []
    used: set[str] = set()
    for section, package, name, thing in _public():
        file = name
        # Inbox and inbox would be one file on some systems.
        while f"{section}/{file}".lower() in used:
            file += "-value"
        used.add(f"{section}/{file}".lower())
        found.append(Entry(name, section, package, thing, file))
    order = list(TITLES)
    return sorted(found, key=lambda entry: (order.index(entry.section), entry.name.lower()))


def _public() -> Iterator[tuple[str, str, str, Any]]:
    for name in penstock.__all__:
        yield _section(name), "penstock", name, getattr(penstock, name)
    for name in rx.__all__:
        yield "rx", "penstock.ops", name, getattr(rx, name)
    for section, module in PACKAGES.items():
        for name in module.__all__:
            if name not in penstock.__all__:
                yield section, module.__name__, name, getattr(module, name)


def _section(name: str) -> str:
    (place,) = (place for place, names in penstock._PUBLIC.items() if name in names)
    if place.startswith(penstock._WITH_PAGES) and name not in ("Inbox", "RateLimit"):
        return place.partition(".")[0]
    if name.startswith("from_"):
        return "sources"
    if name in limits.__all__ or name == "RateLimit":
        return "limits"
    return "streams"


def pages() -> dict[str, str]:
    """The Markdown of each page of the reference, by its path below docs/."""
    every = entries()
    made = {entry.path: page(entry, every) for entry in every}
    made["reference/index.md"] = _index(every)
    return made


def _index(every: list[Entry]) -> str:
    lines = ["# Reference", "", "Every public name, with its signature, its bounds and its errors."]
    for section, title in TITLES.items():
        lines += ["", f"## {title}", "", "| name | |", "| --- | --- |"]
        for entry in every:
            if entry.section == section:
                link = entry.path.removeprefix("reference/")
                first = _first_sentence(entry.thing).replace("|", "\\|")
                lines.append(f"| [`{entry.name}`]({link}) | {_escaped(first)} |")
    return "\n".join(lines) + "\n"


def _first_sentence(thing: Any) -> str:
    return " ".join(_docstring(thing).partition("\n\n")[0].split())


def _docstring(thing: Any) -> str:
    """The docstring of what is public; that of a built-in base says nothing of it."""
    if not (inspect.isroutine(thing) or inspect.isclass(thing) or inspect.ismodule(thing)):
        thing = type(thing)
    text = inspect.getdoc(thing) or ""
    return "" if text.startswith(f"{getattr(thing, '__name__', '')}(") else text


def page(entry: Entry, every: list[Entry]) -> str:
    """The Markdown of the page of one name."""
    # The names of Rx are words of everyday, such as `repeat`; those of `penstock` come first.
    links = {other.name: other for other in every if other.section != "rx"}
    thing = entry.thing
    parts = [f"# {entry.title}", _code(f"from {entry.package} import {entry.name}")]
    sentence, *rest = _docstring(thing).split("\n\n")
    # The diagram stands beside the sentence; a long signature would push it out of sight.
    seen = 1 if rest and rest[0].startswith("    ") else 0
    parts.append(_body("\n\n".join([sentence, *rest[:seen]]), entry, links))
    shown = _signatures(entry.name, thing)
    if shown:
        parts.append(_code(shown))
    parts.append(_body("\n\n".join(rest[seen:]), entry, links))
    if inspect.isclass(thing):
        parts += _members(thing, entry, links)
    return "\n\n".join(part for part in parts if part) + "\n"


def _members(cls: type, entry: Entry, links: dict[str, Entry]) -> Iterator[str]:
    fields = {
        name: annotation
        for base in reversed(cls.__mro__)
        if base.__module__.startswith("penstock")
        for name, annotation in vars(base).get("__annotations__", {}).items()
        if not name.startswith("_")
    }
    if fields:
        yield "## Fields"
        yield "\n".join(f"- `{name}: {_plain(kind)}`" for name, kind in fields.items())
    members = {
        name: member
        for base in reversed(cls.__mro__)
        if base.__module__.startswith("penstock")
        for name, member in vars(base).items()
        if not name.startswith("_") and name not in fields and _is_member(member)
    }
    if members:
        yield "## Members"
    for name, member in sorted(members.items()):
        plain = getattr(member, "__func__", member)
        function = member.fget if isinstance(member, property) else plain
        yield f"### {name}"
        if isinstance(member, property):
            yield _code(f"{name}: {_returns(member.fget)}")
        else:
            yield _code(_signatures(name, function))
        yield _body(inspect.getdoc(getattr(cls, name)) or "", entry, links)


def _is_member(member: Any) -> bool:
    return inspect.isfunction(member) or isinstance(member, property | classmethod | staticmethod)


def _returns(function: Any) -> str:
    return _plain(inspect.signature(function).return_annotation)


def _plain(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return "Any"
    if isinstance(annotation, str):
        return annotation.strip("\"'")
    return getattr(annotation, "__name__", str(annotation))


def _spelt_out(annotation: str, module: dict[str, Any]) -> str:
    """An annotation with the values of options in place of a name that the module has for them."""

    def spelt(match: re.Match[str]) -> str:
        return _values(module.get(match[0])) or match[0]

    return re.sub(r"\b[A-Z]\w*\b(?!\[)", spelt, annotation)


def _values(alias: Any) -> str:
    """`Literal["a", "b"] | Route` as text; "" for anything but literals and unions of them."""
    if get_origin(alias) is Literal:
        return f"Literal[{', '.join(map(repr, get_args(alias)))}]"
    if get_origin(alias) not in (Union, UnionType):
        return ""
    parts = [
        one.__name__ if inspect.isclass(one) and not get_args(one) else _values(one)
        for one in get_args(alias)
    ]
    return " | ".join(parts) if all(parts) else ""


def _signatures(name: str, thing: Any) -> str:
    """Each overload, or the one signature; nothing for what is not called."""
    if inspect.isclass(thing):
        if _MADE.search(_docstring(thing)) or issubclass(thing, BaseException):
            return ""
        function: Callable[..., Any] = thing
    elif callable(thing) and inspect.isroutine(thing):
        function = thing
    else:
        return ""
    variants = get_overloads(function) if inspect.isfunction(function) else []
    try:
        whole = inspect.signature(function).parameters
    except ValueError:  # a protocol, or a built-in base
        return ""
    # An overload writes `...` for a default, whose value the function itself has.
    defaults = {key: parameter.default for key, parameter in whole.items()}
    return "\n\n".join(_signature(name, variant, defaults) for variant in variants or [function])


def _signature(name: str, function: Callable[..., Any], defaults: dict[str, Any]) -> str:
    signature = inspect.signature(function)
    shown: list[str] = []
    previous = None
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        positional = inspect.Parameter.POSITIONAL_ONLY
        if previous is not None and previous == positional != parameter.kind:
            shown.append("/")
        keyword = inspect.Parameter.KEYWORD_ONLY
        if parameter.kind == keyword and previous not in (
            keyword,
            inspect.Parameter.VAR_POSITIONAL,
        ):
            shown.append("*")
        if parameter.default is ...:
            parameter = parameter.replace(default=defaults.get(parameter.name, ...))
        # The options of a handler are annotated where they are defined.
        names = vars(options) | vars(sys.modules[function.__module__])
        shown.append(_parameter(parameter, names))
        previous = parameter.kind
    if previous == inspect.Parameter.POSITIONAL_ONLY:
        shown.append("/")
    end = signature.return_annotation
    to = "" if inspect.isclass(function) or end is signature.empty else f" -> {_plain(end)}"
    line = f"{name}({', '.join(shown)}){to}"
    if len(line) <= 80:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in shown) + f"){to}"


def _parameter(parameter: inspect.Parameter, module: dict[str, Any]) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    text: str = next((s for kind, s in stars.items() if kind == parameter.kind), "")
    text += parameter.name
    kind = parameter.annotation
    typed = kind is not parameter.empty
    if typed:
        text += f": {_spelt_out(_plain(kind), module)}"
    if parameter.default is not parameter.empty:
        unsaid = parameter.default is ... or " object at 0x" in repr(parameter.default)
        default = "..." if unsaid else repr(parameter.default)
        text += f" = {default}" if typed else f"={default}"
    return text


def _code(text: str, language: str = "python") -> str:
    return f"```{language}\n{text}\n```"


def _body(text: str, entry: Entry, links: dict[str, Entry]) -> str:
    """A docstring as Markdown."""
    return "\n\n".join(_part(part, entry, links) for part in text.split("\n\n") if part.strip())


def _part(part: str, entry: Entry, links: dict[str, Entry]) -> str:
    if all(line.startswith("    ") for line in part.splitlines()):
        if is_marble(part) and entry.section != "temporal":
            return f'<div class="marble-box">{draw(part)}</div>'
        return _code(inspect.cleandoc(part), "text")
    if part.startswith(">>>"):
        return _code(part, "pycon")
    pieces = _LABELLED.split(part)
    if len(pieces) == 1:
        return _linked(_escaped(part), entry, links)
    before, *labelled = pieces
    lines = [_linked(_escaped(before.strip()), entry, links)] if before.strip() else []
    for label, said in zip(labelled[::2], labelled[1::2], strict=True):
        words = _linked(_escaped(" ".join(said.split())), entry, links)
        lines.append(f"**{label}**\n:   {words}")
    return "\n\n".join(lines)


def _escaped(text: str) -> str:
    """Outside code, characters that Markdown would read as marks."""
    spans = re.split(r"(`[^`]*`)", text)
    return "".join(
        span if span.startswith("`") else re.sub(r"([*_<\[\]])", r"\\\1", span) for span in spans
    )


def _linked(text: str, entry: Entry, links: dict[str, Entry]) -> str:
    """Names of the reference become links, once each, and so do pages of docs/."""
    seen = {entry.name} | _COMMON

    def link(found: re.Match[str]) -> str:
        name = found[1]
        other = links.get(name)
        if other is None or name in seen:
            return found[0]
        seen.add(name)
        return f"[{found[0]}](../{other.section}/{other.file}.md)"

    text = re.sub(r"`([A-Za-z_]\w*)(?:\([^`]*)?`", link, text)
    return re.sub(r"\bdocs/([\w/-]+\.md)", r"[\1](../../\1)", text)
