"""Small objects that are replaced, and so cannot be named by their content, carry its hash in their first line. Pure.

HFS1 <hash of the rest, 32 hex digits>
<JSON>
"""

from blake3 import blake3

from sync.errors import Damaged

MAGIC = b"HFS1 "
_HEAD = len(MAGIC) + 33


def seal(content: bytes) -> bytes:
    return MAGIC + _hash(content) + b"\n" + content


def unseal(what: str, sealed: bytes) -> bytes:
    """The sealed content. Raises Damaged, which calls it `what`."""
    content = sealed[_HEAD:]
    if sealed[:_HEAD] != MAGIC + _hash(content) + b"\n":
        raise Damaged(f"{what} differs from what was written")
    return content


def _hash(content: bytes) -> bytes:
    return blake3(content).hexdigest(length=16).encode()
