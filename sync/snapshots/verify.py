"""Checks whether everything that a session's generations name exists and matches its name. Reads all of it."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sync.errors import Damaged
from sync.format.pack import PackedFrame
from sync.format.pointer import Generation, Pointer
from sync.snapshots.pack_reader import fetch
from sync.snapshots.parallel import each
from sync.snapshots.repository import Repository

PACKS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Verdict:
    """One generation with its problems; whole if it has none."""

    generation: Generation
    damage: tuple[Damaged, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(str, self.damage)))


async def verify(
    shelf: Repository, pointer: Pointer, told: Callable[[int, int], None] = lambda done, of: None
) -> list[Verdict]:
    """Check every stored generation; `told` is called with the numbers of frames done and in all. Nothing is changed.
    Raises ObjectsUnavailable, ObjectsRefused."""
    damage: dict[int, list[Damaged]] = defaultdict(list)
    wanted: dict[str, dict[int, PackedFrame]] = defaultdict(dict)
    users: dict[tuple[str, int], set[int]] = defaultdict(set)  # pack and offset: the generations that use the frame
    for generation in pointer.generations:
        try:
            stored = await shelf.tree(generation.manifest)
        except Damaged as error:
            damage[generation.number].append(error)
            continue
        for entry in stored.entries.values():
            for chunk in entry.chunks:
                if chunk.id:
                    pack, frame = stored.places[chunk.id]
                    wanted[pack][frame.offset] = frame
                    users[pack, frame.offset].add(generation.number)
    total, done = sum(map(len, wanted.values())), 0

    async def check(pack: str) -> None:
        nonlocal done
        frames = [wanted[pack][offset] for offset in sorted(wanted[pack])]
        if await _damage(shelf, pack, frames) is not None:
            for frame in frames:  # one by one: not every generation uses all of them
                error = await _damage(shelf, pack, [frame])
                if error is not None:
                    for number in users[pack, frame.offset]:
                        damage[number].append(error)
        done += len(frames)
        told(done, total)

    await each(check, wanted, at_once=PACKS_AT_ONCE)
    return [Verdict(generation, tuple(damage[generation.number])) for generation in pointer.generations]


async def _damage(shelf: Repository, pack: str, frames: Sequence[PackedFrame]) -> Damaged | None:
    try:
        async for _ in fetch(shelf, pack, frames):
            pass
    except Damaged as error:
        return error
    return None
