"""The log of a real gateway has a line for everything that happens to a session's life, and says who asked."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.support.chat import hear, say
from tests.support.gateway import Gateway
from tests.support.routes import POLICY
from tests.support.waiting import until
from tests.test_docs import WATCHING, first_cells, section

ONE = "/api/sandboxes/{id}"
# What changes something under a session's path and is not of its life.
OTHERS = {
    f"POST {ONE}/terminals/{{name}}",
    f"DELETE {ONE}/terminals/{{name}}",
    f"POST {ONE}/terminals/{{name}}/size",
    f"POST {ONE}/demo/{{what}}",
    f"POST {ONE}/snapshots/verify",
    f"DELETE {ONE}/pending/{{seq}}",  # they concern one message
    f"POST {ONE}/pending/{{seq}}/extend",
}
SECRET = "correct-horse-battery-staple"
WRITTEN = "what-the-user-wrote"


@pytest.fixture
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("life") / "data", SYNC_DEBOUNCE=0.1) as running:
        yield running


def lines(gateway: Gateway, event: str = "session.asked") -> list[dict[str, Any]]:
    found = [json.loads(line) for line in gateway.log.splitlines() if f'"{event}"' in line]
    return [line for line in found if line["event"] == event]


def asked(gateway: Gateway, *, by_gateway: bool = False) -> list[tuple[str, str]]:
    told = [(line["what"], line["by"]) for line in lines(gateway)]
    return [(what, by) for what, by in told if (by == "gateway") is by_gateway]


class Caller:
    """Asks for one route after the other, and remembers which."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.routes: set[str] = set()

    async def __call__(self, method: str, route: str, **given: Any) -> dict[str, Any]:
        """`route` as the policy names it; `given` fills it, the rest is the request's."""
        names = {name: str(given.pop(name)) for name in ("id", "generation", "number") if name in given}
        reply = await self._client.request(method, route.format(**names), **given)
        assert reply.is_success, reply.text
        self.routes.add(f"{method} {route}")
        answered: dict[str, Any] = reply.json()
        return answered


async def test_every_request_that_concerns_a_sessions_life_has_its_line(gateway: Gateway) -> None:
    async with gateway.http() as ada:
        ask = Caller(ada)
        wish = {"envVars": {"KEY": SECRET}, "title": WRITTEN, "metadata": {WRITTEN: 1}}
        await ask("POST", ONE, id="s", json=wish)
        await ask("PATCH", ONE, id="s", json={"title": WRITTEN})
        await ask("POST", f"{ONE}/wake", id="s")
        await ask("POST", f"{ONE}/abort", id="s")
        await ask("POST", f"{ONE}/sync", id="s")
        await ask("POST", f"{ONE}/snapshots/{{generation}}/branch", id="s", generation="newest")
        await ask("POST", f"{ONE}/sleep", id="s")
        await ask("POST", f"{ONE}/pause", id="s")
        newest = (await ada.get("/api/sandboxes/s/snapshots")).json()["newest"]
        await ask("POST", f"{ONE}/snapshots/{{generation}}/restore", id="s", generation=newest, json={"inPlace": True})
        await ask("POST", f"{ONE}/snapshots/{{generation}}/release", id="s", generation=newest)
        await ask("POST", f"{ONE}/resume", id="s", json={"envVars": {"KEY": SECRET}})
        share = await ask("POST", f"{ONE}/shares", id="s", json={"label": WRITTEN})
        await ask("DELETE", f"{ONE}/shares/{{number}}", id="s", number=share["number"])
    async with gateway.http(gateway.admin) as admin:
        ask_as_service = Caller(admin)
        await ask_as_service("DELETE", ONE, id="s", params={"purge": 1})

    whats = [
        "create",
        "change",
        "wake",
        "abort",
        "sync",
        "branch",
        "sleep",
        "pause",
        "restore",
        "release",
        "resume",
        "share",
        "unshare",
    ]
    assert asked(gateway) == [*((what, "user") for what in whats), ("delete", "admin")]
    for line in lines(gateway):
        assert (line["user_id"], line["provider"]) == ("ada", "local")
        assert line["session_id"] == "s"
    fields = {line["what"]: line for line in lines(gateway) if line["by"] != "gateway"}
    assert (fields["delete"]["purge"], fields["resume"]["env_given"], fields["change"]["members"]) == (
        True,
        True,
        ["title"],
    )
    documented = first_cells(section(WATCHING, "## Audit"))
    assert set(fields) == documented - {"what"}
    created = [(line["session_id"].startswith("s"), line.get("origin")) for line in lines(gateway, "session.created")]
    assert created == [(True, None), (True, "s")]
    assert SECRET not in gateway.log
    assert WRITTEN not in gateway.log

    changing = {f"{method} {path}" for method, path in POLICY if method not in ("GET", "WS") and path.startswith(ONE)}
    assert ask.routes | ask_as_service.routes | OTHERS == changing, "a new route is logged, or said not to be"


async def test_a_terminal_that_wakes_its_session_has_the_line_of_a_wake(gateway: Gateway) -> None:
    await gateway.create("s")
    async with gateway.http() as ada, gateway.http(gateway.admin) as admin:
        for client, path, who in (
            (ada, "/api/sandboxes/s/terminals/t2", "user"),
            (ada, "/jupyter/s/api/terminals", "user"),
            (admin, "/api/sandboxes/s/terminals/t2", "admin"),
        ):
            assert (await ada.post("/api/sandboxes/s/sleep")).status_code == 200
            seen = len(asked(gateway))
            for _ in range(2):  # the second finds it awake
                assert (await client.post(path)).is_success
            assert asked(gateway)[seen:] == [("wake", who)]


async def test_a_stranger_leaves_no_line_of_a_session(gateway: Gateway) -> None:
    await gateway.create("hers")
    async with gateway.http(gateway.bearer("bob")) as bob:
        assert (await bob.post("/api/sandboxes/hers/sleep")).status_code == 404
        assert (await bob.delete("/api/sandboxes/hers")).status_code == 404
    assert asked(gateway) == [("create", "user")]


async def test_what_the_gateway_does_by_itself_has_its_line(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("itself") / "data"
    async with Gateway(data, SLEEP_AFTER=1, SYNC_DEBOUNCE=0.1) as gateway:
        await gateway.create("s")
        await until(lambda: ("sleep", "gateway") in asked(gateway, by_gateway=True), "the idle session put to sleep")
        assert asked(gateway, by_gateway=True)[0] == ("wake", "gateway"), "nobody asked for more than a session"
        async with gateway.http() as ada:

            async def sleeps() -> bool:
                return bool((await ada.get("/api/sandboxes/s")).json()["status"] == "sleeping")

            await until(sleeps, "the session asleep")
        seen = len(lines(gateway))
        async with gateway.chat("s") as socket:
            await hear(socket, "welcome")
            await say(socket, "message", cid="m", content="/long 60")
            await hear(socket, "chunk")
            await say(socket, "abort")
            await hear(socket, "done")
        told = lines(gateway)[seen:]
        assert [(line["what"], line["by"]) for line in told if line["what"] != "sleep"] == [
            ("wake", "gateway"),
            ("abort", "user"),
        ]
        assert {(line["session_id"], line["user_id"], line["provider"]) for line in told} == {("s", "ada", "local")}
