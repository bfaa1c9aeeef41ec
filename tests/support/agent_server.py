"""An agent that is a server: `python agent_server.py PORT [UNHEALTHY]`. Its health path answers 503 so many times
first. It writes each connection ("+") and frame as a line into `told`, and obeys the content of a message: a command
word, and its argument."""

import http
import json
import os
import socket
import sys

from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve


def reserved_port() -> socket.socket:
    """A port that no other process gets while this is open; a program that names it may listen there."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder


def main(port: int, unhealthy: int) -> None:
    asked = 0

    def health(connection: ServerConnection, request: Request) -> Response | None:
        nonlocal asked
        if request.path != "/health":
            return None
        asked += 1
        status = http.HTTPStatus.OK if asked > unhealthy else http.HTTPStatus.SERVICE_UNAVAILABLE
        return connection.respond(status, "so it is\n")

    os.write(1, b"an agent that prints\n")
    with serve(talk, "127.0.0.1", port, process_request=health, max_size=None) as server:
        server.serve_forever()


def talk(connection: ServerConnection) -> None:
    note("+")
    for line in connection:
        assert isinstance(line, str)
        note(line)
        frame = json.loads(line)
        word, _, rest = str(frame.get("content", "")).partition(" ")
        match frame["type"], word:
            case "message", "drop":
                connection.close()
            case "message", "die":
                connection.send(json.dumps({"type": "chunk", "text": "my last words"}))
                os._exit(3)
            case "message", "large":
                connection.send(json.dumps({"type": "chunk", "text": "x" * int(rest)}))
            case "message", "flood":
                for n in range(int(rest)):
                    connection.send(f"{n:0500}")
            case "message", "binary":
                connection.send(b"bytes")
                done(connection)
            case "message", "lines":
                connection.send('{"type": "chunk",\n "text": "two lines"}')
                done(connection)
            case "message", _:
                connection.send(json.dumps({"type": "chunk", "text": f"you said {frame['content']}"}))
                done(connection)
            case "abort", _:
                connection.send(json.dumps({"type": "done", "metadata": {"aborted": True}}))


def done(connection: ServerConnection) -> None:
    connection.send(json.dumps({"type": "done"}))


def note(line: str) -> None:
    with open("told", "a") as told:
        told.write(line + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
