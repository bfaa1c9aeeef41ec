"""Where frames begin and end in bytes that pass through: found, checked and counted, never rebuilt. Pure.

A terminal's bytes go from the bridge to the viewer, and from the viewer to the bridge, in the very frames they came in:
a server's frames are not masked, so they are right for any client; a client's may be passed on with the mask they have.
What a scan lets pass is always whole frames, so between any two pieces something else may be said to that end. The tail
of an unfinished frame waits.

Only unfragmented binary frames pass. Whatever else comes is an *aside*: it is given to the caller, at its place among
the others, and goes no further. The scan stops there: `feed` returns what came before it, the caller takes the aside,
and feeds b"" to go on.

    passed = scan.feed(data)
    while scan.aside is not None:
        ...write `passed`, take `scan.take()`...
        passed = scan.feed(b"")

A peer that breaks the rules, or a bound, raises FrameError at the first byte that shows it; nothing may be fed after
that. However bytes are cut, a byte is looked at and copied a few times at most.
"""

from collections.abc import Iterator

from sandbox.protocol.terminal import MAX_BYTES, MAX_CONTROL, MAX_PICTURE
from sandbox.protocol.websocket_frames import BINARY, CLOSE, CONTINUATION, PONG, TEXT, FrameError, unmask

Aside = tuple[int, bytes]  # opcode, payload (not masked)

_FIN_BINARY = 0x80 | BINARY
_FIN_TEXT = 0x80 | TEXT
_MAX_JOINED = 64 * 1024  # fragments of one message, together
_MOST_FRAMES = 1000  # looked at in one go: others want a turn, too
_RUN = bytes((_FIN_BINARY,)) * _MOST_FRAMES


def _is_run(data: bytes, whole: int) -> bool:
    """Whether it is only binary frames of `whole` bytes, like its first one, and no more than fit one turn."""
    count, rest = divmod(len(data), whole)
    return not rest and data[::whole] == _RUN[:count] and data[1::whole].count(data[1]) == count


class _FrameScan:
    """The bytes a scan has and has not let pass yet: either some behind an aside, or the beginning of one frame."""

    __slots__ = ("_at", "_data", "_missing", "_tail", "aside")

    def __init__(self) -> None:
        self._data = b""  # one feed's bytes, behind the last aside from `_at` on
        self._at = 0
        self._tail: bytearray | None = None  # the beginning of a frame
        self._missing = 0  # it cannot be whole before so many more bytes have come
        self.aside: Aside | None = None

    def take(self) -> Aside:
        """The aside at which the scan has stopped; it may go on."""
        aside, self.aside = self.aside, None
        assert aside is not None
        return aside

    def keep(self, data: bytes) -> None:
        """Take bytes in without looking at them yet."""
        if self._tail is not None:
            self._tail += data
            self._missing -= len(data)
        else:
            self._data, self._at = self._data[self._at :] + data, 0

    @property
    def unfinished(self) -> int:
        """The length of the unfinished frame, as far as it is known."""
        return 0 if self._tail is None else len(self._tail) + self._missing

    def _gather(self, data: bytes) -> bytes:
        """The bytes to look at, from `_at` on, now that `data` has come: b"" if they complete no frame."""
        tail = self._tail
        if tail is None or len(data) < self._missing:
            if data:
                self.keep(data)
            return self._data
        # One copy: in a flood nearly every read ends within a frame.
        self._data, self._tail = b"".join((tail, data)), None
        return self._data

    def _stop(self, data: bytes, at: int) -> None:
        """Go on from here next time: behind an aside, or nowhere if that was all."""
        self._data, self._at = (data, at) if at < len(data) else (b"", 0)

    def _wait(self, data: bytes, at: int, whole: int) -> None:
        """A frame has begun here, of at least `whole` bytes."""
        self._tail = bytearray(data[at:])
        self._missing = whole - (len(data) - at)
        self._data, self._at = b"", 0


