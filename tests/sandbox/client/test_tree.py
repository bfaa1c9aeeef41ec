"""The gateway's end of operations on a tree, against bridges that behave in ways no real bridge would."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, unix_serve
from websockets.exceptions import ConnectionClosed

from sandbox.client import files
from sandbox.client.files import MOST_LISTED
from sandbox.client.tree import HEARTBEATS_AT_ONCE, BridgeTree
from sandbox.ports.tree import LiveFile, LiveListing, TreeFailed
from sandbox.protocol.chunk_frames import pack
from sandbox.protocol.entry import MAX_CHUNK, Chunk, Entry, Frame, Kind, chunk_id
from sandbox.protocol.tree import (
    MAX_OFFERS,
    MAX_TREE_MESSAGE,
    Batch,
    Chunks,
    Done,
    Need,
    Offer,
    Progress,
    Restored,
    ScanAsk,
    ScanDone,
    Survey,
    Trouble,
    Up,
    Want,
    decode_down,
    encode,
)
from tests.support.bridge import at
from tests.support.waiting import until

CONTENT = b"some content"
CHUNK = Chunk(chunk_id(CONTENT), len(CONTENT))
OFFER = Offer(CHUNK.id, CHUNK.size)
FRAME = pack([(CHUNK, CONTENT)])
ENTRY = Entry(b"workspace/a", Kind.FILE, 0o644, 0, CHUNK.size, b"", (CHUNK,))
DONE = ScanDone(None, 1, 12, 12)
PIECES = [(Chunk(chunk_id(piece), 1), piece) for piece in (b"%c" % n for n in range(20))]
MANY = [Entry(b"workspace/many", Kind.FILE, 0o644, 0, len(PIECES), b"", tuple(chunk for chunk, _ in PIECES))]
ASK = object()  # in a script: wait for the gateway's next message
HANG = object()  # in a script: say nothing more
BEAT = object()  # in a script: show that it lives, and nothing else; a number of seconds: the same for so long

Script = list[Any]


class Stage:
    """A bridge that hears everything, and says what its script has, one operation after the other."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.script: Script = []
        self.heard: list[Any] = []
        self.closed = asyncio.Event()

    async def serve(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        assert (socket.request.path, socket.request.headers["Authorization"]) == ("/tree", "Bearer token")
        with contextlib.suppress(ConnectionClosed):
            for step in [ASK, *self.script]:
                if step is ASK:
                    self.heard.append(decode_down(await socket.recv(decode=False)))
                elif step is HANG:
                    await self.closed.wait()
                elif step is BEAT:
                    await self._beat(socket, float("inf"))
                elif isinstance(step, float):
                    await self._beat(socket, step)
                else:
                    await socket.send(step if isinstance(step, bytes | str) else encode(step))
        await socket.close()

    async def _beat(self, socket: ServerConnection, seconds: float) -> None:
        while seconds > 0:
            await socket.send(encode(Progress(0, 0)))
            await asyncio.sleep(0.05)
            seconds -= 0.05

    def tree(self, **settings: Any) -> BridgeTree:
        return BridgeTree(at(self.path, "token"), **settings)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(tmp_path / "stage.sock")
    async with unix_serve(stage.serve, stage.path, max_size=None, compression=None):
        yield stage
        stage.closed.set()


async def scan(tree: BridgeTree) -> list[Frame]:
    fetched: list[Frame] = []
    async with tree.scan(ScanAsk()) as scan:
        while isinstance(batch := await scan.next(), Batch):
            async for frame in scan.fetch(range(len(batch.offers))):
                fetched.append(frame)
        await scan.remember("token")
    return fetched


async def test_a_scan_is_a_conversation(stage: Stage) -> None:
    stage.script = [
        Progress(0, 0),
        Batch((ENTRY,), offers=(OFFER,)),
        ASK,
        Chunks(FRAME),
        Progress(0, 0),
        Chunks(None, last=True),
        Batch(removed=(b"workspace/b",)),
        ASK,
        Chunks(None, last=True),
        DONE,
        ASK,
        Done(),
    ]
    assert await scan(stage.tree()) == [FRAME]
    assert stage.heard[1:3] == [Want((0,)), Want(())]


BATCH = Batch((ENTRY,), offers=(OFFER,))
OTHER = pack([(Chunk(chunk_id(b"other"), 5), b"other")])
LAST = Chunks(None, last=True)

HOSTILE_SCANS: dict[str, Script] = {
    "nothing at all": [],
    "text": ["hello"],
    "no MessagePack": [b"\xc1"],
    "nested for ever": [b"\x91" * 5000],
    "a message of somebody else": [encode(Want(()))],
    "the answer to something else": [Done()],
    "an end before its time": [BATCH, ASK, DONE],
    "a batch too many": [BATCH, ASK, Batch()],
    "an offer of nothing": [Batch(offers=(Offer(CHUNK.id, 0),))],
    "an offer too large": [Batch(offers=(Offer(CHUNK.id, MAX_CHUNK + 1),))],
    "an offer without a name": [Batch(offers=(Offer(b"", 5),))],
    "an offer twice": [Batch(offers=(OFFER, OFFER))],
    "too many offers": [Batch(offers=tuple(Offer(n.to_bytes(32, "big"), 1) for n in range(MAX_OFFERS + 1)))],
    "a chunk nobody asked for": [BATCH, ASK, Chunks(OTHER), LAST],
    "a chunk twice": [BATCH, ASK, Chunks(FRAME), Chunks(FRAME), LAST],
    "a chunk of another size": [BATCH, ASK, Chunks(Frame((Chunk(CHUNK.id, 5),), FRAME.data)), LAST],
    "less than was asked for": [BATCH, ASK, LAST],
    "a frame too many": [BATCH, ASK, Chunks(FRAME), Chunks(FRAME, last=True)],
    "an empty frame": [BATCH, ASK, Chunks(None)],
    "a frame without chunks": [BATCH, ASK, Chunks(Frame((), b""))],
    "a frame too large": [BATCH, ASK, Chunks(Frame((CHUNK,), bytes(2 * MAX_CHUNK)))],
    "a message too large": [bytes(MAX_TREE_MESSAGE + 1)],
    "a flood of heartbeats": [Progress(0, 0)] * (3 * HEARTBEATS_AT_ONCE),
    "an end in the middle": [BATCH, ASK, Chunks(FRAME)],
}


@pytest.mark.parametrize("name", HOSTILE_SCANS)
async def test_a_hostile_bridge_is_a_failed_scan_and_nothing_else(stage: Stage, name: str) -> None:
    stage.script = HOSTILE_SCANS[name]
    with pytest.raises(TreeFailed) as failed:
        await scan(stage.tree())
    assert failed.value.code == "failed"


async def test_trouble_is_told_as_it_was_meant_and_harmless_to_show(stage: Stage) -> None:
    for code, error, told in (
        ("too_many", "more than 3 files", ("too_many", "more than 3 files")),
        ("too_many", "a\x1b]0;x\x07\r\nb\u202ec" + "x" * 5000, ("too_many", "a ]0;x b c" + "x" * 990)),
        ("<script>", "odd", ("failed", "odd")),
        ("x" * 33, "odd", ("failed", "odd")),
    ):
        stage.script = [Trouble(code, error)]
        with pytest.raises(TreeFailed) as failed:
            await stage.tree().quiet()
        assert (failed.value.code, failed.value.error) == told


@pytest.mark.parametrize("survey", [Survey(False, None, -1, 0), Survey(False, None, 0, -1), Restored()])
async def test_a_survey_that_cannot_be_is_refused(stage: Stage, survey: Up) -> None:
    stage.script = [survey]
    with pytest.raises(TreeFailed):
        await stage.tree().survey(("*.cache",))


async def restore(tree: BridgeTree, puts: int = 1, frame: Frame = FRAME, entries: Sequence[Entry] = (ENTRY,)) -> None:
    async with tree.restore("token", aside=False) as restore:
        await restore.plan(entries)
        for _ in range(puts):
            await restore.put(frame)
        await restore.finish()


async def test_a_restore_is_a_conversation(stage: Stage) -> None:
    stage.script = [ASK, ASK, Need((CHUNK.id,), last=True), ASK, Progress(1, 12), ASK, Restored()]
    tree = stage.tree()
    async with tree.restore("token", aside=True) as restore:
        assert await restore.plan([ENTRY]) == {CHUNK.id}
        assert restore.progress() == (0, 0)
        await restore.put(FRAME)
        await restore.finish()
        assert restore.progress() == (1, 12)


HOSTILE_RESTORES: dict[str, Script] = {
    "a wish for something else": [ASK, ASK, Need((chunk_id(b"else"),), last=True)],
    "a wish without end": [ASK, ASK, *[Need((CHUNK.id,), last=False)] * 3],
    "an empty wish": [ASK, ASK, *[Need((), last=False)] * 3],
    "an end before its time": [ASK, ASK, Restored()],
    "no end": [ASK, ASK, Need((CHUNK.id,), last=True), ASK, ASK],
    "another end": [ASK, ASK, Need((CHUNK.id,), last=True), ASK, ASK, Done()],
}


@pytest.mark.parametrize("name", HOSTILE_RESTORES)
async def test_a_hostile_bridge_is_a_failed_restore_and_nothing_else(stage: Stage, name: str) -> None:
    stage.script = HOSTILE_RESTORES[name]
    with pytest.raises(TreeFailed) as failed:
        await restore(stage.tree())
    assert failed.value.code == "failed"


async def test_trouble_in_the_middle_of_sending_is_heard(stage: Stage) -> None:
    stage.script = [ASK, ASK, Need((CHUNK.id,), last=True), ASK, Trouble("bad_chunk", "not what its name says")]
    with pytest.raises(TreeFailed) as failed:
        await restore(stage.tree(), puts=100_000)
    assert failed.value.code == "bad_chunk"


async def test_a_bridge_that_does_not_read_is_not_waited_for_for_ever(stage: Stage) -> None:
    stage.script = [ASK, ASK, Need((CHUNK.id,), last=True), HANG]
    large = Frame((CHUNK,), bytes(1 << 20))
    with pytest.raises(TreeFailed) as failed:
        await restore(stage.tree(silence_seconds=0.3), puts=100, frame=large)
    assert failed.value.code == "silent"


@pytest.mark.parametrize(
    "attempt",
    [lambda tree: tree.survey(()), lambda tree: tree.release(), scan, restore],
    ids=["survey", "release", "scan", "restore"],
)
async def test_a_silent_bridge_is_given_up(stage: Stage, attempt: Callable[[BridgeTree], Awaitable[Any]]) -> None:
    stage.script = [HANG]
    with pytest.raises(TreeFailed) as failed:
        await attempt(stage.tree(silence_seconds=0.2))
    assert failed.value.code == "silent"


NEED = Need((CHUNK.id,), last=True)
BUSY_BRIDGES: dict[str, tuple[Callable[[BridgeTree], Awaitable[Any]], Script]] = {
    "survey": (lambda tree: tree.survey(()), [BEAT]),
    "quiet": (lambda tree: tree.quiet(), [BEAT]),
    "release": (lambda tree: tree.release(), [BEAT]),
    "the first batch": (scan, [BEAT]),
    "content": (scan, [BATCH, ASK, BEAT]),
    "the end of a batch": (scan, [BATCH, ASK, Chunks(FRAME), BEAT]),
    "the next batch": (scan, [BATCH, ASK, Chunks(FRAME), LAST, BEAT]),
    "remember": (scan, [DONE, ASK, BEAT]),
    "plan": (restore, [ASK, ASK, BEAT]),
    "finish": (restore, [ASK, ASK, NEED, ASK, ASK, BEAT]),
    "put": (lambda tree: restore(tree, 100, Frame((CHUNK,), bytes(1 << 20))), [ASK, ASK, NEED, BEAT]),
}


@pytest.mark.parametrize("name", BUSY_BRIDGES)
async def test_a_bridge_that_only_shows_that_it_lives_is_given_up(stage: Stage, name: str) -> None:
    attempt, stage.script = BUSY_BRIDGES[name]
    with pytest.raises(TreeFailed, match=r"worked 0.4 s without an answer") as failed:
        await attempt(stage.tree(work_seconds=0.4))
    assert failed.value.code == "silent"


@pytest.mark.parametrize("attempt", [scan, lambda tree: restore(tree, entries=MANY)], ids=["scan", "restore"])
async def test_an_answer_that_comes_drop_by_drop_is_given_up(
    stage: Stage, attempt: Callable[[BridgeTree], Awaitable[Any]]
) -> None:
    drops = [pack([(chunk, content)]) for chunk, content in PIECES]
    if attempt is scan:
        stage.script = [Batch(offers=tuple(Offer(chunk.id, chunk.size) for chunk, _ in PIECES)), ASK]
        stage.script += [step for frame in drops for step in (0.1, Chunks(frame))]
    else:
        stage.script = [ASK, ASK, *(step for chunk, _ in PIECES for step in (0.1, Need((chunk.id,), last=False)))]
    with pytest.raises(TreeFailed) as failed:
        await attempt(stage.tree(work_seconds=0.4))
    assert failed.value.code == "silent"


async def test_each_answer_has_all_its_time(stage: Stage) -> None:
    stage.script = [*[0.8, BATCH, ASK, Chunks(FRAME), LAST] * 6, DONE, ASK, Done()]
    assert await scan(stage.tree(work_seconds=4.0)) == [FRAME] * 6


@pytest.mark.parametrize("name", ["quiet", "release"])
async def test_what_has_little_to_do_has_little_time(stage: Stage, name: str) -> None:
    attempt, stage.script = BUSY_BRIDGES[name]
    with pytest.raises(TreeFailed, match=r"worked 0.2 s"):
        await attempt(stage.tree(short_work_seconds=0.2))


async def test_progress_goes_up_and_never_beyond_the_tree(stage: Stage) -> None:
    told = [Progress(-5, -5), Progress(0, 7), Progress(0, 3), Progress(5, -1), Progress(0, 1 << 60), Progress(0, 0)]
    stage.script = [Progress(9, 9), ASK, ASK, NEED, *(step for each in told for step in (each, ASK)), HANG]
    seen: list[tuple[int, int]] = []
    async with stage.tree().restore("token", aside=False) as restore:
        assert restore.progress() == (0, 0)
        await restore.plan([ENTRY, Entry(b"workspace/d", Kind.DIRECTORY, 0o755, 0)])
        for number in range(len(told)):
            heard = 4 + number
            await restore.put(FRAME)
            await until(partial(has_heard, stage, heard))
            seen.append(restore.progress())
        await until(lambda: restore.progress() == (1, 12))
    files, size = zip(*seen, strict=True)
    assert (list(files), list(size)) == (sorted(files), sorted(size))
    assert (max(files), max(size)) <= (1, 12)


def has_heard(stage: Stage, messages: int) -> bool:
    return len(stage.heard) >= messages


async def test_an_entry_that_fits_into_no_message_is_refused(stage: Stage) -> None:
    stage.script = [HANG]
    chunks = tuple(Chunk(n.to_bytes(32, "big"), 1) for n in range(500_000))
    entry = Entry(b"workspace/a", Kind.FILE, 0o644, 0, len(chunks), b"", chunks)
    async with stage.tree().restore("token", aside=False) as restore:
        with pytest.raises(TreeFailed) as failed:
            await restore.plan([entry])
    assert failed.value.code == "too_large"


async def test_a_cancelled_operation_leaves_no_connection(stage: Stage) -> None:
    stage.script = [HANG]
    task = asyncio.create_task(scan(stage.tree()))
    await until(lambda: stage.heard)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "tree.listen"]


