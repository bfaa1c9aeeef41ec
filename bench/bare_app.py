"""The smallest app that answers /health over uvicorn and Starlette, with their fastest settings: `python bare_app.py
PORT`."""

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


async def health(_: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"})


if __name__ == "__main__":
    app = Starlette(routes=[Route("/health", health)])
    uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", log_level="critical")
