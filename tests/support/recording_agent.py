"""An agent that leaves evidence: each line of input and output is in its workspace before it counts.

`heard.log` has one JSON object for each line of input, over all runs; `said-<run>.log` is the output of one run, byte
for byte, so line n of it is what a viewer must see as frame n. It answers a message with three chunks made from its
content, then `done`. Its only argument is the number of seconds for each chunk. It imports nothing of ours, so that
`python3 -c` can run its source anywhere.
"""

import json
import os
import sys
import time
import uuid
from typing import Any

CHUNKS = 3


def main() -> None:
    pace = float(sys.argv[1])
    run, count = uuid.uuid4().hex, 0
    heard = os.open("heard.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    said = os.open(f"said-{run}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def say(type: str, **members: Any) -> None:
        nonlocal count
        count += 1
        line = json.dumps({"type": type, "run": run, "n": count, **members}).encode() + b"\n"
        os.write(said, line)
        while line:
            line = line[os.write(1, line) :]

    while raw := sys.stdin.buffer.readline():
        frame = json.loads(raw)
        note = {"run": run, "type": frame["type"], "cid": frame.get("cid"), "seq": frame.get("seq")}
        os.write(heard, json.dumps(note).encode() + b"\n")
        if frame["type"] == "message":
            say("stream_start")
            for part in range(CHUNKS):
                time.sleep(pace)
                say("chunk", text=f"{frame['content']}/{part};")
            say("done", metadata={"answers": frame["cid"]})


if __name__ == "__main__":
    main()
