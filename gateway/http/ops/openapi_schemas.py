"""What the HTTP API says and is told, as JSON Schema: the components of `/openapi.json`. Data only."""

from typing import Any

from gateway.http.request_bodies import ROLES
from gateway.limits.network import NETWORKS
from gateway.session.model.state import SessionStatus

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def array(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def words(*allowed: str) -> Schema:
    return {"type": "string", "enum": list(allowed)}


def text(description: str = "", **more: Any) -> Schema:
    return {"type": "string", **({"description": description} if description else {}), **more}


def maybe(schema: Schema) -> Schema:
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def made_of(members: dict[str, Schema], optional: dict[str, Schema] | None = None, description: str = "") -> Schema:
    """An object. Clients must expect members that are not listed: later versions add some."""
    told = {"description": description} if description else {}
    return {"type": "object", **told, "required": list(members), "properties": {**members, **(optional or {})}}


INTEGER: Schema = {"type": "integer", "minimum": 0}
SIDE: Schema = {"type": "integer", "minimum": 1, "maximum": 1000}
TRUE: Schema = {"const": True}
BOOLEAN: Schema = {"type": "boolean"}
FLAG = words("0", "1", "true", "false")
ANYTHING: Schema = {}
OBJECT: Schema = {"type": "object"}
TIME = text(format="date-time")
BASE64 = text("given where the name is not UTF-8", contentEncoding="base64")
SESSION_ID = text(pattern="^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$")
OWNER = maybe(text("null: it belongs to the services"))
SESSION_STATUS = words(*SessionStatus)
SYNC_STATE = words("unrestored", "idle", "pending", "syncing", "flushing", "failed")
SANDBOX_STATUS = words("connecting", "connected", "disconnected", "sleeping")
LISTED_SHARE = {
    "number": {"type": "integer", "minimum": 1, "description": "of the session's own; never given twice"},
    "label": text(), "createdAt": TIME, "expiresAt": TIME,
}  # fmt: skip

CHANGE = {
    "title": maybe(text(maxLength=256)),
    "metadata": maybe({**OBJECT, "description": "at most 16 KiB; replaces all of it"}),
    "sleepAfter": {
        "anyOf": [
            {"type": "number", "exclusiveMinimum": 0}, text(pattern="^[0-9.]+ *(ms|s|m|h|d)?$"), {"type": "null"},
        ],
        "description": "idle seconds until it sleeps, or a duration such as 15m; null: as HOLDFAST_SLEEP_AFTER says",
    },
}  # fmt: skip

RECORD = {
    "id": text("`<session id>.<seq>`"),
    "seq": {"type": "integer", "minimum": 1, "description": "gap-free per session; never given twice"},
    "cid": text("the sender's own id for it; stored once per session"),
    "role": text("`user`, `assistant`, `system` or `tool`"),
    "type": text("`message`, `raw`, `permission_request`, `permission_response`, `question`, `question_answer`, the "
                 "markers `duplicate` and `rejected`, or whatever services write"),
    "content": {"description": "a string, an array of parts, or whatever was stored"},
    "metadata": OBJECT,
    "createdAt": TIME,
    "status": words("stored", "delivered", "expired", "interrupted", "complete", "incomplete", "aborted", "open",
                    "answered", "duplicate", "rejected"),
}  # fmt: skip

LETTER = {
    "number": {"type": "integer", "minimum": 1},
    "sessionId": SESSION_ID,
    "seq": INTEGER,
    "cid": text(),
    "role": text(),
    "type": text(),
    "reason": text("what the store said"),
    "bytes": INTEGER,
    "createdAt": maybe(TIME),
    "buriedAt": maybe(TIME),
}

SNAPSHOT = {
    "generation": {"type": "integer", "minimum": 1},
    "at": TIME,
    "files": {**INTEGER, "description": "regular files and symlinks"},
    "bytes": INTEGER,
    "pinned": maybe(text("why it stays until it is released")),
    "note": maybe(text("where it came from, if not from a sync")),
    "manifest": text(pattern="^[0-9a-f]{64}$"),
}
PATH_ENTRY = {"path": text("with its root"), "type": words("file", "directory", "symlink"), "size": INTEGER}

SCHEMAS: dict[str, Schema] = {
    "Error": made_of(
        {"error": text("for people"), "code": text("for programs")},
        {"stale": {**TRUE, "description": "the store cannot be read: what is known may be behind"}},
    ),
    "Health": made_of({"status": words("ok"), "version": text(), "uptimeSeconds": {"type": "number"}}),
    "Ready": made_of({"status": words("ready")}, {"degraded": array(text())}, "work is taken"),
    "Unready": made_of(
        {"status": words("unready"), "reasons": array(text()), "error": text(), "code": text()},
        {"degraded": array(text())},
    ),
    "Session": made_of({
        "id": SESSION_ID, "userId": OWNER, "status": SESSION_STATUS, "reason": maybe(text()),
        "sandboxStatus": SANDBOX_STATUS, "provider": text(), "level": text(), "incarnation": INTEGER,
        "viewers": INTEGER, "pending": INTEGER, "lastSeq": INTEGER, "createdAt": TIME, "lastActiveAt": TIME,
        "hasWorkspace": BOOLEAN, "title": maybe(text()), "metadata": OBJECT,
        "sleepAfter": {"type": ["number", "null"], "description": "seconds; null: as HOLDFAST_SLEEP_AFTER says"},
        "network": words(*NETWORKS),
        "agent": maybe(array(text())), "repoUrl": maybe(text()), "repoBranch": maybe(text()),
        "sync": ref("Sync"),
        "queue": maybe(made_of(
            {"position": INTEGER, "reason": maybe(text("which limit"))}, description="while it waits to start"
        )),
    }, {"terminals": maybe(array(ref("Terminal")))}),
    "Terminal": made_of({
        "name": text(), "epoch": text("of the program that runs there"),
        "base": {**INTEGER, "description": "the oldest offset that can be resumed from"},
        "offset": {**INTEGER, "description": "bytes its program has written"},
        "cols": INTEGER, "rows": INTEGER, "viewers": INTEGER, "idleSeconds": {"type": "number", "minimum": 0},
        "alive": BOOLEAN, "exit": maybe(made_of({"code": maybe(INTEGER), "signal": maybe(text())})),
        "title": text(), "command": array(text()),
    }),
    "Terminals": made_of({"terminals": array(ref("Terminal"))}),
    "TerminalWish": made_of({}, {
        "command": {"anyOf": [text("a command line"), array(text()), {"type": "null"}]},
        "envVars": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 256},
        "cwd": maybe(text("below the workspace, or absolute")), "cols": SIDE, "rows": SIDE,
    }),
    "Size": made_of({"cols": SIDE, "rows": SIDE}),
    "ShareWish": made_of(
        {}, {"ttl": {"type": "integer", "minimum": 1, "maximum": 2592000, "default": 3600},
             "label": {**text("a name for the list"), "maxLength": 64}},
    ),
    "Share": made_of(
        {"token": text("a JWT"), "sessionId": SESSION_ID, "role": words("view"), **LISTED_SHARE}
    ),
    "ListedShare": made_of(LISTED_SHARE),
    "Shares": made_of({"shares": array(ref("ListedShare"))}),
    "FaultWish": made_of({}, {"seconds": {"type": "integer", "minimum": 1, "maximum": 60}}, "of `pause-store` alone"),
    "Fault": made_of(
        {"what": words("cut", "kill-agent", "kill-bridge", "pause-store")},
        {"sockets": {**INTEGER, "description": "how many were cut"}, "seconds": INTEGER},
    ),
    "JupyterTerminal": made_of({"name": text(), "last_activity": TIME}),
    "JupyterWish": made_of({}, {"name": maybe(text()), "cwd": maybe(text())}),
    "TtyToken": made_of({"token": text()}),
    "Sync": made_of(
        {"state": SYNC_STATE, "generation": {**INTEGER, "description": "the newest one that is kept; 0 for none"},
         "lastSuccess": maybe(TIME), "lastError": maybe(text()),
         "dirty": {**BOOLEAN, "description": "something may not be kept yet"},
         "degraded": maybe(text("why the workspace is an older one than it should be"))},
        {"attempt": INTEGER, "restore": {**OBJECT, "description": "how far a restore has come"},
         "unread": {**made_of({"count": INTEGER, "paths": array(text())}),
                    "description": "what the last sync was not allowed to read: left out, or as kept last"},
         "history": {**array(ref("SyncMoved")), "description": "of one session alone: the last 50, the oldest first"}},
    ),
    "SyncMoved": made_of(
        {"state": SYNC_STATE, "generation": INTEGER, "at": TIME},
        {"attempt": INTEGER, "reason": text("why the last attempt failed")},
    ),
    "Sessions": made_of({"sandboxes": array(ref("Session"))}),
    "Listed": made_of({
        "id": SESSION_ID, "userId": OWNER, "status": SESSION_STATUS, "sandboxStatus": SANDBOX_STATUS,
        "title": maybe(text()), "viewers": INTEGER, "pending": INTEGER, "createdAt": TIME, "lastActiveAt": TIME,
        "messages": {**INTEGER, "description": "how many are kept"}, "firstSeq": INTEGER, "lastSeq": INTEGER,
    }),
    "List": made_of({"sessions": array(ref("Listed")), "next": maybe(SESSION_ID)}),
    "Wish": made_of({}, {
        "userId": maybe(text("the owner; a service may leave it out: then it is the services'", maxLength=256)),
        "envVars": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 256},
        "agent": {"anyOf": [text("a command line"), array(text()), {"type": "null"}]},
        "network": maybe(words(*NETWORKS)), "repoUrl": maybe(text(maxLength=2048)),
        "repoBranch": maybe(text(maxLength=255)), **CHANGE,
    }),
    "Change": made_of({}, CHANGE, "what is left out stays; null takes it away"),
    "Resume": made_of({}, {
        "envVars": {"type": "object", "additionalProperties": {"type": "string"}},
        "empty": {"type": "boolean", "default": False, "description": "begin anew where nothing can be restored"},
        "keep": {
            "type": "boolean", "default": False,
            "description": "go on with what is on the disk of an unrestored session of which the store has nothing",
        },
    }),
    "Nothing": {"type": "object", "maxProperties": 0},
    "Record": made_of(RECORD),
    "Page": made_of(
        {"messages": array(ref("Record")), "lastSeq": INTEGER,
         "firstSeq": {**INTEGER, "description": "what was before it has been trimmed away"}},
        {"stale": {**TRUE, "description": "some of it is durable here, and not yet in the store"}},
    ),
    "ExportLine": made_of({"sessionId": SESSION_ID, "userId": OWNER, **RECORD}),
    "Post": made_of({"role": words(*ROLES), "content": ANYTHING}, {
        "type": text(pattern="^[a-z][a-z0-9_]{0,63}$", default="message"), "metadata": maybe(OBJECT),
        "cid": maybe(text("sent again, it answers what it answered first", maxLength=128)),
        "deliver": {"type": "boolean", "default": False, "description": "hand it to the agent"},
    }),
    "Written": made_of({
        "messageId": text(), "seq": INTEGER,
        "stage": {**words("stored", "accepted"), "description": "`accepted`: durable here, the store follows"},
    }),
    "Pasted": made_of({"token": text("a JWT", maxLength=4000)}),
    "SignedIn": made_of({"userId": text(), "email": text(), "expiresAt": TIME}),
    "Me": made_of({
        "userId": text(), "email": text(), "expiresAt": TIME, "version": text("of the gateway"),
        "demo": {**BOOLEAN, "description": "whether sessions can be tormented for show"},
        "tokens": {**BOOLEAN, "description": "whether `POST /api/token` signs any here"},
        "network": made_of({"default": words(*NETWORKS), "max": words(*NETWORKS)}),
        "limits": made_of({
            name: made_of({"used": maybe(INTEGER), "max": INTEGER, "setting": text()})
            for name in ("sessions", "running", "stored", "requests", "agentRecords")
        }),
    }),
    "Token": made_of({"token": text("a JWT"), "expiresAt": TIME}),
    "Person": made_of({"userId": text(maxLength=256), "email": text(maxLength=256)}),
    "Link": made_of({"url": text(format="uri"), "expiresAt": TIME}),
    "TicketWish": made_of({"sessionId": SESSION_ID}),
    "Ticket": made_of({"ticket": text(), "expiresIn": INTEGER}),
    "DeadLetterHead": made_of(LETTER),
    "DeadLetter": made_of(LETTER, {
        "content": ANYTHING, "metadata": ANYTHING,
        "payload": text("base64, where it cannot be read as JSON", contentEncoding="base64"),
    }),
    "DeadLetters": made_of({"deadLetters": array(ref("DeadLetterHead")), "next": maybe(INTEGER)}),
    "Retried": made_of(
        {"number": INTEGER,
         "outcome": text("`stored`, `duplicate`, `dead`: it stays, `rejected`: its place is gone")},
        {"seq": INTEGER, "first": INTEGER, "reason": text()},
    ),
    "Dropped": made_of({"number": INTEGER, "dropped": TRUE}),
    "Directory": made_of({
        "path": text("relative to its root"), "root": words("workspace", "agent"), "source": words("live", "synced"),
        "generation": maybe(INTEGER), "entries": array(ref("FileEntry")), "truncated": BOOLEAN,
    }, {"pathBase64": BASE64}),
    "FileEntry": made_of(
        {"name": text(), "type": words("file", "directory", "symlink", "other"), "size": INTEGER,
         "mode": text("octal", pattern="^[0-7]{4}$"), "mtime": maybe(TIME)},
        {"nameBase64": BASE64, "target": text("of a symlink, as it is"), "targetBase64": BASE64,
         "unsettled": {**TRUE, "description": "it changed while it was read, each time it was tried"}},
    ),
    "Snapshot": made_of(SNAPSHOT),
    "Snapshots": made_of({
        "snapshots": array(ref("Snapshot")), "newest": maybe(INTEGER),
        "origin": maybe(text("of a branch: `<session id>@<generation>`")),
    }),
    "SnapshotShown": made_of({
        **SNAPSHOT,
        "counts": made_of({
            "files": INTEGER, "directories": INTEGER, "symlinks": INTEGER, "skipped": INTEGER, "unsettled": INTEGER,
        }),
        "skipped": array(made_of({"path": text()}, {"pathBase64": BASE64}, "socket, FIFO, device or unreadable file")),
        "unsettled": array(ref("PathEntry")),
    }),
    "PathEntry": made_of(PATH_ENTRY, {"pathBase64": BASE64}),
    "SnapshotDiff": made_of({
        "from": INTEGER, "to": INTEGER, "added": array(ref("PathEntry")),
        "changed": array(made_of(
            {**PATH_ENTRY, "content": {**BOOLEAN, "description": "false: only its mode or time"}},
            {"pathBase64": BASE64},
        )),
        "removed": array(ref("PathEntry")),
        "counts": made_of({"added": INTEGER, "changed": INTEGER, "removed": INTEGER}), "truncated": BOOLEAN,
    }),
    "Restore": made_of({}, {
        "inPlace": {"type": "boolean", "default": False, "description": "this session, which must be paused"},
    }),
    "Released": made_of({"generation": INTEGER, "wasPinned": BOOLEAN, "kept": BOOLEAN}),
    "VerifyLine": {"anyOf": [
        made_of({"progress": made_of({}, {"done": INTEGER, "of": INTEGER, "what": text()})}),
        made_of({"result": made_of({
            "whole": BOOLEAN,
            "generations": array(made_of({"generation": INTEGER, "at": TIME, "problems": array(text())})),
        })}),
        ref("Error"),
    ]},
    "CollectLine": {"anyOf": [
        made_of({"progress": made_of({}, {"removed": INTEGER})}),
        made_of({"result": made_of({
            "sessions": INTEGER, "generations": INTEGER, "packs": INTEGER, "packBytes": INTEGER, "marked": INTEGER,
            "removed": INTEGER, "removedBytes": INTEGER, "problem": maybe(text("why nothing was removed")),
            "dryRun": BOOLEAN,
        })}),
        ref("Error"),
    ]},
}  # fmt: skip
