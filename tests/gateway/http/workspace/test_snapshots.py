"""Snapshots over HTTP: looked at, compared, taken away, and begun from anew, for those who may."""

import asyncio
import io
import tarfile
from collections.abc import AsyncIterator

import pytest

from gateway.http.workspace.snapshots import COMPARED, NAMED, compare, inventory
from gateway.routing.route import served as declared_routes
from gateway.routing.route import specs_of
from sandbox.protocol.entry import Entry, Kind
from sandbox.providers.memory.tree import MemoryRoots
from sync.format.manifest import StoredTree
from sync.ports import Conflict, ObjectsRefused, ObjectsUnavailable
from tests.support.routes import POLICY
from tests.support.surface import Surface

ALL = "/api/sandboxes/s/snapshots"


def filled(**files: str) -> MemoryRoots:
    roots = MemoryRoots()
    roots.files |= {f"workspace/{name}".encode(): content.encode() for name, content in files.items()}
    return roots


@pytest.fixture
async def surface() -> AsyncIterator[Surface]:
    """A session of ada's with three generations; the second lost most of the files of the first."""
    async with Surface.open() as surface:
        await surface.session()
        roots = filled(**{f"f{number}": f"content {number}" for number in range(20)})
        roots.files[b"agent/memory"] = b"what it knows"
        roots.symlinks[b"workspace/link"] = b"/etc/passwd"
        roots.directories.add(b"workspace/empty")
        await surface.keep(roots)
        for number in range(1, 20):
            del roots.files[f"workspace/f{number}".encode()]
        await surface.keep(roots)
        roots.files |= {b"workspace/f0": b"changed", b"workspace/\xff\x1b[31m": b"new"}
        roots.modes[b"workspace/link"] = 0o700
        roots.modes[b"workspace/empty"] = 0o700
        await surface.keep(roots)
        yield surface


# -- looking ----------------------------------------------------------------------------------------------------------


async def test_snapshots_are_listed_the_newest_first(surface: Surface) -> None:
    found = (await surface.get(ALL)).json
    assert (found["newest"], found["origin"]) == (3, None)
    assert [each["generation"] for each in found["snapshots"]] == [3, 2, 1]
    newest, _, first = found["snapshots"]
    assert set(newest) == {"generation", "at", "files", "bytes", "pinned", "note", "manifest"}
    assert (newest["files"], newest["pinned"], newest["note"]) == (4, None, None)
    assert "generation 2" in first["pinned"]
    assert newest["at"].startswith("2026-")


async def test_a_session_without_snapshots_has_an_empty_list(surface: Surface) -> None:
    await surface.session("new")
    assert (await surface.get("/api/sandboxes/new/snapshots")).json == {
        "snapshots": [], "newest": None, "origin": None,
    }  # fmt: skip
    for path in ("newest", "1", "newest/diff", "1/export"):
        assert (await surface.get(f"/api/sandboxes/new/snapshots/{path}")).refusal == (404, "no_snapshot")
    for path in ("verify", "newest/branch", "1/restore", "1/release"):
        assert (await surface.post(f"/api/sandboxes/new/snapshots/{path}")).refusal == (404, "no_snapshot")


async def test_one_is_shown_by_its_number_or_as_the_newest(surface: Surface) -> None:
    shown = (await surface.get(f"{ALL}/newest")).json
    assert shown == (await surface.get(f"{ALL}/3")).json
    assert shown["counts"] == {"files": 3, "directories": 1, "symlinks": 1, "skipped": 0, "unsettled": 0}
    assert (shown["skipped"], shown["unsettled"]) == ([], [])
    for name in ("4", "0", "-1", "x", "1.0", "%F0%9F%90%9F", "9" * 40, "Newest", "verify"):
        assert (await surface.get(f"{ALL}/{name}")).refusal == (404, "no_snapshot"), name


def test_what_is_not_as_it_was_is_named_up_to_a_bound_and_counted_beyond() -> None:
    entries = [Entry(b"workspace/%05d" % n, Kind.FILE, 0o644, 0, unsettled=True) for n in range(NAMED + 5)]
    skipped = tuple(b"workspace/socket%d" % n for n in range(3))
    tree = StoredTree({entry.path: entry for entry in reversed(entries)}, skipped=skipped, skipped_count=1234)
    shown = inventory(tree)
    assert (shown["counts"]["skipped"], shown["counts"]["unsettled"]) == (1234, NAMED + 5)
    assert [each["path"] for each in shown["skipped"]] == [path.decode() for path in skipped]
    assert len(shown["unsettled"]) == NAMED
    assert shown["unsettled"][0] == {"path": "workspace/00000", "type": "file", "size": 0}


