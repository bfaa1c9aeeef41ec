"""`/files`: what is synced and what is there now, for those who may, and nothing beside it."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest

from sandbox.ports.tree import TreeFailed
from sandbox.providers.memory.tree import MemoryRoots
from sync.ports import ObjectsRefused, ObjectsUnavailable
from tests.support.surface import Reply, Surface

LARGE = b"".join(number.to_bytes(4, "big") for number in range(100_000))  # several chunks, no two alike
ODD = b"\x1b[31m \xff\n%2e"


def workspace() -> MemoryRoots:
    roots = MemoryRoots()
    roots.files |= {
        b"workspace/a.txt": b"hello",
        b"workspace/empty": b"",
        b"workspace/src/large": LARGE,
        b"workspace/" + ODD: b"odd",
        b"workspace/page.html": b"<script>alert(1)</script>",
        b"agent/key": b"the agent's own",
    }
    roots.symlinks |= {
        b"workspace/link": b"src/../a.txt",
        b"workspace/here": b"src",
        b"workspace/out": b"../agent/key",
        b"workspace/absolute": b"/etc/passwd",
        b"workspace/circle": b"circle",
    }
    roots.directories.add(b"workspace/nothing")
    roots.modes[b"workspace/a.txt"] = 0o600
    roots.mtimes[b"workspace/a.txt"] = 1_000_000_000 * 10**9
    return roots


@pytest.fixture
async def surface() -> AsyncIterator[Surface]:
    async with Surface.open() as surface:
        await surface.session()
        await surface.keep(workspace())
        yield surface


def packs_read(surface: Surface) -> int:
    return sum("/packs/" in key for key in surface.objects.read)


async def test_a_directory_is_a_list_by_name(surface: Surface) -> None:
    reply = await surface.get("/files/s/")
    assert reply.status == 200
    shown = reply.json
    assert {name: shown[name] for name in shown if name != "entries"} == {
        "path": "", "root": "workspace", "source": "synced", "generation": 1, "truncated": False,
    }  # fmt: skip
    names = [entry["name"] for entry in shown["entries"]]
    odd = ODD.decode(errors="replace")
    assert names == [odd, "a.txt", "absolute", "circle", "empty", "here", "link", "nothing", "out", "page.html", "src"]
    by_name = {entry["name"]: entry for entry in shown["entries"]}
    assert by_name["a.txt"] == {
        "name": "a.txt", "type": "file", "size": 5, "mode": "0600", "mtime": "2001-09-09T01:46:40.000Z",
    }  # fmt: skip
    assert (by_name["out"]["type"], by_name["out"]["target"]) == ("symlink", "../agent/key")
    assert by_name["src"]["type"] == "directory"
    assert by_name[odd]["nameBase64"]
    assert reply.headers["cache-control"] == "no-store"
    assert (await surface.get("/files/s/nothing")).json["entries"] == []
    assert [entry["name"] for entry in (await surface.get("/files/s/here/")).json["entries"]] == ["large"]
    agent = (await surface.get("/files/s/?root=agent")).json
    assert (agent["root"], [entry["name"] for entry in agent["entries"]]) == ("agent", ["key"])


async def test_a_file_is_its_bytes_and_nothing_that_a_browser_would_run(surface: Surface) -> None:
    reply = await surface.get("/files/s/page.html")
    assert (reply.status, reply.body, reply.ended) == (200, b"<script>alert(1)</script>", True)
    assert {name: reply.headers[name] for name in reply.headers if name not in ("etag", "last-modified")} == {
        "content-type": "application/octet-stream",
        "content-length": "25",
        "content-disposition": "attachment; filename*=UTF-8''page.html",
        "content-security-policy": "default-src 'none'; sandbox",
        "x-content-type-options": "nosniff",
        "cache-control": "no-store",
        "accept-ranges": "bytes",
        "x-holdfast-source": "synced",
        "x-holdfast-generation": "1",
    }
    dated = await surface.get("/files/s/a.txt")
    assert dated.headers["last-modified"] == "Sun, 09 Sep 2001 01:46:40 GMT"
    for path, content in (("src/large", LARGE), ("empty", b""), (quote(ODD), b"odd"), ("link", b"hello")):
        reply = await surface.get(f"/files/s/{path}")
        assert (reply.status, reply.body, reply.ended) == (200, content, True), path
        assert int(reply.headers["content-length"]) == len(content)
    assert (await surface.get("/files/s/key?root=agent")).body == b"the agent's own"


async def test_a_range_is_cut_out_of_the_middle(surface: Surface) -> None:
    for start, end in ((0, 0), (0, 99_999), (65_535, 65_537), (399_999, 399_999), (70_000, 300_000)):
        reply = await surface.get("/files/s/src/large", range=f"bytes={start}-{end}")
        assert (reply.status, reply.body) == (206, LARGE[start : end + 1])
        assert reply.headers["content-range"] == f"bytes {start}-{end}/{len(LARGE)}"
        assert reply.headers["content-length"] == str(end - start + 1)
    assert (await surface.get("/files/s/src/large", range="bytes=-7")).body == LARGE[-7:]
    beyond = await surface.get("/files/s/src/large", range=f"bytes={len(LARGE)}-")
    assert beyond.refusal == (416, "no_such_range")
    assert beyond.headers["content-range"] == f"bytes */{len(LARGE)}"


async def test_many_ranges_are_refused_and_nothing_is_read_for_them(surface: Surface) -> None:
    before = packs_read(surface)
    for header in ("bytes=0-0,2-2", "bytes=" + ",".join(["0-"] * 5000), "bytes=x", "lines=1-2"):
        assert (await surface.get("/files/s/src/large", range=header)).refusal == (400, "bad_range")
    assert packs_read(surface) == before


async def test_a_tag_tells_whether_anything_changed(surface: Surface) -> None:
    first = await surface.get("/files/s/a.txt")
    tag = first.headers["etag"]
    assert tag.startswith('"')
    assert (await surface.get("/files/s/link")).headers["etag"] == tag
    before = packs_read(surface)
    for known in (tag, f'"other", {tag}', f"W/{tag}", "*"):
        same = await surface.get("/files/s/a.txt", if_none_match=known)
        assert (same.status, same.body, same.headers["etag"]) == (304, b"", tag)
    assert packs_read(surface) == before
    assert (await surface.get("/files/s/a.txt", if_none_match='"other"')).status == 200
    part = await surface.get("/files/s/a.txt", range="bytes=1-2", if_range=tag)
    assert (part.status, part.body) == (206, b"el")
    whole = await surface.get("/files/s/a.txt", range="bytes=1-2", if_range='"other"')
    assert (whole.status, whole.body) == (200, b"hello")


async def test_the_head_alone_reads_no_content(surface: Surface) -> None:
    before = packs_read(surface)
    reply = await surface.ask("HEAD", "/files/s/src/large")
    assert (reply.status, reply.body, reply.headers["content-length"]) == (200, b"", str(len(LARGE)))
    part = await surface.ask("HEAD", "/files/s/src/large", headers={"range": "bytes=5-9"})
    assert (part.status, part.headers["content-length"]) == (206, "5")
    assert (await surface.ask("HEAD", "/files/s/src")).status == 200
    assert packs_read(surface) == before


ATTEMPTS = [
    "..", "../agent/key", "%2e%2e/agent/key", "%2e%2e%2fagent%2fkey", "..%2fagent/key", "src/../../agent/key",
    "/etc/passwd", "%2fetc%2fpasswd", "//etc/passwd", "a.txt%00.png", "a%00", "..\\agent\\key", "..%5cagent%5ckey",
    "src/./large", "src//large", "out", "absolute", "absolute/x", "circle", "circle/x", "%c0%ae%c0%ae/agent/key",
    "..;/agent/key", "%252e%252e/agent/key", "....//agent/key", "a.txt/", "a.txt/x", "proc/self/root/etc/passwd",
    "x" * 300, "d/" * 100, "workspace/a.txt", "agent/key", "~", "%",
]  # fmt: skip


@pytest.mark.parametrize("path", ATTEMPTS)
async def test_no_path_leads_out_and_none_reads_anything(surface: Surface, path: str) -> None:
    before = packs_read(surface)
    for source in ("auto", "synced"):
        reply = await surface.get(f"/files/s/{path}?source={source}")
        assert reply.refusal[0] in (400, 404), reply.body
        assert b"the agent" not in reply.body
    assert packs_read(surface) == before


async def test_links_that_lead_nowhere_say_why(surface: Surface) -> None:
    assert (await surface.get("/files/s/out")).refusal == (404, "link_leads_out")
    assert (await surface.get("/files/s/absolute")).refusal == (404, "link_leads_out")
    assert (await surface.get("/files/s/circle")).refusal == (404, "too_many_links")
    assert (await surface.get("/files/s/a.txt/")).refusal == (404, "no_such_file")


async def test_earlier_generations_can_be_read_as_long_as_they_are_kept(surface: Surface) -> None:
    roots = workspace()
    roots.files[b"workspace/a.txt"] = b"changed"
    await surface.keep(roots)
    assert (await surface.get("/files/s/a.txt")).body == b"changed"
    old = await surface.get("/files/s/a.txt?generation=1")
    assert (old.body, old.headers["x-holdfast-generation"]) == (b"hello", "1")
    assert (await surface.get("/files/s/a.txt?generation=1&source=synced")).body == b"hello"
    assert (await surface.get("/files/s/a.txt?generation=3")).refusal == (404, "no_snapshot")


@pytest.mark.parametrize(
    "query",
    ["generation=0", "generation=x", "generation=1&generation=2", "source=disk", "root=state", "root=..",
     "root=agent&root=x", "generation=1&source=live"],
)  # fmt: skip
async def test_a_question_that_makes_no_sense_is_refused(surface: Surface, query: str) -> None:
    assert (await surface.get(f"/files/s/a.txt?{query}")).refusal == (400, "bad_parameter")


async def test_a_session_without_snapshots_has_nothing_to_read(surface: Surface) -> None:
    await surface.session("new")
    assert (await surface.get("/files/new/")).refusal == (404, "no_snapshot")
    assert (await surface.get("/files/new/?source=live")).refusal == (409, "not_running")


async def test_strangers_find_nothing_and_reading_loads_no_session(surface: Surface) -> None:
    before = packs_read(surface)
    unknown = await surface.get("/files/nobody/a.txt", "eva")
    for query in ("", "?source=live", "?generation=1", "?root=agent", "?root=x"):
        for path in ("", "a.txt", "src/large"):
            reply = await surface.get(f"/files/s/{path}{query}", "eva")
            assert (reply.refusal, reply.body) == ((404, "unknown_session"), unknown.body)
    assert packs_read(surface) == before
    assert (await surface.get("/files/s/a.txt", "nobody")).status == 401
    assert (await surface.get("/files/s/a.txt", "relay")).status == 401
    assert (await surface.get("/files/s/a.txt", "admin")).body == b"hello"
    assert surface.world.sessions.stats()["sessions_loaded"] == 0


# -- what goes wrong --------------------------------------------------------------------------------------------------


async def test_damage_is_told_in_words_before_the_first_byte(surface: Surface) -> None:
    assert await surface.objects.damage("/packs/")
    reply = await surface.get("/files/s/src/large")
    assert reply.refusal == (500, "damaged")
    assert "pack" in reply.json["error"]


async def test_a_file_that_breaks_off_is_not_ended(surface: Surface) -> None:
    noise = MemoryRoots()  # in frames of its own: the first is good
    noise.files[b"workspace/large"] = b"".join(quote(str(number)).encode() * 97 for number in range(40_000))
    await surface.session("noise")
    await surface.keep(noise, "noise")
    surface.objects.read.clear()
    whole = await surface.get("/files/noise/large")
    assert whole.body == noise.files[b"workspace/large"]
    reads = packs_read(surface)
    assert reads > 2, "several frames"
    reply = await _fails_at(surface, "/files/noise/large", reads)
    assert (reply.status, reply.ended) == (200, False)
    assert 0 < len(reply.body) < len(whole.body)
    assert whole.body.startswith(reply.body)


async def _fails_at(surface: Surface, target: str, read: int) -> Reply:
    """Ask, and have the store go away at so many readings of packs."""
    objects, get = surface.objects, surface.objects.get
    count = 0

    async def failing(key: str) -> object:
        nonlocal count
        count += "/packs/" in key
        if count == read:
            raise ObjectsUnavailable("injected")
        return await get(key)

    objects.get = failing  # type: ignore[assignment, method-assign]  # for this one question
    try:
        return await surface.get(target)
    finally:
        objects.get = get  # type: ignore[method-assign]


async def test_an_object_store_that_fails_is_told_apart(surface: Surface) -> None:
    surface.objects.fault = ObjectsUnavailable("bucket b at host h")
    for who, told in (("ada", False), ("admin", True)):
        away = await surface.get("/files/s/a.txt", who)
        assert away.refusal == (503, "objects_unavailable")
        assert int(away.headers["retry-after"])
        assert ("bucket b" in away.json["error"]) == told
    surface.objects.fault = ObjectsRefused("no such bucket b")
    for who, told in (("ada", False), ("admin", True)):
        refused = await surface.get("/files/s/a.txt", who)
        assert refused.refusal == (502, "objects_refused")
        assert ("bucket b" in refused.json["error"]) == told


# -- what is there now ------------------------------------------------------------------------------------------------


@pytest.fixture
async def running(surface: Surface) -> MemoryRoots:
    """The roots of a session `live` that runs."""
    await surface.world.create("live", user="ada")
    await surface.world.until(lambda: "live" in surface.world.fleet.sandboxes, "a sandbox")
    roots = surface.world.sandbox("live").roots
    roots.files |= {b"workspace/now": LARGE, b"workspace/d/x": b"x", b"agent/key": b"k"}
    roots.symlinks[b"workspace/l"] = b"now"
    return roots


async def test_a_running_sandbox_is_read_as_it_is_now(surface: Surface, running: MemoryRoots) -> None:
    shown = (await surface.get("/files/live/")).json
    assert (shown["source"], shown["generation"]) == ("live", None)
    assert [(entry["name"], entry["type"]) for entry in shown["entries"]] == [
        ("d", "directory"), ("l", "symlink"), ("now", "file"),
    ]  # fmt: skip
    assert shown["entries"][1]["target"] == "now"
    reply = await surface.get("/files/live/now?source=live")
    assert (reply.status, reply.body, reply.ended) == (200, LARGE, True)
    assert reply.headers["x-holdfast-source"] == "live"
    assert reply.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert "etag" not in reply.headers
    part = await surface.get("/files/live/now", range="bytes=10-19")
    assert (part.status, part.body) == (206, LARGE[10:20])
    assert (await surface.get("/files/live/now", range="bytes=-5")).body == LARGE[-5:]
    assert (await surface.get("/files/live/now", range=f"bytes={len(LARGE)}-")).refusal == (416, "no_such_range")
    assert (await surface.get("/files/live/now", range="bytes=0-1", if_range='"x"')).body == LARGE
    head = await surface.ask("HEAD", "/files/live/now")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(LARGE)))
    assert (await surface.get("/files/live/key?root=agent")).body == b"k"
    assert (await surface.get("/files/live/gone")).refusal == (404, "no_such_file")
    assert (await surface.get("/files/live/now/")).refusal == (404, "no_such_file")


async def test_what_a_sandbox_will_not_or_cannot_read_is_told_apart(surface: Surface, running: MemoryRoots) -> None:
    running.failures["files"] = [TreeFailed("bad_path", "the path leads out")]
    assert (await surface.get("/files/live/l")).refusal == (404, "cannot_be_read")
    running.failures["files"] = [TreeFailed("silent", "the bridge does not answer")]
    assert (await surface.get("/files/live/l")).refusal == (502, "sandbox_failed")
    assert (await surface.get("/files/live/now", "eva")).refusal == (404, "unknown_session")


async def test_a_live_file_that_changes_between_two_looks_is_not_mixed(surface: Surface, running: MemoryRoots) -> None:
    """The length was told from the first look; a file that is shorter by the second cannot keep that promise."""
    steps = running.steps

    class Watched(list[str]):
        def append(self, step: str) -> None:
            super().append(step)
            if self.count("files") == 2:
                running.files[b"workspace/now"] = b"short"

    running.steps = Watched()
    reply = await surface.get("/files/live/now")
    assert reply.refusal == (502, "sandbox_failed")
    running.steps = steps


# Only looks at what is kept were counted, and a place was given back when the answer was made.
@pytest.mark.parametrize(
    ("path", "other"), [("live/?source=live", "s/?source=synced"), ("s/?source=synced", "live/?source=live")]
)
async def test_whoever_does_not_read_listings_has_four_and_others_are_served(
    surface: Surface, running: MemoryRoots, path: str, other: str
) -> None:
    reads = [asyncio.Event() for _ in range(4)]
    asked = [asyncio.create_task(surface.ask("GET", f"/files/{path}", reads=event)) for event in reads]
    fifth = asyncio.create_task(surface.get(f"/files/{path}"))
    assert not (await asyncio.wait({*asked, fifth}, timeout=0.2))[0]
    assert (await surface.get(f"/files/{path}", "admin")).status == 200
    assert (await surface.get(f"/files/{other}")).status == 200
    reads[0].set()
    assert (await fifth).status == 200
    for event in reads:
        event.set()
    assert [(await each).status for each in asked] == [200] * 4


async def test_a_session_that_ran_is_read_from_its_newest_generation(surface: Surface, running: MemoryRoots) -> None:
    await surface.keep(running, "live")
    running.files[b"workspace/now"] = b"not kept"
    await surface.world.fleet.sandbox("live").stop()
    reply = await surface.get("/files/live/now")
    assert (reply.body, reply.headers["x-holdfast-source"]) == (LARGE, "synced")
    assert (await surface.get("/files/live/now?source=live")).refusal == (409, "not_running")
