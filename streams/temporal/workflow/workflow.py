"""Workflow graphs: steps, the facts about each, and which step may follow which.

A step may be followed by its `goto` steps, and by any other step that waits for an `input`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from os import PathLike
from typing import Any

from penstock.streams.base.errors import BuildError, CannotOpen, describe

__all__ = ["Node", "Workflow", "WorkflowError", "near", "read_workflow"]


class WorkflowError(BuildError, ValueError):
    """A workflow or a rule is invalid; the message names the node."""


@dataclass(frozen=True, slots=True)
class Node:
    """One step.

    `goto` are the steps that may come next. A step with an `input`, the name of what it waits for,
    may come after any other. `through` and `not_through` are the conditions for coming here, see
    `penstock.streams.temporal.workflow.rule.conditions`. `labels` are further facts.
    """

    name: str
    goto: tuple[str, ...] = ()
    input: tuple[str, ...] = ()
    through: tuple[str, ...] = ()
    not_through: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def facts(self) -> frozenset[str]:
        """Its facts: its name, its labels, and `input` if it waits for one."""
        return frozenset((self.name, *self.labels, *(("input",) if self.input else ())))


_FACTS = ("goto", "input", "through", "not_through", "labels")


class Workflow:
    """Nodes by name, in order; `inputs` are the names of those with an input. Immutable.

    Raises WorkflowError if there are no nodes, if two have the same name, and if one refers to a
    node that does not exist.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes: dict[str, Node] = {}
        for node in nodes:
            if node.name in self.nodes:
                raise WorkflowError(f"there are two nodes named {node.name!r}")
            self.nodes[node.name] = node
        if not self.nodes:
            raise WorkflowError("the workflow has no nodes")
        for node in self.nodes.values():
            for fact in ("goto", "through", "not_through"):
                for name in getattr(node, fact):
                    if name not in self.nodes:
                        raise WorkflowError(
                            f"node {node.name!r} has {fact} {name!r}, which is not a node"
                            + near(name, self.nodes)
                        )
        self.inputs = tuple(name for name, node in self.nodes.items() if node.input)

    @property
    def facts(self) -> frozenset[str]:
        """All facts of all nodes."""
        return frozenset(fact for node in self.nodes.values() for fact in node.facts)

    def following(self, name: str) -> dict[str, str]:
        """The nodes that may come after a node, and whether by `goto` or `input`."""
        found = dict.fromkeys(self.nodes[name].goto, "goto")
        for other in self.inputs:
            if other != name:
                found.setdefault(other, "input")
        return found

    def arcs(self) -> Iterator[tuple[str, str, str]]:
        """(from, to, "goto" or "input") of each arc."""
        for name in self.nodes:
            for other, kind in self.following(name).items():
                yield name, other, kind

    @staticmethod
    def of(nodes: Mapping[str, Mapping[str, Any]]) -> Workflow:
        """The workflow of an object such as `{"a": {"goto": ["b"]}, "b": {"input": "form"}}`.

        A fact is a text or a list of texts. Raises WorkflowError for anything else.
        """
        if not isinstance(nodes, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WorkflowError(f"nodes must be an object of nodes by name, not {describe(nodes)}")
        return Workflow(_node(name, facts) for name, facts in nodes.items())


def _node(name: str, facts: Mapping[str, Any]) -> Node:
    if not isinstance(facts, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WorkflowError(f"node {name!r} must be an object of its facts, not {describe(facts)}")
    read: dict[str, tuple[str, ...]] = {}
    for fact, value in facts.items():
        if fact not in _FACTS:
            raise WorkflowError(
                f"node {name!r} has {fact!r}, which is not a fact: use {', '.join(_FACTS)}"
                + near(str(fact), _FACTS)
            )
        values: list[Any] = [value] if isinstance(value, str) else value
        if type(values) is not list or not all(isinstance(one, str) for one in values):
            raise WorkflowError(
                f"node {name!r} has {fact} {describe(value)}: a text or a list of texts is needed"
            )
        read[fact] = tuple(dict.fromkeys(values))
    return Node(name, **read)


def near(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known: a guess, if one is like it."""
    found = get_close_matches(name, list(known), 1)
    return f". Did you mean {found[0]!r}?" if found else ""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is there twice")
    return found


def read_workflow(path: str | PathLike[str]) -> Workflow:
    """Read `{"nodes": {...}}`, see `Workflow.of`, from a file of JSON.

    Raises CannotOpen, and WorkflowError with the file's name for invalid content.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            content: dict[str, Any] = json.load(file, object_pairs_hook=_unique)
    except OSError as error:
        raise CannotOpen(f"Cannot read {path}: {error.strerror}") from error
    except RecursionError:
        raise WorkflowError(f"{path} cannot be read as JSON: it is nested too deeply") from None
    except ValueError as error:
        raise WorkflowError(f"{path} cannot be read as JSON: {error}") from error
    if type(content) is not dict or "nodes" not in content:
        raise WorkflowError(f'{path} has no "nodes": {{"nodes": {{name: facts, ...}}}} is needed')
    try:
        return Workflow.of(content["nodes"])
    except WorkflowError as error:
        raise WorkflowError(f"{path}: {error}") from error
