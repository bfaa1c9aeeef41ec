"""Where Gemini CLI keeps its conversations. Pure.

It keeps a conversation in a file that is called after the minute in which it was made, and erases one that it loads in
that minute: so the file gets a name of another minute before the start. It goes on in that file, and makes one more of
the old name, which is put aside.
"""

import re
from collections.abc import Collection, Sequence

from sandbox.agents.core import HomeMove

NAMES = re.compile(r"[A-Za-z0-9_-]{8,128}")  # of conversations, which are in names of files


def conversations(session: str) -> Sequence[str]:
    """Patterns of the files that may have this conversation."""
    return (f".gemini/tmp/*/chats/session-*{session[:8]}.jsonl",) if NAMES.fullmatch(session) else ()


def moves(session: str, found: Collection[str]) -> list[HomeMove]:
    """What to do with those that were found before it is loaded."""
    return [HomeMove(each, f"session-2000-01-01T00-00-{session[:8]}.jsonl") for each in found]
