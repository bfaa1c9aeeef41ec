"""What a session's sandbox may use: asked for at create, bounded by settings, shown, and told when it is met."""

import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from sandbox.providers.cgroups import groups
from tests.gateway.http.sessions.test_lifecycle import comes_to, refused
from tests.sandbox.cgroups import NO_GROUPS
from tests.support.chat import hear, say
from tests.support.gateway import Gateway

MIB = 1 << 20
held = pytest.mark.skipif(bool(NO_GROUPS), reason=NO_GROUPS or "-")
BOMB = shlex.join([sys.executable, "-c", "import sys; sys.stdin.readline(); bytearray(600 << 20)"])


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    if NO_GROUPS:
        pytest.skip(NO_GROUPS)
    limits = {"LIMIT_MEMORY": "256m", "LIMIT_PIDS": 200}
    async with Gateway(tmp_path / "data", LOCAL_LEVEL="contained", **limits) as running:
        yield running
        async with running.http(running.relay) as relay:  # groups go with their sandboxes
            for session in (await relay.get("/api/sandboxes")).json()["sandboxes"]:
                await relay.delete(f"/api/sandboxes/{session['id']}")
    groups.find(groups.tag(tmp_path / "data")).close()  # the gateway was killed, and leaves what was around them


async def test_limits_are_given_bounded_and_shown_with_what_is_used(gateway: Gateway) -> None:
    async with gateway.http() as ada, gateway.http(gateway.relay) as relay:
        more = await ada.post("/api/sandboxes/s", json={"limits": {"memory": "257MiB"}})
        assert refused(more, 403, "limit_not_allowed")
        assert "HOLDFAST_LIMIT_MEMORY" in more.json()["error"]
        assert (await ada.get("/api/sandboxes/s")).status_code == 404, "nothing was made of it"

        assert (
            await ada.post("/api/sandboxes/own", json={"limits": {"memory": "128MiB", "cpus": 2}})
        ).status_code == 201
        own = await comes_to(ada, "own", "running")
        assert own["limits"] == {"memory": 128 * MIB, "cpus": 2.0, "pids": 200}
        assert 0 < own["usage"]["memory"] <= 128 * MIB
        assert own["usage"]["cpuSeconds"] > 0
        assert own["usage"]["pids"] >= 3

        assert (await ada.post("/api/sandboxes/plain")).status_code == 201
        assert (await comes_to(ada, "plain", "running"))["limits"] == {"memory": 256 * MIB, "cpus": None, "pids": 200}

        asked = {"limits": {"memory": 300 * MIB}, "userId": "ada"}
        assert (await relay.post("/api/sandboxes/granted", json=asked)).status_code == 201
        assert (await comes_to(ada, "granted", "running"))["limits"]["memory"] == 300 * MIB

        asleep = await ada.post("/api/sandboxes/own/sleep")
        assert asleep.status_code == 200
        status = (await ada.get("/api/sandboxes/own/status")).json()
        assert (status["limits"], status["usage"]) == (None, None)
        assert all("limits" not in each for each in (await ada.get("/api/sandboxes")).json()["sandboxes"])

        gateway.settings |= {"LIMIT_MEMORY": "200m"}
        await gateway.restart()
    async with gateway.http() as ada:
        assert (await comes_to(ada, "plain", "running"))["limits"]["memory"] == 256 * MIB, "what runs goes on"
        assert (await ada.post("/api/sandboxes/own/wake")).json()["status"] == "running"
        assert (await comes_to(ada, "own", "running"))["limits"]["memory"] == 128 * MIB
        for name in ("plain", "granted"):
            await ada.post(f"/api/sandboxes/{name}/sleep")
            await ada.post(f"/api/sandboxes/{name}/wake")
        assert (await comes_to(ada, "plain", "running"))["limits"]["memory"] == 200 * MIB
        assert (await comes_to(ada, "granted", "running"))["limits"]["memory"] == 300 * MIB


async def test_an_agent_that_meets_the_memory_limit_says_so_where_people_look(gateway: Gateway) -> None:
    async with gateway.http() as ada:
        assert (await ada.post("/api/sandboxes/bomb", json={"agent": BOMB})).status_code == 201
        await comes_to(ada, "bomb", "running")
        async with gateway.chat("bomb") as socket:
            await hear(socket, "welcome")
            await say(socket, "message", cid="m", content="now")
            told = await hear(socket, "session_status")
            while told["status"] != "agent_exited":
                told = await hear(socket, "session_status")
        assert told["reason"] == (
            "the program was killed because the sandbox's memory limit of 256 MiB was reached; HOLDFAST_LIMIT_MEMORY"
        )
        assert (await ada.get("/api/sandboxes/bomb/status")).json()["usage"] is not None, "the sandbox goes on"
    async with gateway.http(gateway.admin) as admin:
        figures = (await admin.get("/metrics")).text
    assert 'holdfast_limit_ends_total{limit="memory",provider="local"} 1.0' in figures


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ("much", "limits must be an object"),
        ({"memory": "1m"}, "limits.memory must be bytes, or a size"),
        ({"memory": 1.5}, "limits.memory must be bytes, or a size"),
        ({"cpus": True}, "limits.cpus must be a number"),
        ({"pids": 1}, "limits.pids must be a whole number"),
        ({"disk": 1}, "limits.disk"),
    ],
)
async def test_a_limit_that_is_none_is_refused_in_words(limits: object, words: str, plain: httpx.AsyncClient) -> None:
    answer = await plain.post("/api/sandboxes/bad", json={"limits": limits})
    assert answer.status_code == 400
    assert words in answer.json()["error"]


async def test_where_nothing_holds_a_sandbox_to_a_limit_it_is_refused(plain: httpx.AsyncClient) -> None:
    answer = await plain.post("/api/sandboxes/s", json={"limits": {"memory": "256m"}})
    assert refused(answer, 400, "bad_sandbox")
    assert answer.json()["error"].startswith("limits.memory cannot be enforced: sandboxes of level trusted")


@pytest.fixture(scope="module")
async def trusted(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("limits") / "data") as running:
        yield running


@pytest.fixture
async def plain(trusted: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with trusted.http() as client:
        yield client
