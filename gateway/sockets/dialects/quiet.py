"""For clients that know only of output: whatever else happens is not told them. Pure."""

from sandbox.terminal.wire import Size, Trouble


class QuietDialect:
    def resized(self, size: Size) -> bytes:
        return b""

    def told_status(self, status: str) -> bytes:
        return b""

    def told_trouble(self, trouble: Trouble) -> bytes:
        return b""

    def told_expiring(self, at: str) -> bytes:
        return b""
