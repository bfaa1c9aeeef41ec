"""The image of a session's sandbox: reports the progress of its pull to viewers, and pins the image of the first start
for all later ones.
"""

import asyncio
from typing import Any

from gateway.protocol import chat_frames
from gateway.session.conversation.log import SessionLog
from gateway.session.model.ports import Host, Publisher
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle.life import Life, LifeStage
from gateway.session.sandbox.link_owner import LifeEvents
from sandbox.ports.progress import ImageChosen, ImagePull, ImagePulled, StartProgress

TELL_SECONDS = 0.5  # between two progress reports


def pull_members(pull: ImagePull) -> dict[str, Any]:
    return {
        "image": pull.image,
        "layers": pull.layers,
        "ofLayers": pull.of_layers,
        "bytes": pull.bytes,
        "ofBytes": pull.of_bytes,
    }


class SandboxImage:
    __slots__ = ("_core", "_due", "_heard", "_host", "_latest", "_life", "_log", "_publisher", "_pull", "_told_at")

    def __init__(self, host: Host, core: Life, log: SessionLog, publisher: Publisher, life: LifeEvents) -> None:
        self._host = host
        self._core = core  # decides; only read here
        self._log = log
        self._publisher = publisher
        self._life = life
        self._heard = 0  # the start whose pull reported last
        self._told_at = 0.0
        self._latest: ImagePull | None = None  # of that start, too soon after the last report
        self._due: asyncio.TimerHandle | None = None  # reports it, if no newer one comes
        self._pull: ImagePull | None = None

    @property
    def pull(self) -> ImagePull | None:
        """The progress of the pull that the sandbox's start waits for; None if it waits for none."""
        return self._pull if self._core.stage is LifeStage.FETCHING else None

    @property
    def frame(self) -> bytes | None:
        """The progress as a frame for viewers."""
        if self.pull is None:
            return None
        return chat_frames.dump("session_status", status="pulling", **pull_members(self.pull))

    # -- beside the session's task ------------------------------------------------------------------------------------

    def hear(self, number: int, progress: StartProgress) -> None:
        """Take a progress report of the start of that number."""
        match progress:
            case ImagePull():
                self._hear_pull(number, progress)
            case ImagePulled(image):
                self._host.post(self._fetched, number, image)
            case ImageChosen():
                self._host.post(self._chosen, progress)

    def _hear_pull(self, number: int, pull: ImagePull) -> None:
        """The latest report is always sent, later if need be: none may follow it for a long while."""
        now = self._host.now()
        if number != self._heard:
            self._host.post(self._life.on, on_.ImageAwaited(number))
        elif now < self._told_at + TELL_SECONDS:
            self._latest = pull
            if self._due is None:
                wait = self._told_at + TELL_SECONDS - now
                self._due = asyncio.get_running_loop().call_later(wait, self._tell_latest)
            return
        if self._due is not None:
            self._due.cancel()
        self._heard, self._told_at, self._latest, self._due = number, now, None, None
        self._host.post(self._tell, number, pull)

    def _tell_latest(self) -> None:
        latest, self._latest, self._due = self._latest, None, None
        if latest is not None and not self._host.ended:
            self._told_at = self._host.now()
            self._host.post(self._tell, self._heard, latest)

    # -- in the session's task ----------------------------------------------------------------------------------------

    def _tell(self, number: int, pull: ImagePull) -> None:
        if self._core.awaited == number:
            self._pull = pull
            if (frame := self.frame) is not None:
                self._publisher.tell(frame)

    def _fetched(self, number: int, image: str) -> None:
        if self._core.awaited == number:
            self._publisher.tell(chat_frames.dump("session_status", status="pulled", image=image))
        self._life.on(on_.ImageFetched(number))

    def _chosen(self, chosen: ImageChosen) -> None:
        changes: dict[str, object] = {"image_id": chosen.id, "image_digest": chosen.digest}
        if self._log.spec.image is None:  # the operator's: no user asked for it
            changes |= {"image": chosen.name, "image_granted": True}
        self._log.change_spec(changes)
