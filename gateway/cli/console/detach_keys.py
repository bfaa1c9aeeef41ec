"""The keys that leave a terminal: found among a person's keys, and kept from the program. Pure.

The beginning of the sequence is held back, for a program must not get half of it. If the next key is another one, or
none comes for `HELD_SECONDS`, the held keys go to the program.

A program can ask for keys in another encoding (`CSI 93;5u` for ctrl-], `CSI 27;5;93~` in an older one), and then also
for reports of released keys, which do not count here. These forms are recognised if they come whole, as terminals send
them.
"""

import re

DEFAULT = "ctrl-],ctrl-]"
HELD_SECONDS = 0.5
CTRL, LOCKS = 4, 64 | 128  # bits of the modifiers: caps lock and num lock do not count

_ENCODED = re.compile(
    rb"\x1b\[(?P<key>\d+)(?::[\d:]*)?(?:;(?P<modifiers>\d*)(?::(?P<event>\d))?(?:;[\d:]*)?)?u"
    rb"|\x1b\[27;(?P<old_modifiers>\d+);(?P<old_key>\d+)~"
)
_KEY = re.compile(rb"%s|(?P<plain>.)" % _ENCODED.pattern, re.DOTALL)
_RELEASED = b"3"


def read_keys(text: str) -> tuple[int, ...]:
    """`ctrl-p,ctrl-q`, or `^P^Q`, as the characters they are; () for `none`. Raises ValueError."""
    if text == "none":
        return ()
    names = re.findall(r"\^(.)", text) if re.fullmatch(r"(?:\^.)+", text) else _names(text)
    keys = []
    for name in names:
        code = ord(name.upper()) - 64
        if not 0 <= code < 32:
            raise ValueError(f"ctrl-{name} is no key: ctrl- goes with a-z @ [ \\ ] ^ _")
        keys.append(code)
    return tuple(keys)


def _names(text: str) -> list[str]:
    names = [word.removeprefix("ctrl-") for word in text.split(",")]
    if not all(word.startswith("ctrl-") and len(word) == 6 for word in text.split(",")):
        raise ValueError("keys are written as ctrl-p,ctrl-q or ^P^Q; `none` turns them off")
    return names


class DetachKeys:
    """`deadline` is when `due` has to be called, None if no key is held back."""

    def __init__(self, keys: tuple[int, ...]) -> None:
        self._keys = keys
        self._held: list[tuple[int | None, bytes]] = []  # keys that match so far; None for one that does not count
        self.deadline: float | None = None

    def type(self, typed: bytes, *, now: float) -> tuple[bytes, bool]:
        """The part that is for the program, and whether the person leaves. Keys after the sequence are dropped."""
        if not self._keys or not (self._held or self._keys[0] in typed or _ENCODED.search(typed)):
            return typed, False
        for_program = b""
        for found in _KEY.finditer(typed):
            self._held.append((_meant(found), found[0]))
            for_program += self._release_what_cannot_be_it()
            if len(self._matched()) == len(self._keys):
                return for_program, True
        self.deadline = now + HELD_SECONDS if self._held else None
        return for_program, False

    def due(self) -> bytes:
        """No key followed in time: return the held keys for the program."""
        held = b"".join(raw for _, raw in self._held)
        self._held, self.deadline = [], None
        return held

    def _matched(self) -> tuple[int, ...]:
        return tuple(key for key, _ in self._held if key is not None)

    def _release_what_cannot_be_it(self) -> bytes:
        released = b""
        while self._held and (not self._matched() or self._matched() != self._keys[: len(self._matched())]):
            released += self._held.pop(0)[1]
        return released


def _meant(found: re.Match[bytes]) -> int | None:
    """The character that a key stands for, -1 if for none, None if the key was only released."""
    if (plain := found["plain"]) is not None:
        return plain[0]
    if found["event"] == _RELEASED:
        return None
    modifiers = int(found["modifiers"] or found["old_modifiers"] or 1) - 1
    if modifiers & ~LOCKS != CTRL:
        return -1
    key = int(found["key"] or found["old_key"])
    return key & 0x1F if 64 <= key < 128 else -1
