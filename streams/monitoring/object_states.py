"""The states of a window stage whose states are objects, and not plain values."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Protocol, cast

from orjson import loads

from penstock.streams.state.codec import encoded
from penstock.streams.windows.states import WindowStates

__all__ = ["ObjectStates"]


class _Kept(Protocol):
    @abstractmethod
    def stored(self, state: Any, /) -> Any: ...

    @abstractmethod
    def restored(self, values: Any, /) -> Any: ...


class ObjectStates(WindowStates):
    """What keeps them says how they are `stored` as plain values, and `restored` from these."""

    def _read(self, data: bytes) -> Any:
        return cast(_Kept, self._windows).restored(loads(data))

    def _encoded(self, state: Any) -> bytes:
        return encoded(cast(_Kept, self._windows).stored(state))
