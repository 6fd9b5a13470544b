"""Decoders for `decode=`: functions of bytes, and the types of msgspec and pydantic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from inspect import iscoroutinefunction, isgeneratorfunction
from typing import Any, get_origin, is_typeddict

from penstock.streams.errors import BuildError
from penstock.streams.io.line_source import Format, NotAValue
from penstock.streams.io.lines import Line

__all__ = ["decoding"]


# Any: what a user's function returns.
def decoding(source: str, decode: Any, skips_blank: bool) -> Format[Any]:
    """The format whose values `decode` makes of the bytes of a line.

    A line for which it raises is a bad line. Raises BuildError if it cannot be called with bytes.
    """
    function = _function(source, decode)

    def decoded(line: bytes) -> Any:
        try:
            return function(line)
        except Exception as error:
            # The first line: what follows in a validator's error is for logs of many lines.
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise NotAValue(f"cannot be decoded ({type(error).__name__}: {reason})") from error

    return Format(decoded, _one_by_one, skips_blank)


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
    plain: Callable[[bytes], Any] = decode
    return plain


def _is_plain(decode: object) -> bool:
    """Whether this makes a value when it is called with bytes, and is meant to."""
    if iscoroutinefunction(decode) or isgeneratorfunction(decode):
        return False
    return callable(decode) and not (
        get_origin(decode) is not None or is_dataclass(decode) or is_typeddict(decode)
    )
