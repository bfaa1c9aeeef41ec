"""Why a tree cannot be read, in words for its owner. Pure."""

import errno
from os import fsencode

LONGEST_SHOWN = 200


class TreeProblem(Exception):
    """An operation on a tree that cannot go on. `code` as in `Trouble` of sandbox/protocol/tree.py; the text is
    printable and says what to do."""

    def __init__(self, code: str, error: str) -> None:
        super().__init__(error)
        self.code, self.error = code, error


class UnreadableFile(TreeProblem):
    """The owner's permissions forbid reading one file or directory. The rest of the tree is readable."""


def printable(path: bytes) -> str:
    """`path` for people: one line without control characters, its middle left out if it is long."""
    text = path.decode("utf-8", "backslashreplace")
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    if len(shown) <= LONGEST_SHOWN:
        return shown
    half = LONGEST_SHOWN // 2
    return f"{shown[:half]}...{shown[-half:]}"


def unreadable(path: str, error: OSError) -> TreeProblem:
    reason = error.strerror or "it cannot be opened"
    advice = "make it readable, or name it in .holdfastignore"
    kind = UnreadableFile if is_forbidden(error) else TreeProblem
    return kind("failed", f"{printable(fsencode(path))} cannot be read: {reason}: {advice}")


def is_forbidden(error: OSError) -> bool:
    """Whether a mode says so. Any other error may be over the next time, or is the disk's."""
    return error.errno in (errno.EACCES, errno.EPERM)
