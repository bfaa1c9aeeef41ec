"""What a bridge's `/health` says of its agent, to anybody who may reach its socket."""

import asyncio
import signal
import sys
from collections.abc import Sized
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.bridge import BridgeProcess, Owner, running_bridge
from tests.support.waiting import until

# Ends as its next line says.
ENDS_AS_TOLD = """
import os, sys
for line in sys.stdin:
    how, number = line.split()
    os._exit(int(number)) if how == "exit" else os.kill(os.getpid(), int(number))
"""


async def agent_of(bridge: BridgeProcess) -> Any:
    async with bridge.client(token=None) as http:
        answer = await http.get("/health")
    assert answer.status_code == 200
    assert {"status", "incarnation", "agent"} == answer.json().keys()
    assert (answer.json()["status"], answer.json()["incarnation"]) == ("ok", 1)
    return answer.json()["agent"]


def has(events: Sized, count: int) -> bool:
    return len(events) == count


async def test_health_says_whether_the_agent_waits_runs_or_has_exited(tmp_path: Path) -> None:
    with running_bridge(tmp_path, [sys.executable, "-u", "-c", ENDS_AS_TOLD]) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        assert await agent_of(bridge) == {"state": "waiting"}
        ends: list[tuple[bytes, int | None, str | None]] = [
            (b"exit 0", 0, None),
            (b"exit 3", 3, None),
            (b"signal %d" % signal.SIGKILL, None, "SIGKILL"),
        ]
        for seq, (line, code, name) in enumerate(ends, 1):
            link.start(None)
            await until(partial(has, owner.epochs, seq))
            assert await agent_of(bridge) == {"state": "running"}
            link.deliver(seq, line)
            await until(partial(has, owner.exits, seq))
            assert await agent_of(bridge) == {"state": "exited", "code": code, "signal": name}


async def test_an_agent_that_ended_with_output_nobody_took_has_exited(tmp_path: Path) -> None:
    """The bridge reads on only when somebody confirms; health does not wait for that."""
    talks = "import os; os.write(1, b'x' * 999 + b'\\n'); os.set_blocking(1, False); os.write(1, b'y\\n' * 9999)"
    limits = {"backlog_bytes": 100}
    with running_bridge(tmp_path, [sys.executable, "-c", talks], limits=limits) as bridge:
        (await bridge.link(Owner())).start(None)
        await until(lambda: "agent.started" in bridge.log)
        async with asyncio.timeout(30):
            while (agent := await agent_of(bridge))["state"] == "running":
                pass
        assert agent == {"state": "exited", "code": 0, "signal": None}
        assert "agent.exited" not in bridge.log


async def test_an_agent_that_cannot_be_started_still_waits(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["/no/such/agent"]) as bridge:
        owner = Owner()
        (await bridge.link(owner)).start(None)
        await until(lambda: owner.problems)
        assert await agent_of(bridge) == {"state": "waiting"}