# One file at a time


@contextlib.asynccontextmanager
async def answering(
    path: Path, answer: bytes, *, hang: bool = False, silence_seconds: float = 0.3, **settings: Any
) -> AsyncIterator[BridgeTree]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            writer.write(answer)
            await writer.drain()
            if hang:
                await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield BridgeTree(at(str(path), "token"), silence_seconds=silence_seconds if hang else 30, **settings)
    finally:
        server.close()


def answer(body: bytes, *, status: str = "200 OK", kind: str = "application/json", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def listing(times: int = 1, **members: Any) -> bytes:
    item = {"name": "a", "kind": "file", "mode": 0o644, "mtimeNs": 0, "size": 1, **members}
    return answer(json.dumps({"entries": [item] * times, "truncated": False}).encode())


FILE = "application/octet-stream"
BAD_ANSWERS: dict[str, bytes] = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\n",
    "no status": b"\r\n\r\n",
    "a head without end": b"x" * 1_000_000,
    "no length": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}",
    "a length that is none": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: -1\r\n\r\n{}",
    "a length beyond all bounds": b"HTTP/1.1 200 OK\r\nContent-Type: x\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "a listing without end": b"HTTP/1.1 200 OK\r\nContent-Type: x\r\nContent-Length: 99999999\r\n\r\n",
    "less than its length": answer(b"{}")[:-1],
    "no JSON": answer(b"nonsense"),
    "nested for ever": answer(b"[" * 100_000),
    "another shape": answer(b'{"entries": 5}'),
    "a name with a slash": listing(name="../a"),
    "an empty name": listing(name=""),
    "a name that is no base64": listing(nameBase64="?"),
    "a kind nobody knows": listing(kind="socket"),
    "a mode that cannot be": listing(mode=-1),
    "a time that cannot be": listing(mtimeNs=2**63),
    "a size that cannot be": listing(size=-1),
    "more than a bridge tells": listing(MOST_LISTED + 1),
    "a surrogate": answer(b'{"entries": [{"name": "\\ud800"}], "truncated": false}'),
    "another range": answer(b"xyz", status="206 x", kind=FILE, Content_Range="bytes 7-9/100"),
    "a range beyond the end": answer(b"xyz", status="206 x", kind=FILE, Content_Range="bytes 0-2/2"),
    "no range": answer(b"xyz", status="206 x", kind=FILE),
    "more than was asked for": answer(b"x" * 50, status="206 x", kind=FILE, Content_Range="bytes 0-49/50"),
    "a refusal that says nothing": answer(b"{}", status="500 x"),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_an_answer_that_cannot_be_is_a_failure(name: str, tmp_path: Path) -> None:
    async with answering(tmp_path / "s", BAD_ANSWERS[name]) as tree:
        with pytest.raises(TreeFailed) as failed:
            await tree.files(b"workspace", b"a", start=0, length=10)
        assert failed.value.code == "failed"


