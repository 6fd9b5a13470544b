"""Functions with names, for pipelines that are made of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock import ops

__all__ = [
    "Colour",
    "Config",
    "Prices",
    "client",
    "count",
    "inside",
    "is_large",
    "project",
    "refuses",
    "slowly",
    "starts",
]


async def project(order: Any) -> Any:
    return order


async def starts() -> None: ...


def refuses() -> Any:
    raise KeyError("no")


async def slowly(prices: Any, order: Any) -> Any:
    return prices, order


def client(order: Any) -> Any:
    return order["client"]


def is_large(order: Any) -> bool:
    return order["total"] > 100


def count(state: int | None, order: Any) -> tuple[int, int]:
    return (state or 0) + 1, (state or 0) + 1


class Colour(Enum):
    RED = 1


@dataclass(frozen=True)
class Config:
    """A handler that a file can name by what it is made of."""

    name: str
    sizes: tuple[int, ...] = ()

    def __call__(self, order: Any) -> Any:
        return self.name, order


class Prices:
    def look_up(self, order: Any) -> Any:
        return order

    @staticmethod
    def first(order: Any) -> Any:
        return order


def inside(group: Any) -> Any:
    return group.pipe(ops.pairwise())
