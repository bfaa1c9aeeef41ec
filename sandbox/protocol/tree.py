"""Messages of one operation on a tree, between the gateway and a bridge. Pure: both ends import it.

The gateway opens a WebSocket `/tree` for each operation, sends one of `ScanAsk`, `RestoreAsk`, `SurveyAsk`,
`QuietAsk`, `ReleaseAsk`, and the connection ends with the operation. Every message is binary: MessagePack, one object.

A scan: the bridge sends `Batch`es. A batch holds finished entries and offers chunks, whose bytes the bridge has in
memory. The gateway answers `Want` with the numbers of the offers it lacks; the bridge sends those as `Frame`s, then the
next batch. So a file is read once, and the content sent is the content hashed. `ScanDone` is last. The gateway may then
send `Remember`: from now on that tree is called `token`, and a scan with that `base` reports differences only.

A restore: the gateway sends the tree as `RestoreEntries`, then `RestorePlan`. The bridge answers `Need` with the
chunks it lacks (it continues an interrupted restore of the same tree). The gateway sends `Frame`s in any order; the
bridge reports `Progress`. The gateway sends `RestoreEnd`; the bridge checks that everything is there, puts the new tree
in the old one's place in one step, and answers `Restored`.

While an operation takes its time, or waits for its turn, the bridge sends `Progress` now and then, in every operation:
a silent bridge counts as dead. `Trouble` ends any operation. A connection that ends before `ScanDone`, `Restored`,
`Survey` or `Done` is a failure.

The number of elements of each list is bounded, and checked before any of them is decoded: a few bytes may stand for a
large object.
"""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from sandbox.protocol.entry import Entry, Frame

MAX_TREE_MESSAGE = 16 << 20  # either way; the entry of the largest file there may be fits
BATCH_BYTES = 4 << 20  # of content that waits in the bridge for `Want`
BATCH_ENTRIES = 2000
MAX_SKIPPED = 1000  # listed by name; the rest is only counted
MAX_UNREAD = 100  # likewise
MAX_OFFERS = 100_000
MAX_REMOVED = 100_000
MAX_NEEDED = 16_384  # of one message

T = TypeVar("T")


class TreeWireError(Exception):
    """The other end broke the protocol; the operation is over."""


class _Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    pass


class TreeLimits(msgspec.Struct, frozen=True):
    """The bounds of a tree."""

    files: int = 1_000_000  # entries of any kind
    total_bytes: int = 64 << 30


class ScanAsk(_Message, frozen=True):
    base: str | None = None  # the token of the tree to compare with, if the bridge still knows it
    agent_skip: tuple[str, ...] = ()  # gitignore patterns of the part of `agent` that is not kept
    limits: TreeLimits = TreeLimits()


class Offer(msgspec.Struct, frozen=True, array_like=True):
    id: bytes
    size: int


class Batch(_Message, frozen=True):
    entries: Annotated[tuple[Entry, ...], Meta(max_length=BATCH_ENTRIES)] = ()
    # Removed paths of `base`; empty when the scan reports the whole tree.
    removed: Annotated[tuple[bytes, ...], Meta(max_length=MAX_REMOVED)] = ()
    offers: Annotated[tuple[Offer, ...], Meta(max_length=MAX_OFFERS)] = ()


class Want(_Message, frozen=True):
    offers: tuple[int, ...] = ()  # their places in the batch


class Chunks(_Message, frozen=True):
    """One frame of wanted chunks; `last` when the batch is complete. The gateway sends it, too, in a restore."""

    frame: Frame | None
    last: bool = False


class ScanDone(_Message, frozen=True, omit_defaults=True):
    base: str | None  # the batches are differences from this tree; None: they were the whole tree
    files: int  # regular files and symlinks of the whole tree
    total_bytes: int
    read_bytes: int  # bytes of content that were read and hashed
    # Sockets, FIFOs, devices; only some are listed.
    skipped: Annotated[tuple[bytes, ...], Meta(max_length=MAX_SKIPPED)] = ()
    skipped_count: int = 0
    moved: bool = False  # directories changed during the scan: what went from one to another may have been missed
    # Unreadable files and directories: reported as they were known before, else left out.
    unread: Annotated[tuple[bytes, ...], Meta(max_length=MAX_UNREAD)] = ()
    unread_count: int = 0


class Remember(_Message, frozen=True):
    token: str


class Done(_Message, frozen=True):
    pass


class RestoreAsk(_Message, frozen=True):
    token: str  # names the tree: the same token is the same tree
    aside: bool = False  # move the present tree aside instead of removing it


class RestoreEntries(_Message, frozen=True):
    entries: tuple[Entry, ...]


class RestorePlan(_Message, frozen=True):
    pass


class Need(_Message, frozen=True):
    ids: Annotated[tuple[bytes, ...], Meta(max_length=MAX_NEEDED)]
    last: bool


class Progress(_Message, frozen=True):
    files: int
    total_bytes: int


class RestoreEnd(_Message, frozen=True):
    pass


class Restored(_Message, frozen=True):
    pass


class SurveyAsk(_Message, frozen=True):
    agent_skip: tuple[str, ...] = ()


class Survey(_Message, frozen=True):
    """The files on the disk, by a walk that reads no content."""

    held: bool  # the agent waits for `ReleaseAsk`
    known: str | None  # the token of the tree remembered last
    changed: int  # entries that differ from it, as far as a walk can tell; 0 if `known` is None
    files: int  # regular files and symlinks there now


class QuietAsk(_Message, frozen=True):
    """Hold the agent, and end every program in the sandbox but the bridge."""


class ReleaseAsk(_Message, frozen=True):
    """The tree is proven restored, or new: the agent may start."""


class Trouble(_Message, frozen=True):
    code: str  # too_large, too_many, too_deep, bad_chunk, busy, failed
    error: str


Ask = ScanAsk | RestoreAsk | SurveyAsk | QuietAsk | ReleaseAsk
Down = Ask | Want | Remember | RestoreEntries | RestorePlan | Chunks | RestoreEnd
Up = Batch | Chunks | ScanDone | Need | Progress | Restored | Survey | Done | Trouble

_encoder = msgspec.msgpack.Encoder()
_down: msgspec.msgpack.Decoder[Down] = msgspec.msgpack.Decoder(Down)
_up: msgspec.msgpack.Decoder[Up] = msgspec.msgpack.Decoder(Up)


def encode(message: Down | Up) -> bytes:
    return _encoder.encode(message)


def decode_down(payload: bytes) -> Down:
    """Raises TreeWireError."""
    return _decode(_down, payload)


def decode_up(payload: bytes) -> Up:
    """Raises TreeWireError."""
    return _decode(_up, payload)


def _decode(decoder: "msgspec.msgpack.Decoder[T]", payload: bytes) -> T:
    if len(payload) > MAX_TREE_MESSAGE:
        raise TreeWireError("a message too long")
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError):  # its text may repeat the message
        raise TreeWireError("a message that cannot be read") from None