async def test_good_answers_are_understood(tmp_path: Path) -> None:
    async with answering(tmp_path / "1", listing(nameBase64="/w==", name="\ufffd")) as tree:
        found = await tree.files(b"workspace", b"")
        assert isinstance(found, LiveListing)
        assert found.entries[0].name == b"\xff"
    async with answering(tmp_path / "1b", listing(MOST_LISTED)) as tree:
        found = await tree.files(b"workspace", b"")
        assert isinstance(found, LiveListing)
        assert len(found.entries) == MOST_LISTED
    async with answering(tmp_path / "2", answer(b"", status="416 x", Content_Range="bytes */7")) as tree:
        empty = await tree.files(b"workspace", b"a", start=9)
        assert isinstance(empty, LiveFile)
        assert (empty.size, empty.length, [piece async for piece in empty.content]) == (7, 0, [])
    refusal = answer(b'{"error": "it leads \\u001b[2J out"}', status="403 x")
    async with answering(tmp_path / "3", refusal) as tree:
        with pytest.raises(TreeFailed, match=r"it leads  \[2J out") as failed:
            await tree.files(b"workspace", b"a")
        assert failed.value.code == "bad_path"


async def test_a_file_that_does_not_come_whole_is_a_failure(tmp_path: Path) -> None:
    for hang, code in ((False, "failed"), (True, "silent")):
        whole = answer(b"x" * 100, kind=FILE)
        async with answering(tmp_path / code, whole[:-1], hang=hang) as tree:
            file = await tree.files(b"workspace", b"a")
            assert isinstance(file, LiveFile)
            with pytest.raises(TreeFailed) as failed:
                async for _ in file.content:
                    pass
            assert failed.value.code == code


