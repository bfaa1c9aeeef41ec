"""The image of a session's sandbox: what its name meant at the first start is noted, for all later ones."""

from gateway.session.conversation.log import SessionLog
from gateway.session.model.ports import Tasks
from sandbox.ports.progress import ImageChosen


class SandboxImage:
    __slots__ = ("_log", "_tasks")

    def __init__(self, log: SessionLog, tasks: Tasks) -> None:
        self._log = log
        self._tasks = tasks

    def hear(self, progress: ImageChosen) -> None:
        """Beside the session's task."""
        self._tasks.post(self._chosen, progress)

    def _chosen(self, chosen: ImageChosen) -> None:
        changes: dict[str, object] = {"image_id": chosen.id, "image_digest": chosen.digest}
        if self._log.spec.image is None:  # the operator's: no user asked for it
            changes |= {"image": chosen.name, "image_granted": True}
        self._log.change_spec(changes)