class DownScan(_FrameScan):
    """A bridge's frames on their way to a viewer. `passed_bytes` counts the payload that was let through."""

    __slots__ = ("_picture", "passed_bytes")

    def __init__(self) -> None:
        super().__init__()
        self._picture = False
        self.passed_bytes = 0

    def expect_picture(self) -> None:
        """The next binary frame is a picture: an aside, which may be larger than others, and is not counted."""
        self._picture = True

    def passes_whole(self, data: bytes) -> bool:
        """Whether all of `data` passes at once: short frames of one length, mostly one key, or a few. They are
        counted. If not, nothing has happened: feed it."""
        if len(data) < 2 or self._data or self._tail is not None or self._picture or self.aside is not None:
            return False
        size, end = data[1], len(data)
        if data[0] != _FIN_BINARY or size >= 126:
            return False
        if end != size + 2:
            if not _is_run(data, size + 2):
                return False
            size *= end // (size + 2)
        self.passed_bytes += size
        return True

    def feed(self, data: bytes) -> bytes:
        """Take bytes in; return the whole frames that pass, up to the next aside. Raises FrameError."""
        start = at = 0
        if self._tail is not None or self._data:
            data = self._gather(data)
            start = at = self._at
        end, passed = len(data), 0
        while end - at >= 2:
            size = data[at + 1]
            if data[at] != _FIN_BINARY or self._picture:
                whole = self._read_aside(data, at)
                if self.aside is None:
                    break
                self.passed_bytes += passed
                self._stop(data, at + whole)
                return data[start:at]
            whole = 2 + size
            if size >= 126:
                if size > 126:
                    raise FrameError(1002, "a frame of output is masked or too long")
                whole = 4
                if end - at >= 4:
                    size = data[at + 2] << 8 | data[at + 3]
                    if size > MAX_BYTES:
                        raise FrameError(1009, "a frame of output is too long")
                    whole += size
            if at + whole > end:
                break
            passed += size
            at += whole
        else:
            whole = 2
        self.passed_bytes += passed
        if at == end:
            self._stop(data, at)
            return data if start == 0 else data[start:]
        self._wait(data, at, whole)
        return data[start:at]

    def _read_aside(self, data: bytes, at: int) -> int:
        """The length of the frame here, as far as it is known. When all of it is there, it has become the aside."""
        first, size, head = data[at], data[at + 1], 2
        if first == _FIN_BINARY:
            bound = MAX_PICTURE
        elif first == _FIN_TEXT:
            bound = MAX_CONTROL
        elif 0x80 | CLOSE <= first <= 0x80 | PONG:
            bound = 125
        else:
            raise FrameError(1002, "a frame that is not spoken here")
        if size >= 126:
            if size > 127:
                raise FrameError(1002, "frame is masked")
            head = 4 if size == 126 else 10
            if len(data) - at < head:
                return head
            size = int.from_bytes(data[at + 2 : at + head], "big")
        if size > bound:
            raise FrameError(1009, "a frame is too long")
        start, stop = at + head, at + head + size
        if stop <= len(data):
            self.aside = first & 0x0F, data[start:stop]
            self._picture = self._picture and first != _FIN_BINARY
        return head + size


