"""One turn of an agent in a sandbox of its own, and what is said where there is none."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gateway.agents.launch import AgentLaunch
from gateway.agents.trial.answers import SAID
from gateway.agents.trial.model import TrialModel
from gateway.agents.trial.surroundings import TrialSurroundings
from gateway.agents.trial.turn import TrialFailed, _Heard, address_inside, one_turn
from sandbox.protocol.values import AgentExit
from sandbox.providers.local.fleet import LocalFleet

ASKS = """
import json, os, urllib.request
for line in open(0):
    asked = urllib.request.Request(os.environ["MODEL"] + "/v1/messages", b"{}")
    said = json.load(urllib.request.urlopen(asked))["content"][0]["text"] + open(os.environ["HOME"] + "/.a/file").read()
    content = [{"type": "text", "text": said}]
    print(json.dumps({"type": "sdk_message", "message": {"type": "assistant", "message": {"content": content}}}))
    print(json.dumps({"type": "done"}), flush=True)
"""
REFUSED = """
for line in open(0): print('{"type":"error","error":"no key is set"}\\n{"type":"done"}', flush=True)
"""


@pytest.fixture(params=["contained", "trusted"])
async def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalFleet]:
    fleet = LocalFleet(tmp_path, level=request.param)
    await fleet.open()
    yield fleet
    await fleet.close()


def python(program: str) -> AgentLaunch:
    return AgentLaunch((sys.executable, "-c", program))


async def test_an_agent_asks_the_model_and_answers(fleet: LocalFleet, tmp_path: Path) -> None:
    model = TrialModel()
    async with model.serve():
        around = TrialSurroundings({"MODEL": address_inside(fleet, model)}, {".a/file": " and a file"})
        assert await one_turn(fleet, tmp_path, python(ASKS), around, model) == f"{SAID} and a file"
    assert await fleet.running() == []


@pytest.mark.parametrize(
    ("program", "told"),
    [("raise SystemExit(3)", "the agent ended: exited with code 3"), (REFUSED, "no key is set")],
    ids=["ends", "says why"],
)
async def test_what_comes_instead_of_an_answer_is_told(
    fleet: LocalFleet, tmp_path: Path, program: str, told: str
) -> None:
    with pytest.raises(TrialFailed, match=told):
        await one_turn(fleet, tmp_path, python(program), TrialSurroundings({}), TrialModel())
    assert await fleet.running() == []


async def test_how_a_process_ended_is_told_behind_what_was_noticed_first() -> None:
    """If a process ends at once, the bridge may notice first that nothing reads its input."""
    heard = _Heard()
    heard.on_epoch("e", 0)
    heard.on_problem("the agent closed its input")
    heard.on_exit(AgentExit("e", 0, 0, 3, None, "exited with code 3"))
    with pytest.raises(TrialFailed, match=r"^the agent closed its input; the agent ended: exited with code 3$"):
        await heard._over


async def test_an_agent_that_cannot_be_started_is_told_of_at_once() -> None:
    heard = _Heard()
    heard.on_problem("the agent could not be started: no such file")
    with pytest.raises(TrialFailed, match="no such file"):
        await heard._over


async def test_one_that_says_nothing_is_given_up(fleet: LocalFleet, tmp_path: Path) -> None:
    silent = python("import sys, time; print('here I am', file=sys.stderr); time.sleep(600)")
    with pytest.raises(TrialFailed, match=r"no answer within 5 s"):
        await one_turn(fleet, tmp_path, silent, TrialSurroundings({}), TrialModel(), seconds=5.0)
    assert await fleet.running() == []


async def test_the_model_refuses_what_it_does_not_know() -> None:
    model = TrialModel()
    async with model.serve(), httpx.AsyncClient(base_url=model.address) as client:
        answers = await asyncio.gather(client.get("/other"), client.post("/v1/messages", content=b"{"))
        assert [each.status_code for each in answers] == [404, 400]
        streamed = await client.post("/v1/messages", json={"stream": True})
        assert streamed.headers["content-type"].startswith("text/event-stream")
    assert model.asked == 1
