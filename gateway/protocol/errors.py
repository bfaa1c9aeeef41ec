"""Refusals. Each reaches its client as `{error, code}`, or as a nack with `code` as reason."""

import math


class ApiError(Exception):
    """A refused request. `message` says what to do about it; `code` is for programs. `retry_after` is the number of
    seconds after which a new attempt may succeed."""

    def __init__(self, status: int, code: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        """`Retry-After`, where it is known: whole seconds, not too early."""
        return {} if self.retry_after is None else {"Retry-After": str(max(1, math.ceil(self.retry_after)))}
