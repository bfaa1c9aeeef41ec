"""The programs' way out: a listening socket on the sandbox's own loopback, which the bridge makes and hands out.

Whoever is outside accepts from it, so nothing inside forwards a byte. The bridge keeps it and never accepts: a proxy
that was started again is given it once more, and whoever connects in between waits in its backlog.
"""

import os
import socket

BACKLOG = 1024
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_NONE = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class EgressListener:
    """Made before any program runs: the port is still free then."""

    def __init__(self, port: int) -> None:
        """`port` 0: there is none. Raises OSError."""
        self._listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG) if port else None

    def hand_out(self, descriptor: int) -> None:
        """Answer a request whose connection has this descriptor, which stays open. Whoever does not read its answer
        gets none."""
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            if self._listener is None:
                connection.send(_NONE)
            else:
                socket.send_fds(connection, [_ANSWER], [self._listener.fileno()])

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
