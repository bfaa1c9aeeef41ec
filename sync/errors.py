"""Errors of snapshots. Classes differ where the reaction does."""


class SyncFailed(Exception):
    """This attempt stored nothing; the generations stored before are untouched. `permanent`: the same attempt would
    fail again, so a person has to change something, and the text says what."""

    def __init__(self, reason: str, *, permanent: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.permanent = reason, permanent


class TooLarge(SyncFailed):
    """The tree is larger than allowed. Only its owner can change that, so waiting does not help."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, permanent=True)


class SyncRefused(Exception):
    """Nothing was begun: the workspace was not proven restored, or too many callers wait already."""


class Damaged(Exception):
    """A stored object is missing, or does not match its name. The text names it. For a pack or a manifest, so does
    the attribute, so that the caller can keep syncs from building on it."""

    def __init__(self, text: str, *, pack: str | None = None, manifest: str | None = None) -> None:
        super().__init__(text)
        self.pack, self.manifest = pack, manifest


class RestoreFailed(Exception):
    """No stored generation could be restored. The text says why; nothing was changed."""


class NoSuchSnapshot(Exception):
    """The session has no such generation, or none at all."""
