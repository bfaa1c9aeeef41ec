"""`/openapi.json`: every HTTP route, written by hand. Who may call one is read from the policy table, which decides it.

A test compares the document with the routes that are served, and real answers of each with its schemas.
"""

from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.auth.identity import Accept
from gateway.auth.policy import POLICY
from gateway.http.ops.openapi_schemas import FLAG, INTEGER, SCHEMAS, SESSION_ID, Schema, array, ref, text, words
from sandbox.protocol.terminal import NAME

JSON = "application/json"
TEXT = "text/plain"
NDJSON = "application/x-ndjson"

SECURITY: dict[Accept, tuple[str, Schema]] = {
    Accept.USER: ("user", {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "a user's JWT"}),
    Accept.ADMIN: ("admin", {"type": "http", "scheme": "bearer", "description": "HOLDFAST_API_TOKEN"}),
    Accept.RELAY: ("relay", {"type": "apiKey", "in": "header", "name": "X-Relay-Secret"}),
    Accept.INTERNAL: ("service", {"type": "apiKey", "in": "header", "name": "X-Service-Token"}),
}
REFUSALS = {
    400: "what was sent cannot be read, or makes no sense",
    401: "no credentials, or none that are accepted here",
    403: "not for this user, or not from this origin",
    404: "there is no such thing, or it is somebody else's",
    409: "not in the state that it is in",
    413: "the body is too large",
    416: "the file has no such range",
    422: "the store will never take this record",
    429: "too much at once: try again later",
    500: "what is stored is damaged; the words say what",
    501: "not with these settings; the words say which",
    502: "the sandbox or the object store did not do it",
    503: "a store does not answer, or the gateway restarts: try again",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `answers` is a schema by status, or by status and media type."""

    name: str
    summary: str
    answers: dict[int, Schema] = field(default_factory=dict)
    query: tuple[Schema, ...] = ()
    body: str | None = None
    refusals: tuple[int, ...] = ()
    media: dict[str, Schema] = field(default_factory=dict)  # other forms of the 200


def asked(name: str, schema: Schema, description: str = "", where: str = "query") -> Schema:
    told = {"description": description} if description else {}
    return {"name": name, "in": where, "required": where == "path", **told, "schema": schema}


def number(name: str, low: int, high: int, description: str = "", default: int | None = None) -> Schema:
    usual = {} if default is None else {"default": default}
    return asked(name, {"type": "integer", "minimum": low, "maximum": high, **usual}, description)


SEQ = 2**53
WORD = text(pattern="^[A-Za-z0-9_-]{1,64}$")
USER = asked("userId", text(maxLength=256), "those of this user only")
PAGE = (
    number("after", 0, SEQ, "records after this seq"),
    number("before", 0, SEQ, "records before this seq; alone: the last `limit` of them"),
    number("limit", 1, 1000, default=100),
    asked("role", WORD, "records of this role only"),
    asked("type", WORD, "records of this type only"),
)
FOLLOW = (
    asked("follow", FLAG, "1: go on for ever, as server-sent events; `before` must be left out"),
    asked("Last-Event-ID", INTEGER, "with `follow`: the last id that was seen; counts instead of `after`", "header"),
)
EVENTS = "each event is a Record, its id the record's seq; `event: trimmed` with `{firstSeq}`: what was before is gone"
NARRATED = "lines of JSON: progress now and then, at least each 10 s, and a result at last"
GENERATION = text("its number, or `newest`", pattern="^(newest|[1-9][0-9]{0,15})$")
LINES = "a record per line (ExportLine); if the last line is an Error, the export is not complete"

ONE = "/api/sandboxes/{id}"
CONVERSATION = "/internal/sessions/{id}/messages"
LETTER = "/internal/dead-letters/{number}"
SNAPSHOT = f"{ONE}/snapshots/{{generation}}"
TERMINALS = f"{ONE}/terminals"
TERMINAL = f"{TERMINALS}/{{name}}"
JUPYTER = "/jupyter/{id}/api/terminals"


STORED = (500, 502, 503)  # what reading snapshots may come to


def _session(name: str, summary: str, body: str | None = "Nothing", *refusals: int) -> Operation:
    return Operation(name, summary, {200: ref("Session")}, body=body, refusals=(400, 404, 409, 503, *refusals))


OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", "/"): Operation("home", "The page; where it was not built, what this is", media={"text/html": text()}),
    ("GET", "/assets/{path:path}"): Operation(
        "pageFile", "A file of the built page, to be kept for ever", refusals=(400, 404), media={"*/*": text()},
    ),
    ("GET", "/favicon.svg"): Operation(
        "icon", "Its icon, if it was built with one", refusals=(404,), media={"image/svg+xml": text()},
    ),
    ("GET", "/licences.txt"): Operation(
        "licences", "The licences of what others wrote and it contains", refusals=(404,), media={TEXT: text()},
    ),
    ("GET", "/manifest.webmanifest"): Operation(
        "manifest", "Its manifest, likewise", refusals=(404,), media={"application/manifest+json": text()},
    ),
    ("GET", "/signin"): Operation(
        "openLink", "Sign in by a one-time link: on to the page with the cookie `session`, or to `/#signin=over`",
        {303: {}}, (asked("link", text("the code; good once, for ten minutes")),), refusals=(503,),
    ),
    ("POST", "/api/signin"): Operation(
        "signIn", "A pasted JWT becomes the cookie `session`, until its own end", {200: ref("SignedIn")}, body="Pasted",
        refusals=(400, 401, 403, 413),
    ),
    ("DELETE", "/api/signin"): Operation("signOut", "The cookie goes", {204: {}}, refusals=(403,)),
    ("GET", "/api/me"): Operation("me", "Whose credentials these are, and what can be had here", {200: ref("Me")}),
    ("POST", "/api/token"): Operation(
        "shortToken", "A JWT for ten minutes, and no longer than what it was asked with", {201: ref("Token")},
        body="Nothing", refusals=(400, 413, 501),
    ),
    ("POST", "/api/links"): Operation(
        "makeLink", "A one-time link that signs a user in", {201: ref("Link")}, body="Person",
        refusals=(400, 413, 429, 501),
    ),
    ("GET", "/health"): Operation("health", "Whether the process answers", {200: ref("Health")}),
    ("GET", "/ready"): Operation("ready", "Whether it takes work", {200: ref("Ready"), 503: ref("Unready")}),
    ("GET", "/metrics"): Operation("metrics", "Figures for Prometheus", media={TEXT: text()}),
    ("GET", "/openapi.json"): Operation("openapi", "This document", {200: {"type": "object"}}),
    ("GET", "/api/sandboxes"): Operation(
        "listSandboxes", "A user's own sessions; for services all, or a user's", {200: ref("Sessions")}, (USER,),
        refusals=(400, 403, 503),
    ),
    ("GET", ONE): _session("getSandbox", "The session", None),
    ("GET", f"{ONE}/status"): _session("getStatus", "The session", None),
    ("POST", ONE): Operation(
        "createSandbox", "Create a session, get the one there is, or revive an archived one",
        {200: ref("Session"), 201: ref("Session")}, body="Wish", refusals=(400, 403, 409, 413, 503),
    ),
    ("PATCH", ONE): _session("changeSandbox", "Change its title, metadata or idle time", "Change", 413),
    ("DELETE", ONE): Operation(
        "deleteSandbox", "End it; the conversation stays, archived, unless it is purged", {200: ref("Session")},
        (asked("purge", FLAG, "1: the conversation goes, too"),), refusals=(400, 404, 409, 503),
    ),
    ("POST", f"{ONE}/pause"): _session("pause", "Stop it until it is resumed"),
    ("POST", f"{ONE}/resume"): _session("resume", "Out of paused, needs_env or error", "Resume"),
    ("POST", f"{ONE}/sleep"): _session("sleep", "Stop it until the next message"),
    ("POST", f"{ONE}/wake"): _session("wake", "Start its sandbox"),
    ("POST", f"{ONE}/sync"): Operation(
        "sync", "Keep its workspace, as it is now", {200: ref("Session")},
        (asked("wait", {**FLAG, "default": "1"}, "0: do not wait until it is kept"),), "Nothing", (400, 404, 409, 503),
    ),
    ("POST", f"{ONE}/abort"): _session("abort", "Stop the running turn"),
    ("GET", f"{ONE}/snapshots"): Operation(
        "listSnapshots", "The generations that are kept, the newest first", {200: ref("Snapshots")},
        refusals=(400, 404, *STORED),
    ),
    ("POST", f"{ONE}/snapshots/verify"): Operation(
        "verifySnapshots", "Read all that they name, and compare it with its hashes", body="Nothing",
        refusals=(400, 404, 429, *STORED), media={NDJSON: text(f"{NARRATED} (VerifyLine)")},
    ),
    ("GET", SNAPSHOT): Operation(
        "getSnapshot", "One, with what in it is not as it should be", {200: ref("SnapshotShown")},
        refusals=(400, 404, *STORED),
    ),
    ("GET", f"{SNAPSHOT}/diff"): Operation(
        "diffSnapshots", "What changed from this one to another", {200: ref("SnapshotDiff")},
        (asked("to", {**GENERATION, "default": "newest"}),), refusals=(400, 404, *STORED),
    ),
    ("GET", f"{SNAPSHOT}/export"): Operation(
        "exportSnapshot", "Its tree as a tar", refusals=(400, 404, *STORED),
        media={"application/x-tar": text("`workspace/` and `agent/`", contentMediaType="application/x-tar")},
    ),
    ("POST", f"{SNAPSHOT}/branch"): Operation(
        "branch", "A new session that begins with its tree", {201: ref("Session")}, body="Nothing",
        refusals=(400, 404, 409, *STORED),
    ),
    ("POST", f"{SNAPSHOT}/restore"): Operation(
        "restore", "Its tree in a new session; or in place, in this one", {200: ref("Session"), 201: ref("Session")},
        body="Restore", refusals=(400, 404, 409, *STORED),
    ),
    ("POST", f"{SNAPSHOT}/release"): Operation(
        "release", "Let a pinned one go when its turn comes", {200: ref("Released")}, body="Nothing",
        refusals=(400, 404, 409, *STORED),
    ),
    ("POST", "/internal/snapshots/gc"): Operation(
        "collectSnapshots", "Remove what nobody names any more", query=(asked("dryRun", FLAG, "1: only look"),),
        body="Nothing", refusals=(400, *STORED), media={NDJSON: text(f"{NARRATED} (CollectLine)")},
    ),
    ("GET", "/files/{id}/{path:path}"): Operation(
        "readFile", "A directory's entries, or a file's bytes", {200: ref("Directory")},
        (
            asked("root", {**words("workspace", "agent"), "default": "workspace"}),
            asked("source", {**words("auto", "live", "synced"), "default": "auto"}, "live: what its sandbox has now"),
            number("generation", 1, SEQ, "of what is synced; the newest unless it is given"),
            asked("Range", text(), "one range of bytes", "header"),
        ),
        refusals=(400, 404, 409, 416, *STORED), media={"application/octet-stream": text(format="binary")},
    ),
    ("GET", "/api/sessions/{id}/messages"): Operation(
        "readOwnMessages", "The stored conversation, for its owner", {200: ref("Page")}, PAGE, refusals=(400, 404, 503),
    ),
    ("GET", CONVERSATION): Operation(
        "readMessages", "The stored conversation: a page of it, or all that comes", {200: ref("Page")},
        (*PAGE, *FOLLOW), refusals=(400, 404, 503), media={"text/event-stream": text(EVENTS)},
    ),
    ("POST", CONVERSATION): Operation(
        "writeMessage", "Store a record; durable when answered", {201: ref("Written")}, body="Post",
        refusals=(400, 404, 409, 413, 422, 429, 503),
    ),
    ("GET", "/internal/sessions"): Operation(
        "listSessions", "Every session, newest first", {200: ref("List")},
        (USER, number("limit", 1, 1000, default=100), asked("after", SESSION_ID, "`next` of the page before")),
        refusals=(400, 404, 503),
    ),
    ("GET", "/internal/sessions/{id}/export"): Operation(
        "exportSession", "All that is stored of a session", refusals=(400, 404, 503),
        media={NDJSON: text(LINES)},
    ),
    ("GET", "/internal/export"): Operation(
        "exportAll", "All that is stored, session after session", query=(USER,), refusals=(400, 503),
        media={NDJSON: text(LINES)},
    ),
    ("GET", "/internal/dead-letters"): Operation(
        "listDeadLetters", "Records that the store would not take", {200: ref("DeadLetters")},
        (asked("sessionId", SESSION_ID), number("after", 0, SEQ), number("limit", 1, 1000, default=100)),
        refusals=(400, 503),
    ),
    ("GET", LETTER): Operation(
        "getDeadLetter", "One, with what it says", {200: ref("DeadLetter")}, refusals=(404, 503)
    ),
    ("POST", f"{LETTER}/retry"): Operation(
        "retryDeadLetter", "Try again to store it in its place", {200: ref("Retried")}, refusals=(404, 503)
    ),
    ("DELETE", LETTER): Operation(
        "dropDeadLetter", "Forget it; its marker stays", {200: ref("Dropped")}, refusals=(404, 503)
    ),
    ("GET", "/logs/{id}"): Operation(
        "logs", "The end of what agent and bridge logged", query=(number("tail", 1, 1 << 20, "bytes", 64 << 10),),
        refusals=(400, 404, 503), media={TEXT: text()},
    ),
    ("GET", TERMINALS): Operation(
        "listTerminals", "What runs in its terminals; none while its sandbox does not run", {200: ref("Terminals")},
        refusals=(404, 503),
    ),
    ("POST", TERMINAL): Operation(
        "createTerminal", "Make a terminal, or find it there; wakes its sandbox",
        {201: ref("Terminal"), 200: ref("Terminal")}, body="TerminalWish", refusals=(400, 404, 409, 413, 429, 503),
    ),
    ("POST", f"{TERMINAL}/size"): Operation(
        "resizeTerminal", "For clients that cannot say it themselves", {200: ref("Terminal")}, body="Size",
        refusals=(400, 404, 413, 503),
    ),
    ("DELETE", TERMINAL): Operation(
        "endTerminal", "Hang up on its program", {200: ref("Terminal")}, refusals=(400, 404, 503)
    ),
    ("POST", f"{ONE}/shares"): Operation(
        "shareSession", "A token to look at this one session", {201: ref("Share")}, body="ShareWish",
        refusals=(400, 404, 409, 413, 501, 503),
    ),
    ("GET", f"{ONE}/shares"): Operation(
        "listShares", "Its live shares, without their tokens", {200: ref("Shares")}, refusals=(404, 503)
    ),
    ("DELETE", f"{ONE}/shares/{{number}}"): Operation(
        "takeShareBack", "End a share; whoever is in by it is shown out", {200: ref("ListedShare")},
        refusals=(404, 503),
    ),
    ("POST", f"{ONE}/demo/{{what}}"): Operation(
        "causeFault", "Harm this session, to show what becomes of it; 404 unless HOLDFAST_DEMO is on",
        {200: ref("Fault")}, body="FaultWish", refusals=(400, 404, 409, 413, 503),
    ),
    ("GET", JUPYTER): Operation(
        "listJupyterTerminals", "The same, for Jupyter's clients", {200: array(ref("JupyterTerminal"))},
        refusals=(404, 503),
    ),
    ("POST", JUPYTER): Operation(
        "createJupyterTerminal", "A new terminal, numbered unless named", {200: ref("JupyterTerminal")},
        body="JupyterWish", refusals=(400, 404, 409, 413, 429, 503),
    ),
    ("GET", f"{JUPYTER}/{{name}}"): Operation(
        "getJupyterTerminal", "One", {200: ref("JupyterTerminal")}, refusals=(400, 404, 503)
    ),
    ("DELETE", f"{JUPYTER}/{{name}}"): Operation("endJupyterTerminal", "End it", {204: {}}, refusals=(400, 404, 503)),
    ("GET", "/tty/{id}/token"): Operation(
        "ttyToken", "What ttyd's client asks for first", {200: ref("TtyToken")}, refusals=(404, 503)
    ),
    ("POST", "/api/tickets"): Operation(
        "issueTicket", "A one-time ticket for a browser's WebSocket", {201: ref("Ticket")}, body="TicketWish",
        refusals=(400, 404, 413, 429, 503),
    ),
}  # fmt: skip

WEBSOCKETS = {
    "/ws/v2": "the chat socket of a session (`?sessionId=`): messages, acknowledgements, streamed answers, resume",
    "/ws/events": "a user's own sessions, live: the list, then every change",
    "/ws/sandboxes/{id}": "the agent's lines as they are, for relays",
    "/terminal/{sessionId}": "a terminal (`?name=`): bytes, plain or in the native dialect, which resumes",
    "/v1/sandbox/{id}/pty": "the main terminal, as Cloudflare's add-on speaks",
    "/jupyter/{id}/terminals/websocket/{name}": "a terminal, as JupyterLab speaks",
    "/tty/{id}/ws": "the main terminal, as ttyd's client speaks",
}


def document(version: str) -> dict[str, Any]:
    """The whole of it, as OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), operation in OPERATIONS.items():
        written = path.replace(":path}", "}")  # the slashes in it are the route's business
        paths.setdefault(written, {})[method.lower()] = _operation(method, path, operation)
    sockets = {
        path: {"description": told, "security": _security(POLICY["WS", path].accept)}
        for path, told in WEBSOCKETS.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": version,
            "description": "A WebSocket session gateway. Every refusal is an Error.",
        },
        "paths": paths,
        "components": {"schemas": SCHEMAS, "securitySchemes": dict(SECURITY.values())},
        "x-websockets": sockets,
    }