# Each listing was read and decoded at once, however many there were.
async def test_long_listings_take_turns_and_short_ones_need_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = asyncio.Semaphore(1)
    long, short = listing(2_000), listing()
    async with (
        answering(tmp_path / "stuck", long[:-1], hang=True, silence_seconds=60, listings=shared) as stuck,
        answering(tmp_path / "silent", b"", hang=True, silence_seconds=60, listings=shared) as silent,
        answering(tmp_path / "long", long, listings=shared) as next_one,
        answering(tmp_path / "short", short, listings=shared) as small,
    ):
        nothing_said = asyncio.create_task(silent.files(b"workspace", b""))
        first = asyncio.create_task(stuck.files(b"workspace", b""))
        await until(shared.locked, "a place that is taken")
        second = asyncio.create_task(next_one.files(b"workspace", b""))
        assert isinstance(await small.files(b"workspace", b""), LiveListing)
        assert not (await asyncio.wait({first, second}, timeout=0.1))[0]
        first.cancel()
        assert isinstance(await second, LiveListing)
        monkeypatch.setattr(files, "LISTING_SECONDS", 0.05)
        with pytest.raises(TreeFailed, match="does not answer"):
            await stuck.files(b"workspace", b"")
        assert not shared.locked()
        nothing_said.cancel()
        await asyncio.wait({first, nothing_said})


async def test_a_file_that_nobody_reads_can_be_let_go(tmp_path: Path) -> None:
    async with answering(tmp_path / "s", answer(b"x" * 100, kind=FILE), hang=True) as tree:
        file = await tree.files(b"workspace", b"a")
        assert isinstance(file, LiveFile)
        await file.close()
        await file.close()
    async with answering(tmp_path / "t", b"", hang=True) as tree:
        with pytest.raises(TreeFailed) as failed:
            await tree.files(b"workspace", b"a")
        assert failed.value.code == "silent"