async def test_a_diff_tells_what_was_added_changed_and_removed(surface: Surface) -> None:
    found = (await surface.get(f"{ALL}/2/diff")).json
    assert (found["from"], found["to"], found["truncated"]) == (2, 3, False)
    assert [entry["path"] for entry in found["added"]] == ["workspace/\ufffd\x1b[31m"]
    assert found["added"][0]["pathBase64"]
    changed = [(entry["path"], entry["type"], entry["content"]) for entry in found["changed"]]
    assert changed == [
        ("workspace/empty", "directory", False), ("workspace/f0", "file", True), ("workspace/link", "symlink", False),
    ]  # fmt: skip
    assert found["removed"] == []
    back = (await surface.get(f"{ALL}/3/diff?to=2")).json
    assert [entry["path"] for entry in back["removed"]] == ["workspace/\ufffd\x1b[31m"]
    assert (await surface.get(f"{ALL}/1/diff?to=2")).json["counts"] == {"added": 0, "changed": 0, "removed": 19}
    same = (await surface.get(f"{ALL}/newest/diff?to=newest")).json
    assert (same["added"], same["changed"], same["removed"]) == ([], [], [])
    assert (await surface.get(f"{ALL}/1/diff?to=9")).refusal == (404, "no_snapshot")
    assert (await surface.get(f"{ALL}/1/diff?to=x")).refusal == (404, "no_snapshot")


# A place was given back when the answer was made: whoever did not read had any number of answers in memory.
@pytest.mark.parametrize("path", ["newest", "1/diff"])
async def test_whoever_does_not_read_looks_into_snapshots_has_two(surface: Surface, path: str) -> None:
    reads = [asyncio.Event() for _ in range(2)]
    asked = [asyncio.create_task(surface.ask("GET", f"{ALL}/{path}", reads=event)) for event in reads]
    third = asyncio.create_task(surface.get(f"{ALL}/{path}"))
    assert not (await asyncio.wait({*asked, third}, timeout=0.2))[0]
    for event in reads:
        event.set()
    assert {(await each).status for each in (*asked, third)} == {200}


def test_a_diff_names_so_many_paths_and_counts_them_all() -> None:
    many = {b"workspace/%06d" % n: Entry(b"workspace/%06d" % n, Kind.FILE, 0o644, 0) for n in range(COMPARED + 10)}
    found = compare(StoredTree(), StoredTree(many))
    assert (len(found["added"]), found["counts"]["added"], found["truncated"]) == (COMPARED, COMPARED + 10, True)
    assert compare(StoredTree(many), StoredTree(many))["truncated"] is False


async def test_an_export_is_a_tar_of_the_whole_tree(surface: Surface) -> None:
    reply = await surface.get(f"{ALL}/newest/export")
    assert (reply.status, reply.ended) == (200, True)
    assert reply.headers["content-type"] == "application/x-tar"
    assert reply.headers["content-disposition"] == 'attachment; filename="s-3.tar"'
    assert reply.headers["x-holdfast-generation"] == "3"
    with tarfile.open(fileobj=io.BytesIO(reply.body)) as archive:
        members = {member.name: member for member in archive.getmembers()}
        read = {name: archive.extractfile(name) for name in members if members[name].isreg()}
        contents = {name: file.read() for name, file in read.items() if file is not None}
    assert contents == {
        "agent/memory": b"what it knows", "workspace/f0": b"changed", "workspace/\udcff\x1b[31m": b"new",
    }  # fmt: skip
    assert members["workspace/link"].linkname == "/etc/passwd"
    assert members["workspace/empty"].isdir()
    assert reply.body.endswith(bytes(1024))
    head = await surface.ask("HEAD", f"{ALL}/1/export")
    assert (head.status, head.body) == (200, b"")


async def test_an_export_that_cannot_be_finished_is_not_ended(surface: Surface) -> None:
    await surface.objects.damage("/packs/")
    reply = await surface.get(f"{ALL}/1/export")
    assert (reply.status, reply.ended) == (200, False)
    assert not reply.body.endswith(bytes(1024))


async def test_an_export_ends_early_when_the_gateway_leaves(surface: Surface) -> None:
    surface.world.sessions.drain.draining = True
    assert not (await surface.get(f"{ALL}/1/export")).ended
    verified = await surface.post(f"{ALL}/verify")
    assert verified.ended or verified.lines[-1]["code"] == "draining"
    assert (await surface.post(f"{ALL}/1/branch")).refusal == (503, "draining")
    surface.world.sessions.drain.draining = False


