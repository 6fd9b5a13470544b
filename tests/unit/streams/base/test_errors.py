"""The module of errors exports every error class."""

from __future__ import annotations

import inspect

from penstock.streams.base import errors


def test_every_error_class_is_exported() -> None:
    classes = [
        name
        for name, one in inspect.getmembers(errors, inspect.isclass)
        if issubclass(one, BaseException) and one.__module__ == errors.__name__
    ]
    assert "PenstockError" in classes
    assert set(classes) - set(errors.__all__) == set()
