"""Shared by all JSON messages between gateway and bridge: the bounds of their members, reading, refusing. Pure.

Neither end trusts the other. A message is read into a struct by one decoder, which checks every member. The text of a
WireError never repeats the message, so it may be shown and logged.
"""

import re
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

MAX_NUMBER = 2**53 - 1
MAX_REASON = 1000
MAX_ARGUMENTS = 4096

EPOCH = re.compile(r"[A-Za-z0-9_-]{1,64}")

# msgspec searches, so a pattern says where it begins and ends.
Number = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
EpochName = Annotated[str, Meta(pattern=rf"^{EPOCH.pattern}\Z")]
ExitCode = Annotated[int, Meta(ge=0, le=255)]
Text = Annotated[str, Meta(pattern=r"^[^\0]*\Z")]  # as a system call takes it
Arguments = Annotated[list[Text], Meta(min_length=1, max_length=MAX_ARGUMENTS)]
SignalName = Annotated[str, Meta(pattern=r"^[A-Z0-9+]{1,16}\Z")]

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+")
# How msgspec ends the text of an error: with the path of the member at fault, or with the name of a missing one.
_MEMBER = re.compile(r"`\$\.(\w+)[^`]*`\Z|missing required field `(\w+)`\Z")

T = TypeVar("T")


class WireError(Exception):
    """The other end broke the protocol; the connection is useless from here on. `member` is the wrong member, if the
    message has it."""

    def __init__(self, text: str, member: str = "") -> None:
        super().__init__(text)
        self.member = member


class NotJson(WireError):
    """It is no JSON at all."""


class Message(msgspec.Struct, frozen=True, tag_field="type"):
    """One JSON object. Its class gives its `type`; members it does not know are skipped."""


def read(decoder: "msgspec.json.Decoder[T]", text: bytes | str) -> T:
    """Read one message. Raises WireError."""
    try:
        if isinstance(text, bytes) and not text.isascii():
            text.decode()  # msgspec does not check what it skips
        return decoder.decode(text)
    except msgspec.ValidationError as exc:
        raise refusal(exc) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise NotJson("control message is not JSON") from None


def refusal(error: msgspec.ValidationError) -> WireError:
    """The same in words that repeat nothing."""
    cause = str(error)
    if cause.startswith("Object contains unknown field"):  # whose name must not be repeated
        return WireError("unknown member")
    found = _MEMBER.search(cause)
    if found is None:
        return WireError("control message is not an object")
    member = found[1] or found[2]
    return WireError("unknown control message" if member == "type" else f"bad {member}", member)


def clip(reason: str) -> str:
    """One line that fits, whatever it contains."""
    clean = reason.encode(errors="replace").decode()  # a lone surrogate (an odd file name) cannot be sent
    return _CONTROL_CHARACTERS.sub(" ", clean)[:MAX_REASON]
