"""The operators inside groups, as the function `each` makes them of each group's stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.streams.base.errors import BuildError
from penstock.streams.groups.grouped import Group, described
from penstock.streams.groups.substream import Substream
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.stream import Whole

__all__ = ["Operators"]


class Operators:
    """The operators inside the groups of one `group_by`.

    `each` is called for each group. What it makes is described and checked for the first one; the
    stages of the others that are made in the same way have the same descriptions.

    Operators that only make a value of all events of their group are not attached. Which value that
    is has `whole` for the key of each such group, until `forget`; once it cannot depend on the
    group, it has that for all, and `each` is not called any more: `is_known`.
    """

    def __init__(self, each: Callable[[Any], Flowable[Any]], run: Run, info: StageInfo) -> None:
        self.is_known = False
        self._each = each
        self._run = run
        self._info = described(info)
        self._known: dict[int, tuple[StageInfo, StageInfo, StageInfo]] = {}
        # Of the last group, and then of every one; and of those before that was known.
        self._last: Whole | None = None
        self._of_keys: dict[Any, Whole] = {}

    def attach(self, substream: Substream, *, gathers: bool) -> bool:
        """Attach a group's operators. False for those that only make a value of all its events, if
        it `gathers` them."""
        stream: Group[Any, Any] = Group(substream.key, substream.attach, self._info)
        stream.known = self._known
        flowable = self._each(stream)
        if not isinstance(flowable, Flowable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BuildError(
                f"group_by(each=...) must return a Flowable such as group.pipe(...), "
                f"not {type(flowable).__name__}"
            )
        for stage in flowable.chain():
            if stage.info.placement.works:
                raise BuildError(
                    f"{stage.info.name} inside group_by(each=...) would have a limit of its own in "
                    "every group: put it after spread(), where all groups share one"
                )
        whole = flowable.whole
        if whole is None or flowable.above is not stream or not gathers:
            flowable.attach(substream, self._run)
            return True
        if not stream.is_key_read and whole is self._last:
            # The operators do not depend on the group, so they are the same in every one.
            self.is_known = True
        self._last = whole
        self._of_keys[substream.key] = whole
        return False

    def whole(self, key: Any) -> Whole | None:
        """What the operators of this group make of all its events."""
        of_key = self._of_keys.get(key)
        return self._last if of_key is None else of_key

    def forget(self, key: Any) -> None:
        """The group has ended."""
        self._of_keys.pop(key, None)
