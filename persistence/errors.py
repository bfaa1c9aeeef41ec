"""What a store may say no with. The classes differ where the reaction differs."""


class StoreError(Exception):
    """Base of everything a store raises."""


class StoreUnavailable(StoreError):
    """Not now: try again, with backoff, for ever."""


class StoreFull(StoreUnavailable):
    """No room on the disk: senders are told `storage_full`; try again, it may heal."""


class StoreBusy(StoreUnavailable):
    """Nothing was kept, because somebody holds these sessions; without them the batch would go through."""

    def __init__(self, message: str, session_ids: frozenset[str]) -> None:
        super().__init__(message)
        self.session_ids = session_ids


class StoreBroken(StoreError):
    """A commit may or may not have reached the disk (I/O error on fsync): stop acknowledging and end the process."""


class CannotOpen(StoreError):
    """What lies there cannot be used by this code: from opening only; the message says what to do."""


class NoRoom(CannotOpen):
    """The disk is full: it can be opened as soon as there is room."""
