"""Talking with a core without a bridge: frames and lines as objects."""

import json
from collections.abc import Iterable
from typing import Any

from sandbox.agents.core import Core, Http, Out, ToAgent, ToGateway, WakeAfter


def heard(outs: Iterable[Out]) -> list[Any]:
    """Frames as they are, lines for the agent as ("agent", line), requests as (method, path, body), the rest as it is;
    but no Wake."""
    found: list[Any] = []
    for out in outs:
        match out:
            case ToAgent(line):
                found.append(("agent", json.loads(line)))
            case Http(method, path, _, body):
                found.append((method, path, json.loads(body or b"null")))
            case ToGateway(frames):
                found += [json.loads(frame) for frame in frames]
            case WakeAfter():
                pass
            case _:
                found.append(out)
    return found


def down(core: Core, **frame: Any) -> list[Any]:
    """The core's answer to this frame of the gateway."""
    return heard(core.down(json.dumps(frame).encode()))


def up(core: Core, **line: Any) -> list[Any]:
    """The core's answer to this line of the agent."""
    return heard(core.up([json.dumps(line).encode()]))
