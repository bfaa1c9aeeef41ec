"""A small made-up page in the shape of a built one, so that no test needs Node to see how pages are served."""

import gzip
from pathlib import Path

INDEX = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="csp-nonce" content="__CSP_NONCE__">
<link rel="stylesheet" href="/assets/index-a1.css"><script type="module" src="/assets/index-b2.js"></script>
</head><body><div id="app"></div></body></html>
"""
SCRIPT = b'document.getElementById("app").textContent = "made up"\n' * 20
FILES = {
    "index.html": INDEX.encode(),
    "favicon.svg": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
    "licences.txt": b"preact 1.0\n\nThe MIT License\n",
    "manifest.webmanifest": b'{"name":"Holdfast"}',
    "assets/index-a1.css": b"body { margin: 0 }\n",
    "assets/index-b2.js": SCRIPT,
    "assets/index-b2.js.gz": gzip.compress(SCRIPT, mtime=0),
    "assets/index-b2.js.br": b"as if it were brotli",
    "assets/fonts/mono-c3.woff2": b"\0font",
    "assets/notes.gz": b"a file of its own",
}


def make_page(directory: Path) -> Path:
    for name, content in FILES.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return directory
