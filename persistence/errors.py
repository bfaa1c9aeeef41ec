"""What a store may say no with. The classes differ where the reaction differs."""


class StoreError(Exception):
    """Base of everything a store raises."""


class StoreUnavailable(StoreError):
    """Not now: try again, with backoff, for ever."""


class StoreFull(StoreUnavailable):
    """No room on the disk: senders are told `storage_full`; try again, it may heal."""


class StoreBroken(StoreError):
    """A commit may or may not have reached the disk (I/O error on fsync): stop acknowledging and end the process."""


class CannotOpen(StoreError):
    """What lies there cannot be used by this code: from opening only; the message says what to do."""
