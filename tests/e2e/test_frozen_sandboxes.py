"""Sandboxes whose bridge is stopped, which any program inside can do: they harm their own sessions only."""

import asyncio
import os
import signal
from pathlib import Path

from sandbox.providers.local.layout import SandboxHome
from tests.support.gateway import Gateway

FROZEN = [(user, f"{user}-{number}") for user in ("mal", "moe") for number in range(4)]  # as many as there are slots


async def _sync(gateway: Gateway, user: str, session_id: str) -> tuple[int, str]:
    async with gateway.http(gateway.bearer(user)) as client:
        answer = await client.post(f"/api/sandboxes/{session_id}/sync")
        return answer.status_code, answer.text


async def test_frozen_sandboxes_of_two_users_hold_up_no_sync_of_a_third(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data", MAX_CONNECTIONS_PER_ADDRESS=400) as gateway:
        everybody = [("vic", "v"), *FROZEN]
        await asyncio.gather(*(gateway.create(session_id, user, agent=["cat"]) for user, session_id in everybody))
        for user, session_id in everybody:
            assert (await _sync(gateway, user, session_id))[0] == 200
            (SandboxHome(gateway.data_dir, session_id).workspace / "new").touch()
        notes = [SandboxHome(gateway.data_dir, session_id).read_note() for _, session_id in FROZEN]
        bridges = [note.pid for note in notes if note is not None]
        assert len(bridges) == len(FROZEN)
        for pid in bridges:
            os.kill(pid, signal.SIGSTOP)
        try:
            waiting = [asyncio.ensure_future(_sync(gateway, user, session_id)) for user, session_id in FROZEN]
            await asyncio.sleep(1)  # they wait for their bridges; were it too short, this would show less, not fail
            own = asyncio.ensure_future(_sync(gateway, "vic", "v"))
            first, _ = await asyncio.wait({own, *waiting}, return_when=asyncio.FIRST_COMPLETED)
            assert first == {own}
            assert (await own)[0] == 200
        finally:
            for pid in bridges:
                os.kill(pid, signal.SIGCONT)
        await asyncio.gather(*waiting)
