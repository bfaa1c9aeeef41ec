"""The model that is built in answers what it can read, and says so of the rest."""

import httpx
import pytest

from gateway.agents.trial.model import TrialModel


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"1", b"null", b"{", b"[" * 100_000, b"\xff"])
async def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    model = TrialModel()
    async with model.serve(), httpx.AsyncClient(base_url=model.address) as client:
        refused = await client.post("/v1/messages", content=body)
        assert (refused.status_code, "error" in refused.json()) == (400, True)
        assert (await client.post("/v1/messages", json={})).status_code == 200
        assert (await client.get("/v1/models")).status_code == 200
    assert model.asked == 0
