"""Messages for a running turn that cannot take them in: a real bridge with Codex's core and a small app server."""

import json
import sys
from pathlib import Path

from tests.support.bridge import Owner, running_bridge
from tests.support.waiting import until

# Its turns begin, and go on for ever; they have a name when the file `named` is there.
SERVER = """
import json, os, sys, time
def say(**members): print(json.dumps(members), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    method = asked.get("method")
    open("told", "a").write(f"{method}\\n")
    if method == "initialize": say(id=asked["id"], result={})
    if method == "thread/start": say(id=asked["id"], result={"thread": {"id": "t"}})
    if method == "turn/start":
        say(id=asked["id"], result={})
        while not os.path.exists("named"): time.sleep(0.01)
        say(method="turn/started", params={"turn": {"id": "r"}})
    if method == "turn/steer": say(id=asked["id"], result={"turnId": "r"})
"""


def message(seq: int, *, steer: bool = False) -> tuple[int, bytes]:
    frame = {"seq": seq, "type": "message", "content": "go", "metadata": {"steer": steer}}
    return seq, json.dumps(frame).encode()


async def test_a_message_that_steers_too_early_waits_in_the_queue_and_outlives_the_process(tmp_path: Path) -> None:
    def told() -> list[str]:
        path = bridge.workspace / "told"
        return path.read_text().split() if path.exists() else []

    with running_bridge(tmp_path, [sys.executable, "-u", "-c", SERVER], core="codex") as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        link.deliver(*message(1))
        await until(lambda: "turn/start" in told())
        link.deliver(*message(2, steer=True))
        link.deliver(*message(3, steer=True))
        link.recall(2)
        await until(lambda: owner.recalled == [2])
        link.drop(2)
        link.kill_agent()
        await until(lambda: owner.exits)
        assert owner.exits[0].taken == 1
        (bridge.workspace / "named").touch()
        link.start(None)
        await until(lambda: len(owner.epochs) == 2)
        link.deliver(*message(4))
        link.deliver(*message(5, steer=True))
        await until(lambda: "turn/steer" in told())
        await until(lambda: owner.taken == 5)