# -- deciding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "word"), [("branch", "branch"), ("restore", "restored")])
async def test_a_new_session_begins_with_a_generation_and_the_origin_is_as_it_was(
    surface: Surface, how: str, word: str
) -> None:
    before = (await surface.get(ALL)).body
    reply = await surface.post(f"{ALL}/1/{how}")
    assert reply.status == 201, reply.body
    described = reply.json
    assert described["userId"] == "ada"
    assert described["id"].startswith(f"s-{word}-")
    begun = (await surface.get(f"/api/sandboxes/{described['id']}/snapshots")).json
    assert begun["origin"] == "s@1"
    assert [each["generation"] for each in begun["snapshots"]] == [1]
    assert begun["snapshots"][0]["note"] == "from s, generation 1"
    assert (await surface.get(f"/files/{described['id']}/f7?source=synced")).body == b"content 7"
    assert (await surface.get(f"/files/{described['id']}/f7?source=synced", "eva")).status == 404
    assert (await surface.get(ALL)).body == before


async def test_a_service_branches_for_the_owner(surface: Surface) -> None:
    for who in ("admin", "relay"):
        assert (await surface.post(f"{ALL}/newest/branch", who)).json["userId"] == "ada"


async def test_in_place_needs_a_paused_session(surface: Surface) -> None:
    reply = await surface.post(f"{ALL}/1/restore", body={"inPlace": True})
    assert reply.refusal == (409, "not_paused")
    assert (await surface.get(ALL)).json["newest"] == 3


async def test_in_place_makes_an_earlier_tree_the_newest_and_pins_what_was_there(surface: Surface) -> None:
    actor = await surface.world.create("t", user="ada")
    await surface.world.until(lambda: actor.workspace.ready, "a workspace")
    files = surface.world.sandbox("t").files
    files[b"workspace/x"] = b"first"
    await actor.sync(wait=True)
    files[b"workspace/x"] = b"second"
    await actor.sync(wait=True)
    await actor.pause()
    reply = await surface.post("/api/sandboxes/t/snapshots/1/restore", body={"inPlace": True})
    assert (reply.status, reply.json["id"]) == (200, "t"), reply.body
    newest, before, _ = (await surface.get("/api/sandboxes/t/snapshots")).json["snapshots"]
    assert newest["note"] == "restored from generation 1"
    assert before["pinned"]
    assert (await surface.get("/files/t/x?source=synced")).body == b"first"
    assert (await surface.get("/files/t/x?generation=2")).body == b"second"


async def test_a_pinned_generation_is_released(surface: Surface) -> None:
    assert (await surface.post(f"{ALL}/1/release")).json == {"generation": 1, "wasPinned": True, "kept": True}
    assert [each["pinned"] for each in (await surface.get(ALL)).json["snapshots"]] == [None, None, None]
    assert (await surface.post(f"{ALL}/1/release")).json == {"generation": 1, "wasPinned": False, "kept": True}
    assert (await surface.post(f"{ALL}/9/release")).refusal == (404, "no_snapshot")


@pytest.mark.parametrize("path", ["1/branch", "1/restore", "1/release", "verify"])
async def test_a_body_that_makes_no_sense_is_refused_and_nothing_is_done(surface: Surface, path: str) -> None:
    before = (await surface.get(ALL)).body
    assert (await surface.post(f"{ALL}/{path}", body={"force": 1})).refusal == (400, "unknown_member")
    assert (await surface.ask("POST", f"{ALL}/{path}", body=b"{")).refusal == (400, "bad_json")
    assert (await surface.post(f"{ALL}/1/restore", body={"inPlace": "yes"})).refusal == (400, "bad_member")
    assert (await surface.get(ALL)).body == before


# -- long work --------------------------------------------------------------------------------------------------------


async def test_verify_reads_everything_and_finds_damage(surface: Surface) -> None:
    reply = await surface.post(f"{ALL}/verify")
    assert reply.headers["content-type"] == "application/x-ndjson"
    assert reply.ended
    assert all(set(line) == {"progress"} for line in reply.lines[:-1])
    result = reply.lines[-1]["result"]
    assert result["whole"] is True
    assert [(each["generation"], each["problems"]) for each in result["generations"]] == [(3, []), (2, []), (1, [])]
    await surface.objects.damage("/packs/")
    damaged = (await surface.post(f"{ALL}/verify")).lines[-1]["result"]
    assert damaged["whole"] is False
    assert all(each["problems"] for each in damaged["generations"])


