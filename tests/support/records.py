"""Records for tests, said short."""

from persistence.record import Record, Status, Write


def said(session_id: str, seq: int, cid: str | None = None, content: str = "hello") -> Write:
    """A write that appends a user's message."""
    payload = f'{{"type":"message","content":"{content}"}}'.encode()
    return Write(session_id, Record(session_id, seq, cid or f"c{seq}", "user", "message", payload, 1.0, Status.STORED))
