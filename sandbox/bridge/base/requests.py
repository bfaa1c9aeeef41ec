"""Shared by every route of the bridge: refuse a request, notice that the client has gone."""

from starlette.requests import Request


class Refused(Exception):
    def __init__(self, status: int, code: str, error: str) -> None:
        super().__init__(error)
        self.status, self.code, self.error = status, code, error


async def gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
