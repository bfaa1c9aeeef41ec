"""What the gateway says no with. Every refusal reaches its client as `{error, code}` or as a nack with `code` as
reason.
"""


class ApiError(Exception):
    """A request that cannot be granted. `message` says what to do about it; `code` is for programs."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
