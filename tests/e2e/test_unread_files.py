"""A file that may not be read stops no sync, no pause and no sleep, and is not lost by them."""

from pathlib import Path

from sandbox.providers.local.layout import SandboxHome
from tests.support.gateway import Gateway

UNREAD = {"count": 1, "paths": ["workspace/x"]}


async def test_a_file_of_mode_000_is_named_and_stops_nothing(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data", LOCAL_LEVEL="contained") as gateway, gateway.http() as client:
        url = "/api/sandboxes/s1"
        await gateway.create("s1", agent=["cat"])
        workspace = SandboxHome(gateway.data_dir, "s1").workspace
        assert (await client.post(f"{url}/sync")).status_code == 200
        (workspace / "y").write_text("y")
        (workspace / "x").write_text("x")
        (workspace / "x").chmod(0)
        answer = await client.post(f"{url}/sync")
        assert (answer.status_code, answer.json()["sync"]["unread"]) == (200, UNREAD)
        for verb, back in (("pause", "resume"), ("sleep", "wake")):
            (workspace / "y").write_text(verb)
            answer = await client.post(f"{url}/{verb}")
            assert answer.status_code == 200, answer.text
            assert answer.json()["sync"]["unread"] == UNREAD
            newest = (await client.get(f"{url}/snapshots/newest")).json()
            assert newest["skipped"] == [{"path": "workspace/x"}]
            answer = await client.post(f"{url}/{back}")
            assert answer.status_code == 200, answer.text
            assert (workspace / "y").read_text() == verb
            assert (workspace / "x").stat().st_mode & 0o777 == 0, "it is where it was"
        (workspace / "x").chmod(0o600)
        answer = await client.post(f"{url}/sync")
        assert (answer.status_code, "unread" in answer.json()["sync"]) == (200, False)
        newest = (await client.get(f"{url}/snapshots/newest")).json()
        assert (newest["skipped"], newest["counts"]["files"]) == ([], 2)
        assert "sync.unread" in gateway.log


async def test_an_earlier_generation_takes_the_place_of_a_tree_with_a_file_of_mode_000(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data", LOCAL_LEVEL="contained") as gateway, gateway.http() as client:
        url = "/api/sandboxes/s1"
        await gateway.create("s1", agent=["cat"])
        home = SandboxHome(gateway.data_dir, "s1")
        assert (await client.post(f"{url}/sync")).status_code == 200
        (home.workspace / "y").write_text("first")
        first = (await client.post(f"{url}/sync")).json()["sync"]["generation"]
        (home.workspace / "y").write_text("second")
        (home.workspace / "x").write_text("x")
        (home.workspace / "x").chmod(0)
        assert (await client.post(f"{url}/pause")).status_code == 200
        answer = await client.post(f"{url}/snapshots/{first}/restore", json={"inPlace": True})
        assert (answer.status_code, answer.json()["sync"]["generation"]) == (200, first + 2)
        assert (await client.post(f"{url}/resume")).json()["status"] == "running"
        assert {each.name: each.read_text() for each in home.workspace.iterdir()} == {"y": "first"}
        aside = home.kept / ".aside-1" / "workspace"
        assert {each.name for each in aside.iterdir()} == {"x", "y"}, "what was not kept is not lost"
