"""A registry of npm packages, made by the test: its packages, the requests it got, and tarballs that fail."""

import base64
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from tests.support.node import NODE, NPM


def tarball(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


class NpmRegistry:
    """Serves from `with` to its end. While `stalled` is set, tarballs wait."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.stalled = threading.Event()
        self.go_on = threading.Event()
        self._packages: dict[str, dict[str, Any]] = {}
        self._tarballs: dict[str, bytes] = {}
        registry = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="npm-registry")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def environ(self, home: Path) -> dict[str, str]:
        """The environment of a user who installs from here, with the npm of the tests."""
        programs = home / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        npm = programs / "npm"
        npm.write_text(f'#!/bin/sh\nexec {NODE} {NPM} "$@"\n')
        npm.chmod(0o755)
        return {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(home), "npm_config_registry": self.url}

    def put(self, name: str, version: str, files: Mapping[str, bytes], **described: Any) -> None:
        """A package with these files; `described` goes into its package.json."""
        described = {"name": name, "version": version, **described}
        packed = tarball({"package.json": json.dumps(described).encode(), **files})
        path = f"/tarballs/{len(self._tarballs)}.tgz"
        self._tarballs[path] = packed
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(packed).digest()).decode()
        dist = {"tarball": self.url.rstrip("/") + path, "integrity": integrity}
        known = self._packages.setdefault(name, {"name": name, "dist-tags": {"latest": version}, "versions": {}})
        known["versions"][version] = {**described, "dist": dist}

    @property
    def fetched(self) -> list[str]:
        """The requested tarballs."""
        return [path for path in self.asked if path.endswith(".tgz")]

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(request.path)
        self.asked.append(path)
        content = self._tarballs.get(path)
        if content is not None and self.stalled.is_set():
            self.go_on.wait()
        if content is None and (name := path.strip("/")) in self._packages:
            content = json.dumps(self._packages[name]).encode()
        if content is None and path.endswith(".tgz"):  # by the name that npm makes of a lock without addresses
            content = next(iter(self._tarballs.values()))
        request.send_response(200 if content is not None else 404)
        request.send_header("Content-Length", str(len(content or b"")))
        request.end_headers()
        request.wfile.write(content or b"")