class UpScan(_FrameScan):
    """A viewer's frames on their way to the bridge. `passed_frames` counts those that passed. If nothing `passes`,
    every message is an aside: its bytes mean something other than input.

    A read full of tiny frames is not looked at in one turn: while there is `more`, feed b"" in a later turn.
    """

    __slots__ = ("_fragments", "_joined", "_max_bytes", "_max_fragments", "_opcode", "_passes", "passed_frames")

    def __init__(self, max_bytes: int, max_fragments: int, *, passes: bool = True) -> None:
        super().__init__()
        self._passes = passes
        self._max_bytes = max_bytes
        self._max_fragments = max_fragments
        self._opcode = CONTINUATION  # of the message being put together; CONTINUATION: none
        self._joined: bytearray | None = None
        self._fragments = 0
        self.passed_frames = 0

    def passes_whole(self, data: bytes) -> int:
        """The number of frames in `data`, if all of it passes at once: short ones of one length, mostly one key, or a
        few. They are counted. If it is 0, nothing has happened: feed it."""
        waits = self._data or self._tail is not None or self._opcode or self.aside is not None
        if len(data) < 6 or waits or not self._passes:
            return 0
        size, end = data[1] - 0x80, len(data)
        if data[0] != _FIN_BINARY or not 0 <= size < 126:
            return 0
        count = 1
        if end != size + 6:
            if not _is_run(data, size + 6):
                return 0
            count = end // (size + 6)
        self.passed_frames += count
        return count

    def feed(self, data: bytes) -> bytes:
        """Take bytes in; return the whole frames that pass, masked as they came, up to the next aside. A message that
        came in fragments is an aside. Raises FrameError."""
        start = at = 0
        if self._tail is not None or self._data:
            data = self._gather(data)
            start = at = self._at
        end, frames = len(data), 0
        before: list[bytes] = []  # passed before a fragment
        while end - at >= 2:
            first, size = data[at], data[at + 1] - 0x80
            if size < 0:
                raise FrameError(1002, "frame is not masked")
            passes = first == _FIN_BINARY and self._passes and not self._opcode
            if not passes:
                self._check(first, size)
            whole = 6 + size if size < 126 else self._length(data, at, size)
            if at + whole > end:
                break
            if passes:
                frames += 1
                if frames >= _MOST_FRAMES:
                    at += whole
                    self.passed_frames += frames
                    self._stop(data, at)
                    return b"".join([*before, data[start:at]])
            else:
                before.append(data[start:at])
                self._take_in(first, data[at : at + whole])
                start = at + whole
                if self.aside is not None:
                    self.passed_frames += frames
                    self._stop(data, start)
                    return b"".join(before)
            at += whole
        else:
            whole = 2
        self.passed_frames += frames
        if at == end:
            self._stop(data, at)
        else:
            self._wait(data, at, whole)
        passed = data if start == 0 and at == end else data[start:at]
        return b"".join([*before, passed]) if before else passed

    @property
    def held(self) -> int:
        """Bytes of memory."""
        tail = 0 if self._tail is None else len(self._tail)
        joined = 0 if self._joined is None else len(self._joined)
        return len(self._data) + tail + joined

    def forget(self) -> None:
        """Drop the fed bytes: nothing more is looked at."""
        self._data, self._at, self._tail, self._joined, self.aside = b"", 0, None, None, None

    @property
    def more(self) -> bool:
        """Whether there is something left that was not looked at, and may be."""
        return bool(self._data) and self.aside is None

    def _length(self, data: bytes, at: int, size: int) -> int:
        """The length of the frame here, as far as it is known."""
        head = 8 if size == 126 else 14
        if len(data) - at < head:
            return head
        size = int.from_bytes(data[at + 2 : at + head - 4], "big")
        if size > self._max_bytes:
            raise FrameError(1009, f"message is longer than {self._max_bytes} bytes")
        return head + size

    def _check(self, first: int, size: int) -> None:
        opcode = first & 0x0F
        if first & 0x70:
            raise FrameError(1002, "reserved bits are set")
        if opcode >= CLOSE:
            if opcode > PONG:
                raise FrameError(1002, "unknown frame type")
            if first < 0x80 or size > 125:
                raise FrameError(1002, "control frame is fragmented or too long")
        elif opcode > BINARY:
            raise FrameError(1002, "unknown frame type")
        elif (opcode == CONTINUATION) != (self._opcode != CONTINUATION):
            raise FrameError(1002, "fragments are out of order")

    def _take_in(self, first: int, frame: bytes) -> None:
        size = frame[1] & 0x7F
        head = 6 if size < 126 else 8 if size == 126 else 14
        payload = unmask(frame[head:], frame[head - 4 : head])
        opcode = first & 0x0F
        if opcode >= CLOSE or (opcode != CONTINUATION and first >= 0x80):
            self.aside = opcode, payload
        else:
            self._join(opcode, payload, fin=first >= 0x80)

    def _join(self, opcode: int, payload: bytes, *, fin: bool) -> None:
        if opcode != CONTINUATION:
            self._opcode, self._joined = opcode, bytearray()
        assert self._joined is not None
        self._fragments += 1
        self._joined += payload
        if self._fragments > self._max_fragments:
            raise FrameError(1009, f"message has more than {self._max_fragments} fragments")
        if len(self._joined) > _MAX_JOINED:
            raise FrameError(1009, f"a message in fragments is longer than {_MAX_JOINED} bytes")
        if fin:
            self.aside = self._opcode, bytes(self._joined)
            self._opcode, self._joined, self._fragments = CONTINUATION, None, 0


def inputs(frames: bytes) -> Iterator[bytes]:
    """The input in the whole masked frames that an UpScan let pass."""
    at, end = 0, len(frames)
    while at < end:
        size, head = frames[at + 1] & 0x7F, 6
        if size >= 126:
            head = 8 if size == 126 else 14
            size = int.from_bytes(frames[at + 2 : at + head - 4], "big")
        start = at + head
        at = start + size
        yield unmask(frames[start:at], frames[start - 4 : start])


def payloads(frames: bytes) -> Iterator[bytes]:
    """The payloads of the whole frames that a DownScan let pass."""
    at, end = 0, len(frames)
    while at < end:
        size, start = frames[at + 1], at + 2
        if size == 126:
            size, start = frames[at + 2] << 8 | frames[at + 3], at + 4
        at = start + size
        yield frames[start:at]
