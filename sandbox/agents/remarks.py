"""Frames that the bridge adds to a core's own: what no core passes on. Pure."""

from sandbox.agents.core import ToGateway
from sandbox.agents.json_lines import cut_text, frame, read


def agent_event(kind: str, line: bytes) -> ToGateway:
    """Output of the agent that its core does not know."""
    event = read(line) or {"text": cut_text(line.decode(errors="replace"))}
    return ToGateway([frame("agent_event", {"kind": kind, "event": event})])


def not_passed_on(line: bytes) -> ToGateway:
    """The core failed with this line of the gateway. The frame answers the message."""
    said = read(line)
    told = "this input could not be passed to the agent; the bridge's log says why"
    frames = [frame("error", {"code": "agent", "error": told})]
    if said.get("type") == "message":
        seq = said.get("seq")
        answers = [seq] if isinstance(seq, int) else None
        frames.append(frame("done", {"answers": answers, "metadata": {"error": True}}))
    return ToGateway(frames)
