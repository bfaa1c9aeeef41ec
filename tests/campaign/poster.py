"""A service that stores records over HTTP, and keeps book like a Participant does."""

import asyncio

import httpx

from tests.campaign.journal import Journal, digest
from tests.support.gateway import Gateway

TRY_AGAIN = frozenset({409, 429, 503})


class Poster:
    def __init__(self, name: str, session_id: str, journal: Journal) -> None:
        self.name = name
        self.session_id = session_id
        self._journal = journal

    async def run(self, gateway: Gateway, messages: int) -> None:
        """Store so many, one after the other; each is sent again, with the same cid, until it is stored."""
        async with gateway.http(gateway.internal) as client:
            for number in range(1, messages + 1):
                cid = f"{self.name}-{number}"
                while not await self._post(client, cid):  # noqa: ASYNC110 - it can only be asked
                    await asyncio.sleep(0.01)

    async def _post(self, client: httpx.AsyncClient, cid: str) -> bool:
        self._note("invoke", cid, sha256=digest(cid))
        body = {"role": "user", "content": cid, "cid": cid}
        answer = await client.post(f"/internal/sessions/{self.session_id}/messages", json=body)
        if answer.status_code in TRY_AGAIN:
            return False
        assert answer.status_code in (200, 201), answer.text
        told = answer.json()
        stored = bool(told["stage"] == "stored")
        if stored:  # `accepted` is the promise of a single node, and here there are two
            self._note("stored", cid, seq=told["seq"])
        return stored

    def _note(self, event: str, cid: str, **members: object) -> None:
        self._journal.note(event, session=self.session_id, sender=self.name, cid=cid, **members)