async def test_a_user_verifies_one_at_a_time(surface: Surface, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, begun = asyncio.Event(), asyncio.Event()

    async def slowly(*_: object) -> list[object]:
        begun.set()
        await go_on.wait()
        return []

    monkeypatch.setattr(surface.vault, "verify", slowly)
    first = asyncio.create_task(surface.post(f"{ALL}/verify"))
    await begun.wait()
    assert (await surface.post(f"{ALL}/verify", "admin")).refusal == (429, "busy")
    go_on.set()
    assert (await first).lines[-1]["result"] == {"whole": True, "generations": []}
    assert (await surface.post(f"{ALL}/verify")).ended


async def test_collecting_is_for_operators_and_tells_what_it_found(surface: Surface) -> None:
    for who in ("ada", "relay", "nobody"):
        assert (await surface.post("/internal/snapshots/gc", who)).status == 401
    reply = await surface.post("/internal/snapshots/gc?dryRun=1", "admin")
    assert reply.ended
    result = reply.lines[-1]["result"]
    assert (result["sessions"], result["generations"], result["removed"], result["dryRun"]) == (1, 3, 0, True)
    assert (result["problem"], set(result)) == (
        None,
        {"sessions", "generations", "packs", "packBytes", "marked", "removed", "removedBytes", "problem", "dryRun"},
    )
    assert result["packBytes"] > 0
    assert (await surface.post("/internal/snapshots/gc?dryRun=maybe", "admin")).refusal == (400, "bad_parameter")
    await surface.objects.damage("/manifests/")
    assert (await surface.post("/internal/snapshots/gc", "admin")).lines[-1]["result"]["problem"]
    surface.objects.fault = ObjectsUnavailable("bucket b")
    away = await surface.post("/internal/snapshots/gc", "admin")
    assert (away.lines[-1]["code"], away.ended) == ("objects_unavailable", False)


# -- who may, and what goes wrong -------------------------------------------------------------------------------------

EVERY = [
    (method, path.replace("{id}", "s").replace("{generation}", "1"))
    for method, path in POLICY
    if "/snapshots" in path and "{id}" in path
]


async def test_every_route_for_snapshots_is_asked_below(surface: Surface) -> None:
    part = surface.snapshots
    served = {(spec.method, spec.path) for spec in specs_of(declared_routes(part))}
    assert {each for each in POLICY if "/snapshots" in each[1]} == served
    assert len(EVERY) == len(served) - 1


@pytest.mark.parametrize(("method", "path"), EVERY)
async def test_strangers_are_told_that_there_is_no_such_session(surface: Surface, method: str, path: str) -> None:
    before, read = (await surface.get(ALL)).body, len(surface.objects.read)
    unknown = await surface.ask(method, path.replace("/s/", "/nobodys/"), "eva")
    for body in (b"", b'{"inPlace":true}', b"no json"):
        reply = await surface.ask(method, path, "eva", body=body)
        assert (reply.refusal, reply.body) == ((404, "unknown_session"), unknown.body)
    assert len(surface.objects.read) == read
    assert (await surface.ask(method, path, "nobody")).status == 401
    assert (await surface.get(ALL)).body == before


@pytest.mark.parametrize(("method", "path"), EVERY)
@pytest.mark.parametrize(
    ("fault", "refusal"),
    [(ObjectsUnavailable("x"), (503, "objects_unavailable")), (ObjectsRefused("x"), (502, "objects_refused"))],
)
async def test_a_store_that_fails_is_told_apart_everywhere(
    surface: Surface, method: str, path: str, fault: Exception, refusal: tuple[int, str]
) -> None:
    surface.objects.fault = fault
    assert (await surface.ask(method, path)).refusal == refusal


async def test_a_damaged_pointer_or_manifest_is_told_in_words(surface: Surface) -> None:
    await surface.objects.damage("/manifests/")
    fresh = Surface(surface.world, surface.objects)  # with nothing in memory
    for path in ("1", "1/diff", "1/export"):
        reply = await fresh.get(f"{ALL}/{path}")
        assert reply.refusal == (500, "damaged")
        assert "manifest" in reply.json["error"]
    assert (await fresh.get(ALL)).status == 200
    await surface.objects.damage("/pointer")
    for path in ("", "/1"):
        assert (await fresh.get(f"{ALL}{path}")).refusal == (500, "damaged")


async def test_who_loses_a_race_is_told_to_try_again(surface: Surface, monkeypatch: pytest.MonkeyPatch) -> None:
    async def beaten(*_: object) -> str:
        raise Conflict("somebody else was first")

    monkeypatch.setattr(surface.objects, "replace", beaten)
    assert (await surface.post(f"{ALL}/1/release")).refusal == (409, "conflict")


async def test_looking_loads_no_session(surface: Surface) -> None:
    for path in ("", "/1", "/1/diff", "/1/export"):
        assert (await surface.get(f"{ALL}{path}")).status == 200
    await surface.post(f"{ALL}/verify")
    await surface.post(f"{ALL}/1/release")
    assert surface.world.sessions.stats()["sessions_loaded"] == 0
