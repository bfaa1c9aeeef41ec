"""Every close code, its reason, and whether the client should come back. Pure."""

from enum import IntEnum

BEGIN = "<!-- close codes: written by `make tables` from gateway/protocol/close_codes.py -->"
END = "<!-- end of close codes -->"


class CloseCode(IntEnum):
    FINISHED = 1000
    TOO_LONG = 1009
    FAILED = 1011
    COMING_BACK = 1012
    BAD_FRAME = 4400
    TOKEN = 4401
    FORBIDDEN = 4403
    UNKNOWN = 4404
    TOO_SLOW = 4408
    OWNER_MOVED = 4409
    TOO_MANY = 4429

    @property
    def reason(self) -> str:
        return _MEANING[self][0]

    @property
    def come_back(self) -> bool:
        """Whether a client should connect again (with its last position, after a pause with jitter)."""
        return _MEANING[self][1]


_MEANING: dict[CloseCode, tuple[str, bool]] = {
    CloseCode.FINISHED: ("finished", False),
    CloseCode.TOO_LONG: ("a message is too long", False),
    CloseCode.FAILED: ("the session failed, come back", True),
    CloseCode.COMING_BACK: ("the gateway restarts, come back", True),
    CloseCode.BAD_FRAME: ("unreadable frame", False),
    CloseCode.TOKEN: ("the token is missing, bad or expired", False),
    CloseCode.FORBIDDEN: ("forbidden", False),
    CloseCode.UNKNOWN: ("no such session", False),
    CloseCode.TOO_SLOW: ("too slow, resume from your last offset", True),
    CloseCode.OWNER_MOVED: ("the session moved, come back", True),
    CloseCode.TOO_MANY: ("too many connections", True),
}
# For the docs, where the reason on the wire does not say it.
_WORDS = {
    CloseCode.TOO_LONG: "a message is longer than `HOLDFAST_MAX_FRAME_BYTES`",
    CloseCode.TOO_SLOW: "too slow",
    CloseCode.OWNER_MOVED: "another gateway has the session",
}
_HOW = {
    CloseCode.TOKEN: "with a new token",
    CloseCode.TOO_SLOW: "yes, from the last offset",
    CloseCode.TOO_MANY: "yes, later",
}


def table() -> str:
    rows = [
        f"| {int(code)} | {_WORDS.get(code, code.reason.removesuffix(', come back'))} "
        f"| {_HOW.get(code, 'yes' if code.come_back else 'no')} |"
        for code in CloseCode
    ]
    return "\n".join(["| code | meaning | come back? |", "|---|---|---|", *rows]) + "\n"
