from __future__ import annotations

import pickle
from threading import Lock
from typing import Any

import pytest

from penstock.streams.base.errors import JobFailed, notes_of
from penstock.streams.failures.sent_error import SentError, sendable


class OfCode(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class OfTwo(ValueError):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")
        self.both = (first, second)


class ByName(LookupError):
    def __init__(self, *, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"no {self.name}"


class Unavailable(OSError):
    def __init__(self, host: str) -> None:
        super().__init__(111, f"{host} is unavailable")


class NoFile(OSError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "no file", path)


class NoPlugin(ImportError):
    def __init__(self, name: str) -> None:
        super().__init__(f"no plugin {name}", name=name)


class Ends(SystemExit):
    def __init__(self, code: int, why: str) -> None:
        super().__init__(code)
        self.why = why


class Slotted(Exception):
    __slots__ = ("__at", "code")

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = 0
        self.__at = text[0]

    @property
    def at(self) -> str:
        return self.__at


class SlottedByCode(Slotted):
    __slots__ = ("more", "never")

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.more = [code]


class PicklesItself(Exception):
    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        super().__init__("code")
        self.code = code

    def __reduce__(self) -> Any:
        return type(self), (self.code + 1,)


class Locked(Exception):
    def __init__(self) -> None:
        super().__init__("locked")
        self.lock = Lock()


def arrived(error: BaseException) -> Any:
    return pickle.loads(pickle.dumps(sendable(error)))


@pytest.mark.parametrize(
    "error",
    [
        OfCode(5),
        OfTwo(1, 2),
        ByName(name="x"),
        Unavailable("here"),
        NoFile("a.txt"),
        NoPlugin("b"),
        Ends(3, "done"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
        StopIteration(7),
        ExceptionGroup("both", [ValueError(1)]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_arrives_with_its_type_text_arguments_and_notes(error: BaseException) -> None:
    error.add_note("on the event 3")
    found = arrived(error)
    assert (type(found), str(found), notes_of(found)) == (type(error), str(error), notes_of(error))
    # What an error group has in it is equal to nothing else.
    assert repr(found.args) == repr(error.args)
    assert set(vars(found)) == set(vars(error))


def test_what_built_in_classes_keep_of_an_error_arrives_too() -> None:
    assert (arrived(Ends(3, "done")).code, arrived(Unavailable("here")).errno) == (3, 111)
    assert (arrived(NoFile("a.txt")).filename, arrived(NoPlugin("b")).name) == ("a.txt", "b")


def test_what_an_error_keeps_in_slots_arrives_too() -> None:
    plain, by_code = Slotted("text"), SlottedByCode(3)
    plain.code = by_code.code = 7
    plain.add_note("on the event 3")
    found = arrived(plain)
    assert (str(found), found.code, found.at, notes_of(found)) == ("text", 7, "t", notes_of(plain))
    found = arrived(by_code)
    assert (str(found), found.code, found.at, found.more) == ("code 3", 7, "c", [3])
    assert not hasattr(found, "never")


def test_an_error_that_says_how_it_is_pickled_arrives_so() -> None:
    assert arrived(PicklesItself(1)).code == 2


def test_an_error_that_cannot_be_pickled_arrives_in_words() -> None:
    found = arrived(Locked())
    assert (type(found), str(found)) == (JobFailed, "Locked: 'locked'")
    assert SentError.of(Locked()).origin is None


def test_the_cause_of_the_error_is_its_traceback_where_it_was_raised() -> None:
    try:
        raise OfTwo(1, 2)
    except OfTwo as error:
        sent = pickle.loads(pickle.dumps(SentError.of(error)))
    found = sent.raised()
    assert type(found) is OfTwo
    assert "raise OfTwo(1, 2)" in str(found.__cause__)