def _operation(method: str, path: str, operation: Operation) -> dict[str, Any]:
    policy = POLICY[method, path]
    refusals = {*operation.refusals, *(() if policy.accept is Accept.NOBODY else (401, 403))}
    refusals |= {429} if Accept.USER in policy.accept else set()
    answers: dict[str, Any] = {str(status): _answer("", {JSON: schema}) for status, schema in operation.answers.items()}
    if operation.media:
        json = {JSON: operation.answers[200]} if 200 in operation.answers else {}
        answers["200"] = _answer("", {**json, **operation.media})
    for status in sorted(refusals):
        answers[str(status)] = _answer(REFUSALS[status], {JSON: ref("Error")})
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "security": _security(policy.accept),
        "parameters": [*_in_path(path), *operation.query],
        "responses": {**answers, "default": _answer("any other refusal", {JSON: ref("Error")})},
    }
    if operation.body is not None:
        described["requestBody"] = {
            "required": bool(SCHEMAS[operation.body].get("required")),
            "content": {JSON: {"schema": ref(operation.body)}},
        }
    return described


def _answer(description: str, media: dict[str, Schema]) -> dict[str, Any]:
    if media == {JSON: {}}:
        return {"description": description or "done, and nothing to say"}
    return {"description": description or "done", "content": {kind: {"schema": s} for kind, s in media.items()}}


def _in_path(path: str) -> list[Schema]:
    known = {
        "{id}": ("id", SESSION_ID),
        "{number}": ("number", INTEGER),
        "{name}": ("name", text(pattern=f"^{NAME.pattern}$")),
        "{generation}": ("generation", GENERATION),
        "{what}": ("what", words("cut", "kill-agent", "kill-bridge", "pause-store")),
        "{path:path}": ("path", text("components percent-encoded, with `/` between them")),
    }
    return [asked(name, schema, where="path") for mark, (name, schema) in known.items() if mark in path]


def _security(accept: Accept) -> list[dict[str, list[str]]]:
    return [{name: []} for kind, (name, _) in SECURITY.items() if kind in accept and kind]


class OpenApiRoutes:
    """The document never changes while the process runs."""

    def __init__(self, version: str) -> None:
        self._body = orjson.dumps(document(version))

    def routes(self) -> list[BaseRoute]:
        return [Route("/openapi.json", self.document, methods=["GET"])]

    async def document(self, _: Request) -> Response:
        return Response(self._body, headers={"X-Content-Type-Options": "nosniff"}, media_type=JSON)
