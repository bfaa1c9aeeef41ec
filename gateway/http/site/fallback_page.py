"""The page at `/` of a gateway without the console: what Holdfast is, and what to do next. No script, nothing loaded,
no secrets.
"""

import base64
import hashlib
from collections.abc import Callable

from starlette.responses import Response

_STYLE = """
:root {
  color-scheme: light dark;
  --ink: #1d2733; --soft: #5c6b7a; --paper: #fbfaf7; --line: #d9dde2; --accent: #0b6e6e;
}
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --soft: #9aa7b4; --paper: #12181e; --line: #2c3640; --accent: #5cc8c2; }
}
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.6 system-ui, sans-serif; }
main { max-width: 42rem; margin: 0 auto; padding: 4rem 1.5rem; }
h1 { font-size: 2.4rem; letter-spacing: -0.02em; margin: 0; }
h2 { font-size: 1.05rem; margin: 2.5rem 0 0.5rem; color: var(--accent); }
p.lead { font-size: 1.2rem; color: var(--soft); margin-top: 0.3rem; }
pre { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; padding: 0.8rem 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.92rem; }
dt { font-family: ui-monospace, monospace; font-size: 0.92rem; margin-top: 0.8rem; }
dd { margin: 0; color: var(--soft); }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1rem; color: var(--soft); }
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Holdfast</title>
<style>%(style)s</style>
</head>
<body>
<main>
<h1>Holdfast</h1>
<p class="lead">A session gateway: whatever dies, everybody comes back to where they were.</p>
<p>This gateway is running. Browsers and programs attach to long-lived sessions over WebSockets; each session has an
agent in a sandbox, a stored conversation and a workspace that outlive every connection.</p>
<h2>The page</h2>
<p>Chat, terminals and files in the browser belong here. They were not built into this gateway. In a checkout, build
them, then start the gateway again:</p>
<pre>make page</pre>
<p>Elsewhere install the wheel, which has them (<code>make wheel</code> makes one). To sign in, ask for a link; it is
good once, for ten minutes:</p>
<pre>holdfast url</pre>
<h2>Talk to a session</h2>
<p>In a second terminal, in the directory where the gateway was started (in a fresh clone <code>holdfast</code> is
<code>.venv/bin/holdfast</code>):</p>
<pre>holdfast chat</pre>
<p>It creates a session, prints its id, and streams the agent's answers. Try <code>/help</code>. Close the terminal,
then come back to the same conversation:</p>
<pre>holdfast chat SESSION</pre>
<h2>Open a terminal in its sandbox</h2>
<pre>holdfast attach SESSION</pre>
<p>A shell that goes on when you leave. Cut the line, restart the gateway, come back from another machine: it is where
it was. <code>holdfast record SESSION -o x.cast</code> keeps what is seen there.</p>
<h2>Write a client</h2>
<pre>TOKEN=$(holdfast token --user ada --email ada@example.com)
curl -X POST -H "Authorization: Bearer $TOKEN" %(origin)s/api/sandboxes/demo
websocat -H "Authorization: Bearer $TOKEN" "%(socket)s/ws/v2?sessionId=demo"
{"type":"message","content":"hello"}</pre>
<h2>Where things are</h2>
<dl>
<dt>/ws/v2?sessionId=</dt><dd>the conversation, live: messages, acknowledgements, streamed answers, resume</dd>
<dt>/terminal/{id}</dt><dd>a terminal: for xterm.js and its attach add-on as they are, or counted and resumed</dd>
<dt>/api/sandboxes/{id}</dt><dd>create, status, sleep, wake, pause, resume, abort, delete</dd>
<dt>/api/sessions/{id}/messages</dt><dd>the stored conversation</dd>
<dt>/openapi.json</dt><dd>every HTTP route, for programs</dd>
<dt>/health, /ready, /metrics</dt><dd>for operators</dd>
</dl>
<footer>Holdfast %(version)s</footer>
</main>
</body>
</html>
"""


class FallbackPage:
    """`origin` is the address that the page tells people to type: where the gateway listens, never a name from the
    request."""

    def __init__(self, version: str, origin: Callable[[], str]) -> None:
        self._version = version
        self._origin = origin
        digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
        self._headers = {
            "Cache-Control": "no-cache",
            "Content-Security-Policy": (
                f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
                "frame-ancestors 'none'"
            ),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }

    def answer(self) -> Response:
        origin = self._origin()
        socket = "ws" + origin.removeprefix("http")
        page = _PAGE % {"style": _STYLE, "version": self._version, "origin": origin, "socket": socket}
        return Response(page, headers=self._headers, media_type="text/html; charset=utf-8")
