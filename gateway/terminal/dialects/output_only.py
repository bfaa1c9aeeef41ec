"""For clients that know only of output: whatever else happens is not told them. Pure."""

from sandbox.protocol.terminal import Size, TerminalTrouble


class OutputOnlyDialect:
    def resized(self, size: Size) -> bytes:
        return b""

    def told_status(self, status: str) -> bytes:
        return b""

    def told_trouble(self, trouble: TerminalTrouble) -> bytes:
        return b""

    def told_expiring(self, at: str) -> bytes:
        return b""
