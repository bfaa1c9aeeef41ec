"""For clients that know output only: all other events are dropped. Pure."""

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
