"""A format of lines: the meaning of each, as of JSON, or as a user's function decodes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from inspect import iscoroutinefunction, isgeneratorfunction
from typing import Any, Generic, NamedTuple, TypeVar, get_origin, is_typeddict

from penstock.streams.base.errors import BuildError
from penstock.streams.base.validation import require_parameters
from penstock.streams.io.body import NotAValue
from penstock.streams.io.lines import Line, LineSplitter, Splitter
from penstock.streams.protocol.fields import decoded_type

__all__ = ["Format", "decoding"]

T = TypeVar("T")


class Format(NamedTuple, Generic[T]):
    """The meaning of a line.

    `decode` takes the bytes of one line without its end, and raises `NotAValue` for a bad one.
    `decode_all`, for speed, takes several, and returns None if one of them may be bad or blank.
    `values` is the type of the values, where it is known.
    `repeatable`: no function is the user's, so that another process may decode lines again.
    `splitter` is made with the most bytes of a line. `headed`, if the first line that is not blank
    is a header, takes it, and returns the format of the lines after it; it raises CannotOpen, with
    the end of a sentence that begins with the name of the file. If the very first line is a bad
    one, and is what `foreign` says, the input is of another format and is not read.
    """

    decode: Callable[[bytes], T]
    decode_all: Callable[[list[Line]], list[T] | None]
    skips_blank: bool
    values: Any = None
    repeatable: bool = False
    splitter: Callable[[int], Splitter] = LineSplitter
    headed: Callable[[bytes], Format[T]] | None = None
    foreign: Callable[[bytes], str] | None = None


# Any: what a user's function returns.
def decoding(source: str, decode: Any, skips_blank: bool) -> Format[Any]:
    """The format whose values `decode` makes of the bytes of a line.

    A line for which it raises is a bad line, unless memory runs out. Raises BuildError if it cannot
    be called with bytes.
    """
    function = _function(source, decode)

    def decoded(line: bytes) -> Any:
        try:
            return function(line)
        except (NotAValue, MemoryError):
            raise
        except Exception as error:
            # The first line: what follows in a validator's error is for logs of many lines.
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise NotAValue(f"cannot be decoded ({type(error).__name__}: {reason})") from error

    return Format(decoded, _one_by_one, skips_blank, decoded_type(decode))


def _one_by_one(lines: list[Line]) -> None:
    """An arbitrary function sees each line once."""


def _function(source: str, decode: Any) -> Callable[[bytes], Any]:
    if hasattr(decode, "__struct_fields__"):  # a msgspec Struct
        from msgspec.json import Decoder

        decode = Decoder(decode)
    # A model of pydantic, or a TypeAdapter; a Decoder of msgspec.
    methods = ["model_validate_json"] if isinstance(decode, type) else ["validate_json", "decode"]
    for method in methods:
        function: Callable[[bytes], Any] | None = getattr(decode, method, None)
        if callable(function):
            return function
    if not _is_plain(decode):
        raise BuildError(
            f"{source}(decode={decode!r}): give a plain function of the bytes of a line, a msgspec "
            "Struct or a pydantic model; for other types a decoder, such as "
            "msgspec.json.Decoder(list[int]); what has to be awaited belongs in adaptive_flat_map"
        )
    require_parameters(decode, f"{source}(decode=...)", 1, "the bytes of a line")
    plain: Callable[[bytes], Any] = decode
    return plain


def _is_plain(decode: object) -> bool:
    """Whether this makes a value when it is called with bytes, and is meant to."""
    if iscoroutinefunction(decode) or isgeneratorfunction(decode):
        return False
    return callable(decode) and not (
        get_origin(decode) is not None or is_dataclass(decode) or is_typeddict(decode)
    )
