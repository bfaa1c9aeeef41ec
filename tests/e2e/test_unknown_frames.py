"""What an agent says and its core does not know, on a real gateway: counted for all, passed on to who asked for it."""

import sys
from pathlib import Path

from tests.support.chat import Frame, hear, say
from tests.support.gateway import Gateway
from tests.support.waiting import until

# It speaks the Agent Client Protocol, and says two things more than that has.
AGENT = """
import json, sys
def say(**members): print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "session/prompt":
        say(method="of/tomorrow", params={"a": 1})
        say(method="session/update", params={"update": {"sessionUpdate": "mood", "is": "good"}})
    say(id=asked["id"], result={"sessionId": "s", "stopReason": "end_turn"})
"""


async def turn(gateway: Gateway, session_id: str) -> list[Frame]:
    passed: list[Frame] = []
    async with gateway.chat(session_id) as socket:
        await hear(socket, "welcome")
        await say(socket, type="message", content="hello")
        await hear(socket, "done", passed=passed)
    return [frame for frame in passed if frame["type"] == "agent_event"]


async def test_unknown_frames_are_counted_and_passed_on_where_they_were_asked_for(tmp_path: Path) -> None:
    (script := tmp_path / "agent.py").write_text(AGENT)
    agent = f"acp:{sys.executable} {script}"
    async with Gateway(tmp_path / "data") as gateway:
        assert (await gateway.create("usual", agent=agent))["events"] is None
        assert (await gateway.create("curious", agent=agent, events="all"))["events"] == "all"
        assert await turn(gateway, "usual") == []
        first, second = await turn(gateway, "curious")
        assert (first["kind"], first["event"]["params"]) == ("of/tomorrow", {"a": 1})
        assert (second["kind"], second["event"]["params"]["update"]["is"]) == ("mood", "good")
        async with gateway.http(gateway.bearer()) as ada:
            refused = await ada.post("/api/sandboxes/other", json={"events": "some"})
            assert refused.json()["error"] == "events must be all, or left out"

        async def counted() -> bool:  # told with the link's heartbeat
            async with gateway.http(gateway.admin) as admin:
                shown = (await admin.get("/metrics")).text
            return all(f'{{agent="acp",type="{kind}"}} 2.0' in shown for kind in ("of/tomorrow", "mood"))

        await until(counted)
