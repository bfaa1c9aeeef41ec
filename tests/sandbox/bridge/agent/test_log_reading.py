"""An agent that says in its log alone why it is silent: a real bridge with the core of ACP."""

import json
import sys
from pathlib import Path

from sandbox.bridge.agent.process import MAX_LOG_LINE
from tests.sandbox.bridge.agent.test_cores import frames, heard
from tests.support.bridge import Owner, running_bridge

# Its model fails and fails, until it is told to stop.
AGENT = f"""
import json, sys
def answer(asked, **result): print(json.dumps({{"jsonrpc": "2.0", "id": asked, "result": result}}), flush=True)
for line in sys.stdin:
    said = json.loads(line)
    method = said.get("method")
    if method == "initialize": answer(said["id"])
    if method == "session/new": answer(said["id"], sessionId="s")
    if method == "session/prompt":
        prompt = said["id"]
        sys.stderr.write("x" * {2 * MAX_LOG_LINE} + "\\n")
        for attempt in range(1, 11):
            sys.stderr.write(f"[WARN] Attempt {{attempt}} failed with status 500. Retrying with backoff...\\n")
        sys.stderr.flush()
    if method == "session/cancel": answer(prompt, stopReason="cancelled")
"""


async def test_what_an_agent_logs_of_its_model_ends_the_turn(tmp_path: Path) -> None:
    with running_bridge(tmp_path, [sys.executable, "-u", "-c", AGENT], core="acp") as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        link.deliver(1, json.dumps({"seq": 1, "type": "message", "content": "go"}).encode())
        await heard(owner, "done")
        told = frames(owner)
        assert [frame["attempt"] for frame in told if "attempt" in frame] == [1, 2, 3, 4]
        (error,) = (frame for frame in told if frame["type"] == "error")
        assert error["error"].endswith("Attempt 4 failed with status 500")
        assert told[-1]["metadata"]["error"] is True
