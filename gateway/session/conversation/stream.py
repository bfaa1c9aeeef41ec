"""The agent's output as viewers see it: numbered frames of one process after the other, and where each viewer joins.

After a restart the bridge fills the ring again, up to the last frame processed before the restart (`_replay`). Until
then a viewer that asks for those frames waits for them.
"""

from gateway.protocol import chat_frames
from gateway.session.conversation.log import SessionLog
from gateway.session.conversation.open_turns import OpenTurns
from gateway.session.viewers.broadcast import Broadcast
from sandbox.protocol.values import Position


class AgentStream:
    __slots__ = ("_audience", "_log", "_replay", "_turns")

    def __init__(self, log: SessionLog, turns: OpenTurns, audience: Broadcast) -> None:
        self._log = log
        self._turns = turns
        self._audience = audience
        state = log.state
        self._replay = None if state.epoch is None or state.ended else Position(state.epoch, state.offset)

    @property
    def catching_up(self) -> bool:
        """True while frames from before a restart are still on their way back into the ring."""
        replay = self._replay
        return replay is not None and replay.epoch == self._log.state.epoch and self._audience.ring.end < replay.offset

    def begin(self, epoch: str, base: int, *, hole: bool) -> None:
        """Announce to every viewer that frames of `epoch` follow, and with `recovered: false` to those that missed some
        before."""
        lost = self._audience.restart(epoch, base)
        for viewer in self._audience:
            viewer.send(self.welcome(base, recovered=False if hole or viewer in lost else None))

    def relay(self, shown: bytes, line: bytes, is_done: bool) -> None:
        """Send the next frame. After a `done` the next answer begins: the ring keeps that one whole."""
        self._audience.relay(shown, line)
        if is_done:
            ring = self._audience.ring
            ring.pin(ring.end)

    def welcome(self, offset: int, *, recovered: bool | None = None) -> bytes:
        """The first frame of a viewer that gets the frames after `offset`. `recovered`: whether it has missed none;
        None if it did not ask."""
        state = self._log.state
        asked = [chat_frames.record_json(record) for record in self._turns.open]
        return chat_frames.dump(
            "welcome",
            sessionId=self._log.id,
            epoch=state.epoch or "",
            offset=offset,
            lastSeq=self._log.last_durable,
            recovered=recovered,
            status=state.status,
            reason=state.reason or None,
            open=asked or None,
        )
