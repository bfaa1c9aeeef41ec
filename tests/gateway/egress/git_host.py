"""A git host over TLS: git's own http-backend behind a key, and what an app asks for tokens, as GitHub has it."""

import asyncio
import base64
import json
import os
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gateway.egress.proxies import HERE, host
from tests.support.tls import self_signed

WHO = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
INSTALLATION = 7


@dataclass
class GitHost:
    """`keys` open its repositories, `o/r` and `o/other`. `minted` is what apps have asked for."""

    root: Path
    port: int = 0
    certificate: str = ""
    keys: set[str] = field(default_factory=set)
    seen: list[tuple[str, str]] = field(default_factory=list)  # request line, key
    minted: list[tuple[str, Any]] = field(default_factory=list)  # the app's word, what it asked for

    @property
    def origin(self) -> str:
        return f"https://{HERE}:{self.port}"

    def providers_file(self) -> bytes:
        here = f'origin = "{self.origin}"\nca_file = "{self.certificate}"\ntoken_api = "{self.origin}/api"'
        return f"[github]\n{here}".encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = lines[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        body = await _body(reader, headers)
        if target.startswith("/api/"):
            return self._api(writer, target, headers, body)
        kind, _, said = headers.get("authorization", "").partition(" ")
        key = base64.b64decode(said).decode().partition(":")[2] if kind == "Basic" else ""
        self.seen.append((lines[0], key))
        if key not in self.keys:
            writer.write(b'HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm="x"\r\nContent-Length: 0\r\n\r\n')
            return
        path, _, query = target.partition("?")
        env = {
            **{"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.root), "GIT_HTTP_EXPORT_ALL": "1"},
            **{"PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": method, "REMOTE_USER": "a"},
            **{"CONTENT_TYPE": headers.get("content-type", ""), "CONTENT_LENGTH": str(len(body))},
            **{"HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""), "GIT_PROTOCOL": ""},
        }
        git = await asyncio.create_subprocess_exec(
            "git", "http-backend", env=env, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        said_back, _ = await git.communicate(body)
        head, _, rest = said_back.partition(b"\r\n\r\n")
        status = b"200 OK"
        kept = []
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"status: "):
                status = line[8:]
            else:
                kept.append(line)
        writer.write(
            b"HTTP/1.1 %b\r\n%b\r\nContent-Length: %d\r\n\r\n%b" % (status, b"\r\n".join(kept), len(rest), rest)
        )
        await writer.drain()

    def _api(self, writer: asyncio.StreamWriter, target: str, headers: dict[str, str], body: bytes) -> None:
        word = headers.get("authorization", "").removeprefix("Bearer ")
        if target == "/api/repos/o/r/installation":
            _json(writer, 200, {"id": INSTALLATION})
        elif target == f"/api/app/installations/{INSTALLATION}/access_tokens":
            self.minted.append((word, json.loads(body)))
            token = f"minted-{len(self.minted)}"
            self.keys.add(token)
            _json(writer, 201, {"token": token, "expires_at": "2099-01-01T00:00:00Z"})
        else:
            _json(writer, 404, {"message": "Not Found"})


def _json(writer: asyncio.StreamWriter, status: int, said: Any) -> None:
    body = json.dumps(said).encode()
    writer.write(b"HTTP/1.1 %d Said\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(body), body))


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "chunked" not in headers.get("transfer-encoding", ""):
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return body


@asynccontextmanager
async def git_host(directory: Path) -> AsyncIterator[GitHost]:
    root = directory / "repositories"
    env = {**WHO, "PATH": os.environ["PATH"], "HOME": str(directory), "GIT_CONFIG_NOSYSTEM": "1"}
    work = directory / "first"
    for argv in (
        ["git", "init", "-q", "-b", "main", str(work)],
        ["git", "-C", str(work), "commit", "-q", "--allow-empty", "-m", "first"],
        *(["git", "clone", "-q", "--bare", str(work), str(root / f"o/{name}.git")] for name in ("r", "other")),
        *(["git", "-C", str(root / f"o/{name}.git"), "config", "http.receivepack", "true"] for name in ("r", "other")),
    ):
        subprocess.run(argv, check=True, env=env)
    certificate, key = self_signed(directory, HERE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    found = GitHost(root, certificate=str(certificate))
    async with host(found.serve, ssl=context) as port:
        found.port = port
        yield found


async def run_git(directory: Path, *argv: str, lead: tuple[str, str] | None = None) -> tuple[int, str]:
    """As in a sandbox: `lead` is what leads to the proxy, and from where."""
    config = {}
    if lead is not None:
        config = {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"url.{lead[0]}.insteadOf",
            "GIT_CONFIG_VALUE_0": lead[1],
        }
    plain = {"PATH": os.environ["PATH"], "HOME": str(directory), "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"}
    git = await asyncio.create_subprocess_exec(
        "git", *argv, cwd=directory, env={**plain, **WHO, **config},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await git.communicate()
    return git.returncode or 0, said.decode()
