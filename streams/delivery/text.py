"""The text of a ledger: what is written beside a committed offset, into a position, as a floor.

Such a text outlives its writer, and others may move it: MirrorMaker copies what is beside an offset
to another offset of another cluster, a restore puts an old file back, a tool resets an offset. So a
text says for what it was written, and a reader names what it asks for; whatever was written for
anything else, was damaged, or has another format, is not read.

    penstock2:16a8e5a4:orders/0/10:AQE=
    |        ||        |           the body
    |        ||        what it is about, each part quoted as in a URL
    |        |the CRC-32 of all that follows, as 8 digits
    |        the version of the format
    the mark

A CRC-32 finds every change of up to 32 bits beside each other, such as one character of another;
of other changes it misses one in 4,000,000,000. It does not protect from an author who means to
deceive.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote
from zlib import crc32

__all__ = ["About", "Unusable", "body_in", "text_of", "text_size"]

About = tuple[str | int, ...]
"""What a text is about, such as topic, partition and offset. A number is the same as its digits."""

_VERSION = 2
_TEXT = re.compile(r"penstock(\d+)([a-z]?):")
_REST = re.compile(r"([0-9a-f]{8}):(([^:]*):(.*))", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Unusable:
    """The reason for which the body of a text is not used: its name, and as part of a sentence.

    `foreign`: penstock has not written it. `version`: it has another format. `damaged`: it is not
    as it was written. `moved`: it was written for something else than what was asked for.
    """

    name: Literal["foreign", "version", "damaged", "moved"]
    why: str

    def __str__(self) -> str:
        return self.why


def text_of(about: About, body: str) -> str:
    """The text with this body, which `body_in` reads for what is equal to `about`. It has as many
    characters as `text_size(about)` more than the body. Time: O(n)."""
    rest = f"{_quoted(about)}:{body}"
    return f"penstock{_VERSION}:{_checksum(rest)}:{rest}"


def text_size(about: About) -> int:
    """How many characters a text has beside its body; all are ASCII."""
    return len(text_of(about, ""))


def body_in(text: str, about: About) -> str | Unusable:
    """The body of a text that `text_of` made for what is equal to `about`, or the reason why it is
    not used. No text, and no bytes of one, raises. Time: O(n)."""
    head = _TEXT.match(text)
    if head is None:
        return Unusable("foreign", "penstock has not written it")
    version = head[1] + head[2]
    if version != str(_VERSION):
        return Unusable("version", f"it has version {version} of the format, this reads {_VERSION}")
    parts = _REST.fullmatch(text, head.end())
    if parts is None or parts[1] != _checksum(parts[2]):
        return Unusable("damaged", "its checksum is not that of its content")
    written_for, asked = parts[3], _quoted(about)
    if written_for != asked:
        return Unusable("moved", f"it was written for {written_for}, not for {asked}")
    return parts[4]


def _quoted(about: About) -> str:
    return "/".join(quote(str(part), " ", errors="surrogatepass") for part in about)


def _checksum(rest: str) -> str:
    # What is damaged may have halves of characters.
    return f"{crc32(rest.encode('utf-8', 'surrogatepass')):08x}"
