"""Errors of a store. The classes differ where the reaction differs."""


class StoreError(Exception):
    """Base of everything a store raises."""


class StoreUnavailable(StoreError):
    """Not now: try again, with backoff, for ever."""


class StoreFull(StoreUnavailable):
    """No room on the disk. Senders hear `storage_full`. Retry: room may come back."""


class StoreBusy(StoreUnavailable):
    """Nothing was stored, because another transaction locks these sessions. Without them the batch would succeed."""

    def __init__(self, message: str, session_ids: frozenset[str]) -> None:
        super().__init__(message)
        self.session_ids = session_ids


class StoreBroken(StoreError):
    """A commit may or may not have reached the disk (I/O error on fsync): stop acknowledging and end the process."""


class CannotOpen(StoreError):
    """This code cannot use the existing data. Raised only when a store opens; the message says what to do."""


class NoRoom(CannotOpen):
    """The disk is full. The store can open as soon as there is room."""
