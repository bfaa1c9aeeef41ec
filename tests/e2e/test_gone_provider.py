"""A session whose sandbox was at a provider that no gateway has any more: unknown, until the operator says it is
gone."""

import sqlite3
from pathlib import Path

from tests.gateway.http.sessions.test_lifecycle import comes_to
from tests.support.chat import hear, say
from tests.support.gateway import Gateway


def move(gateway: Gateway, provider: str) -> None:
    """The sessions are at another provider from now on. No gateway runs."""
    with sqlite3.connect(gateway.data_dir / "holdfast.db") as db:
        db.execute(
            "UPDATE sessions SET spec = CAST(json_set(CAST(spec AS TEXT), '$.provider', ?) AS BLOB)", (provider,)
        )
    db.close()


# It was 503 for ever: nobody could say that its sandbox had stopped.
async def test_sessions_of_a_provider_that_is_gone_can_be_read_branched_and_deleted_once_the_operator_says_so(
    tmp_path: Path,
) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        for session_id in ("kept", "purged"):
            await gateway.create(session_id)
            async with gateway.chat(session_id) as socket:
                await say(socket, "message", content="hello")
                await hear(socket, "done")
        async with gateway.http() as ada:
            (gateway.data_dir / "sandboxes/kept/kept/workspace/file").write_text("synced")
            assert (await ada.post("/api/sandboxes/kept/sync")).status_code == 200
            await gateway.terminate()
            await gateway._end_sandboxes()
            move(gateway, "elsewhere")
            await gateway.start()
            for session_id in ("kept", "purged"):
                refused = await ada.delete(f"/api/sandboxes/{session_id}")
                assert (refused.status_code, refused.json()["code"]) == (503, "sandbox_unavailable")
                assert "HOLDFAST_GONE_PROVIDERS" in refused.json()["error"]

            gateway.settings["GONE_PROVIDERS"] = "elsewhere"
            await gateway.restart()
            assert "house.providers_gone" in gateway.log
            await comes_to(ada, "kept", "sleeping")
            assert (await ada.get("/files/kept/file")).text == "synced"
            assert (await ada.post("/api/sandboxes/kept/wake")).status_code < 500
            shown = await comes_to(ada, "kept", "error")
            assert "'elsewhere', which is gone" in shown["reason"]
            branched = await ada.post("/api/sandboxes/kept/snapshots/newest/branch")
            assert (branched.status_code, branched.json()["provider"]) == (201, "local")
            assert [each["status"] for each in await gateway.messages("kept") if each["role"] == "user"] == [
                "delivered"
            ]
            assert (await ada.delete("/api/sandboxes/kept")).json()["status"] == "archived"
            assert (await ada.delete("/api/sandboxes/purged?purge=1")).status_code == 200
            assert (await ada.get("/api/sandboxes/purged")).status_code == 404
