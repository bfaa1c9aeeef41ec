"""A session's pointer: the generations that it keeps. It is the one object of a session that is ever replaced. Pure.

It is sealed JSON (sync/format/checksummed.py): its name is not a hash of its content, so it carries that hash itself.

A generation is a number, a manifest, and notes about it. The newest `keep` stay, and so does every pinned one. These
are pinned: the generation before one that lost most of the files, the one before a generation whose tree did not
begin with it, the one before a restore in place, and one that a restore found damaged. A pin stays until it is
released, or there are PINS newer ones. Numbers only grow, even after an unreadable pointer was moved aside, so a
number never means two trees.
"""

from collections.abc import Collection

import msgspec

from sync.errors import Damaged, NoSuchSnapshot
from sync.format.checksummed import seal, unseal
from sync.machine.reconcile import lost_most

FORMAT = 1
PINS = 100  # with one more, the oldest of them goes like any other generation


class Generation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    number: int
    manifest: str  # its name, which also names the tree towards the sandbox
    at: float  # seconds since 1970
    files: int  # regular files and symlinks
    bytes: int
    depth: int = 0  # number of differences in its row of manifests
    row_bytes: int = 0
    whole_bytes: int = 0  # of the whole manifest at the beginning of its row
    held_bytes: int = 0  # of content that the row names: the tree at its beginning, and everything stored since
    pinned: str = ""  # why it stays, for people
    note: str = ""  # its origin, if not a sync


class Pointer(msgspec.Struct, frozen=True):
    session: str
    generations: tuple[Generation, ...]  # the newest last; never empty
    writer: str  # the writer of this version, a new id each time: tells one's own write from another's
    format: int = FORMAT
    origin: str = ""  # of a branch: session@generation

    @property
    def newest(self) -> Generation:
        return self.generations[-1]

    def find(self, number: int | None) -> Generation:
        """The generation of this number, or the newest. Raises NoSuchSnapshot."""
        for generation in reversed(self.generations):
            if number is None or generation.number == number:
                return generation
        raise NoSuchSnapshot(f"session {self.session} keeps no generation {number}: see `holdfast snapshots list`")

    @property
    def older_first(self) -> tuple[Generation, ...]:
        """What to restore: the newest, then the older ones to fall back on."""
        return self.generations[::-1]


def first(session: str, generation: Generation, writer: str, origin: str = "") -> Pointer:
    return Pointer(session, (generation,), writer, origin=origin)


def follow(pointer: Pointer, generation: Generation, writer: str, keep: int, *, begun_without: bool = False) -> Pointer:
    """`pointer` with one generation more. Its predecessor is pinned if most of its files are gone, or if the new tree
    was `begun_without` it."""
    before = pointer.newest
    lost = ""
    if lost_most(before.files, generation.files):
        lost = f"generation {generation.number} has {generation.files} of its {before.files} files"
    elif begun_without:
        lost = f"generation {generation.number} was begun without it"
    before = msgspec.structs.replace(before, pinned=before.pinned or lost)
    generations = (*pointer.generations[:-1], before, generation)
    return msgspec.structs.replace(pointer, generations=_keep(generations, keep), writer=writer)


def put_back(pointer: Pointer, number: int, at: float, writer: str, keep: int) -> Pointer:
    """`pointer` with the tree of an earlier generation as its newest one. The newest so far is pinned."""
    wanted, before = pointer.find(number), pointer.newest
    restored = msgspec.structs.replace(
        wanted, number=before.number + 1, at=at, pinned="", note=f"restored from generation {number}"
    )
    safe = msgspec.structs.replace(before, pinned=before.pinned or f"replaced by generation {number}'s tree")
    generations = (*pointer.generations[:-1], safe, restored)
    return msgspec.structs.replace(pointer, generations=_keep(generations, keep), writer=writer)


def pin(pointer: Pointer, numbers: Collection[int], why: str, writer: str) -> Pointer:
    """`pointer` with these generations pinned. Pinned ones stay so; those that are gone are ignored."""
    generations = tuple(
        msgspec.structs.replace(each, pinned=each.pinned or why) if each.number in numbers else each
        for each in pointer.generations
    )
    return msgspec.structs.replace(pointer, generations=generations, writer=writer)


def release(pointer: Pointer, number: int, writer: str, keep: int) -> Pointer:
    """`pointer` with that generation no longer pinned; it goes when its turn comes. Raises NoSuchSnapshot."""
    pointer.find(number)
    generations = tuple(
        msgspec.structs.replace(each, pinned="") if each.number == number else each for each in pointer.generations
    )
    return msgspec.structs.replace(pointer, generations=_keep(generations, keep), writer=writer)


def _bounded(generations: tuple[Generation, ...]) -> tuple[Generation, ...]:
    """The newest PINS pins. Each sync writes the pointer, so it must not grow for ever."""
    pinned = [generation.number for generation in generations if generation.pinned]
    released = set(pinned[:-PINS])
    return tuple(msgspec.structs.replace(each, pinned="") if each.number in released else each for each in generations)


def _keep(generations: tuple[Generation, ...], keep: int) -> tuple[Generation, ...]:
    recent = {generation.number for generation in generations[-keep:]}
    return tuple(each for each in _bounded(generations) if each.pinned or each.number in recent)


def encode(pointer: Pointer) -> bytes:
    return seal(msgspec.json.encode(pointer))


def decode(session: str, content: bytes) -> Pointer:
    """Raises Damaged."""
    what = f"the pointer of session {session}"
    try:
        pointer = msgspec.json.decode(unseal(what, content), type=Pointer)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Damaged(f"{what} cannot be read") from error
    numbers = [generation.number for generation in pointer.generations]
    if pointer.format != FORMAT:
        raise Damaged(f"{what} has format {pointer.format}, which is of a newer version")
    if pointer.session != session or not numbers or sorted(set(numbers)) != numbers:
        raise Damaged(f"{what} is not its own")
    return pointer
