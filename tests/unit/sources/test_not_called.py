"""A source function that is used without being called."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import from_async_iterable, from_iterable
from penstock.streams.base.errors import BuildError
from tests.helpers.public_names import with_pages

MAKERS = [
    *(make for make in with_pages("sources").values() if not isinstance(make, type)),
    from_iterable,
    from_async_iterable,
]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_source_that_was_not_called_says_so(make: Any) -> None:
    with pytest.raises(BuildError, match=rf"{make.__name__}\(\.\.\.\)\.pipe"):
        make.pipe()
    with pytest.raises(BuildError, match=rf"{make.__name__}\(\.\.\.\)\.to"):
        make.to()
