"""What can go wrong with snapshots. Classes differ where the reaction does."""


class SyncFailed(Exception):
    """This attempt kept nothing; the generations kept before are untouched. `permanent`: the same attempt would fail
    again, so a person has to change something, and the text says what."""

    def __init__(self, reason: str, *, permanent: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.permanent = reason, permanent


class TooLarge(SyncFailed):
    """The tree is more than may be kept. Only its owner can change that, so nothing is gained by waiting for it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, permanent=True)


class SyncRefused(Exception):
    """Nothing was begun: the workspace was not proven restored, or too many wait already."""


class Damaged(Exception):
    """A stored object is missing, or is not what its name says. The text names it; if it is a pack or a manifest, so
    does the attribute, for whoever sees to it that nothing is built on it."""

    def __init__(self, text: str, *, pack: str | None = None, manifest: str | None = None) -> None:
        super().__init__(text)
        self.pack, self.manifest = pack, manifest


class RestoreFailed(Exception):
    """No kept generation could be put back. The text says why; nothing was changed."""


class NoSuchSnapshot(Exception):
    """The session has no such generation, or none at all."""
