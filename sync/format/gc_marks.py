"""The collector's marks: which objects it found unreferenced, and when. Pure.

An object is deleted only if two passes, at least `grace` seconds apart, both found it unreferenced. If a snapshot names
it in between, counting begins again. Why nothing referenced can be deleted:

- A sync reads the marks before it reuses any stored object, reuses nothing that is marked, and swaps its pointer within
  half of `grace` after that. So what it reuses was not marked yet, or was marked after the sync had looked. The pass
  that could delete it reads the pointers a whole `grace` after the mark, when that sync is done or has failed.
- A sync stores everything under a new name (the salt in packs and manifests), even if the same content is there. So a
  new object never has a name that is being deleted, and never an old mark.
- A branch names what it read in another session's pointer, within half of `grace`.

The other half of `grace` is for slow answers and for clocks of two machines that differ.

A damaged object is marked as well, for as long as it is named or stored: no sync builds on it.
"""

from collections.abc import Collection, Mapping

import msgspec

from sync.errors import Damaged
from sync.format.checksummed import seal, unseal


class Mark(msgspec.Struct, frozen=True):
    since: float | None = None  # when a pass first found it unreferenced, in seconds since 1970; None: it is referenced
    damaged: bool = False  # it is missing or does not match its name: no sync may use it


class Marks(msgspec.Struct, frozen=True):
    packs: dict[str, Mark] = {}
    manifests: dict[str, Mark] = {}


def look(
    found: Collection[str], named: Collection[str], marks: Mapping[str, Mark], *, began: float, now: float, grace: float
) -> tuple[dict[str, Mark], list[str]]:
    """The marks after a pass found `found` stored and `named` referenced, and the objects to delete. The pass `began`
    before it read anything, and it is `now` after that. An object to delete keeps its mark until a later pass finds
    it gone: nobody may use it while it is being deleted."""
    after: dict[str, Mark] = {}
    doomed: list[str] = []
    for name in {**dict.fromkeys(found), **dict.fromkeys(each for each in marks if each in named)}:
        mark = marks.get(name, Mark())
        if name in named:
            if mark.damaged:
                after[name] = Mark(damaged=True)
        elif mark.since is None or mark.since > now:  # the clock went back: count anew
            after[name] = Mark(now, mark.damaged)
        else:
            after[name] = mark
            if began - mark.since >= grace:
                doomed.append(name)
    return after, doomed


def distrusted(marks: Marks, packs: Collection[str], manifests: Collection[str]) -> Marks:
    """`marks`, with these marked as damaged."""
    return Marks(_with_damaged(marks.packs, packs), _with_damaged(marks.manifests, manifests))


def _with_damaged(marks: Mapping[str, Mark], names: Collection[str]) -> dict[str, Mark]:
    return {**marks, **{name: Mark(marks.get(name, Mark()).since, damaged=True) for name in names}}


def damaged_in(marks: Marks) -> frozenset[str]:
    """The names of the damaged packs and manifests."""
    return frozenset(name for each in (marks.packs, marks.manifests) for name, mark in each.items() if mark.damaged)


def encode(marks: Marks) -> bytes:
    return seal(msgspec.json.encode(marks))


def decode(key: str, content: bytes) -> Marks:
    """Raises Damaged, which names the key."""
    try:
        return msgspec.json.decode(unseal(key, content), type=Marks)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Damaged(f"{key} cannot be read") from error
