"""Every reason of a nack: its text for people, and whether a client sends the message again by itself. Pure.

Our clients follow `again`; `tests/vectors/nacks.json` holds both to it.
"""

from dataclasses import dataclass
from enum import StrEnum

BEGIN = "<!-- nacks: written by `make tables` from gateway/protocol/nacks.py -->"
END = "<!-- end of nacks -->"


class SendAgain(StrEnum):
    NEVER = "never"
    DECIDED = "when a person says so"  # the cause may last for hours: retries would hold up younger messages
    PAUSED = "after a pause, a few times"
    CONNECTED = "on the next connection"


@dataclass(frozen=True, slots=True)
class Nack:
    """`text` is the default `error`, "" for none; `docs` is for the table."""

    again: SendAgain
    text: str
    docs: str


NACKS = {
    "invalid": Nack(SendAgain.NEVER, "", "the frame is wrong; `error` says what"),
    "start_too_large": Nack(SendAgain.NEVER, "", "a `start` has more than 64 KiB"),
    "read_only": Nack(SendAgain.NEVER, "", "the token is for looking"),
    "archived": Nack(
        SendAgain.NEVER,
        "the session is archived: create it again to revive its conversation",
        "the session is archived: create it again to revive its conversation",
    ),
    "already_answered": Nack(SendAgain.NEVER, "", "another viewer answered the permission or question first"),
    "unknown_request": Nack(SendAgain.NEVER, "", "there is no such permission or question, or it ended"),
    "rejected": Nack(
        SendAgain.NEVER,
        "the store does not take this record",
        "the store will never take this record, and `error` says why. If it was accepted before, the agent may have "
        "had it. Its `cid` is free: sent again, it is another record. If it answers a permission or question and the "
        "agent has not had it, the request stays open",
    ),
    "stored_too_much": Nack(
        SendAgain.DECIDED,
        "this user has reached the limit of stored bytes (HOLDFAST_MAX_STORED_PER_USER)",
        "the message was not stored: its user has reached the limit of stored bytes",
    ),
    "buffer_full": Nack(
        SendAgain.DECIDED,
        "the sandbox is away and its pending window is full: try again when it is back",
        "the message was not stored: the sandbox is away, and the window of messages that wait for it is full",
    ),
    "storage_full": Nack(
        SendAgain.DECIDED,
        "there is no room left to store it: try again later",
        "the message was not stored: the disk or the spool is full",
    ),
    "storage_unavailable": Nack(
        SendAgain.PAUSED,
        "the store does not answer: try again later",
        "the message was not stored: the store does not answer",
    ),
    "busy": Nack(
        SendAgain.PAUSED,
        "the agent is behind: try again later",
        "the message was not stored: too many messages wait for the agent already",
    ),
    "owner_moved": Nack(
        SendAgain.CONNECTED,
        "another gateway has the session: connect again and send it again, with the same cid",
        "the message was not stored: another gateway has the session now; close code 4409 follows",
    ),
}


def again(reason: str) -> SendAgain:
    """Whether to send again. Never for an unknown reason, which another version may use."""
    return NACKS[reason].again if reason in NACKS else SendAgain.NEVER


def text_of(reason: str) -> str | None:
    """The default text for the sender."""
    return (NACKS[reason].text or None) if reason in NACKS else None


def table() -> str:
    rows = [f"| `{reason}` | {nack.docs} | {nack.again} |" for reason, nack in NACKS.items()]
    return "\n".join(["| nack | meaning | our clients send it again |", "|---|---|---|", *rows]) + "\n"
