"""The description of each setting, in one place: for `holdfast settings`, `holdfast init` and the docs
(docs/operations/settings.md).

It stands beside the declarations and not in them, because few commands need it. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.agents.choice import AgentChoice
from gateway.config.settings import BUCKET_NAMES, KNOWN, PREFIX, SecretStr, Settings
from gateway.config.values import without_credentials

BEGIN = "<!-- settings: written by `make tables` from gateway/config -->"
END = "<!-- end of settings -->"
_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True, slots=True)
class Description:
    """`line` stands by itself; `more` continues it in the docs, and `see` is the place there for the rest. `default`
    describes a default that the value in the code does not show; `unit` is `s` or `bytes`."""

    line: str
    more: str = ""
    see: str = ""
    default: str = ""
    unit: str = ""


_KEPT = "made once in the data directory"
DESCRIPTIONS = {
    "config": Description(
        "the file that holds settings beside the environment",
        "A file that belongs to another user is read only if it is named here. `/dev/null` is for no file.",
        see="#settings-in-a-file", default="`./holdfast.toml`, if it is there",
    ),
    "host": Description(
        "the address to listen on",
        "`0.0.0.0` if a platform sets `PORT` and this is not set: its router comes from another machine. `::` "
        "listens on all addresses of IPv4 and IPv6. It also decides the defaults that depend on who can reach the "
        "gateway.",
    ),
    "port": Description("the port to listen on", "A platform's `PORT` counts if this is not in the environment."),
    "data_dir": Description("the directory of all stored data; one process at a time"),
    "store": Description(
        "the store of conversations: SQLite, Postgres or an HTTP service",
        "`sqlite:///path`, `postgresql://user:password@host/database?sslmode=verify-full`, or `https://service/path` "
        "(`http://` on loopback only). See [Postgres](postgres.md) and [a service](service.md).",
        default="`sqlite:///<data>/holdfast.db`",
    ),
    "store_pool": Description(
        "connections to Postgres, 2 to 100", "One is for commits, one to listen, so at least 3 are used."
    ),
    "spool_bytes": Description(
        "how much may wait in `spool.db` for Postgres", "When it is full, senders get `nack storage_full`.",
        unit="bytes",
    ),
    "retention_age": Description("older records are removed; at least `1h`", default="none: kept for ever", unit="s"),
    "retention_count": Description(
        "the number of newest records that each session keeps; at least `100`", default="none: all"
    ),
    "objects": Description(
        "the store of workspaces: a directory or a bucket",
        "A directory that is empty or Holdfast's own; or `s3://bucket/prefix?endpoint=https://host&region=name`.",
        see="workspaces.md#workspaces-in-a-bucket", default="`file://<data>/objects`",
    ),
    "objects_unchecked": Description("starts without testing whether the bucket's server honours conditional writes"),
    "redis": Description("not built yet, and refused"),
    "sandbox": Description(
        "where sessions without a `provider` run: `local` or `docker`", see="containers.md"
    ),
    "providers": Description(
        "all providers that this gateway has and a session may name, comma-separated",
        default="the one of `HOLDFAST_SANDBOX`",
    ),
    "docker": Description("for `docker`: the engine of this host, Docker's or Podman's"),
    "docker_image": Description(
        "for `docker`: the image that sessions run in", "By default that of `deploy/sandbox.Dockerfile`."
    ),
    "images": Description(
        "patterns of images that users may name for their sessions, comma-separated", "Services may name any.",
        see="containers.md", default="none: `HOLDFAST_DOCKER_IMAGE` alone",
    ),
    "docker_pull": Description(
        "for `docker`: whether an image that the engine lacks is fetched when a session starts: `missing` or `never`"
    ),
    "docker_pull_timeout": Description("for `docker`: after how long without progress a pull is given up", unit="s"),
    "docker_auth_file": Description(
        "for `docker`: logins of registries, a file as `docker login` writes it; mode 0600, read at each pull"
    ),
    "docker_runtime": Description(
        "for `docker`: the runtime of containers, such as `runc` or `crun`", default="the engine's own"
    ),
    "gone_providers": Description(
        "names of providers that are gone for good, with all their sandboxes, comma-separated",
        see="what-to-do.md#when-a-provider-does-not-answer",
    ),
    "agent": Description("the agent of sessions that name none", see="agents.md"),
    "agents_dir": Description("where agents are installed", see="agents.md", default="`<data>/agents`"),
    "orphans": Description(
        "leftovers of sandboxes that no session can use: `remove` or `keep`",
        "`keep` keeps them until `holdfast orphans --remove`.", see="what-to-do.md#orphans",
    ),
    "local_level": Description(
        "how `local` sandboxes are isolated: `auto`, `contained` or `trusted`",
        "`auto` is `contained` where bubblewrap works, else `trusted` on loopback.",
    ),
    "shell": Description(
        "the default command of a terminal; split by shell rules", default="`bash -l`, or `sh`"
    ),
    "terminal_size": Description("how a terminal's size follows its viewers: `active`, `smallest`, `fixed`"),
    "terminal_ring": Description("bytes of a terminal's output that can be resumed from", unit="bytes"),
    "terminal_hold": Description("how long a full ring waits for the last viewer to come back", unit="s"),
    "terminal_scrollback": Description("lines above the screen that a late viewer gets"),
    "terminal_idle": Description(
        "how long a silent terminal without viewers lives", default="`0`: never"
    ),
    "terminals": Description("terminals of one session"),
    "sandbox_env_file": Description("a file of `NAME=value` lines that every sandbox gets; mode 0600"),
    "network": Description(
        "the network of a session that asks for nothing: `none`, `outbound` or hosts, comma-separated",
        "`outbound` is every public host; hosts are written as in `api.anthropic.com,*.github.com`.",
        see="../egress.md",
    ),
    "network_max": Description(
        "the most that a user may ask to reach, written alike; services may ask for all",
        see="../egress.md", default="`outbound` on loopback, else `none`",
    ),
    "network_inner": Description(
        "networks, addresses and hosts that sandboxes may reach although they are not public, comma-separated",
        "A session's own network must allow them, too.", see="../egress.md#inner-networks",
    ),
    "providers_file": Description(
        "a TOML file that adds providers of models and git hosts, or gives one of them another address",
        see="models.md#other-providers",
    ),
    "prices_file": Description(
        "a TOML file with prices of models, which go before those that come with Holdfast", see="models.md#prices",
    ),
    "budget_per_user": Description(
        "USD that each user's sessions may spend on models in a day, from 00:00 UTC on",
        see="models.md#budgets", default="none: no limit",
    ),
    "limit_memory": Description(
        "bytes of memory that each sandbox may use as a whole, and a user may ask for; at least `128MiB`",
        see="limits.md#what-a-sandbox-may-use", default="none: no limit",
    ),
    "limit_cpus": Description(
        "processors that each sandbox may use as a whole, and a user may ask for; at least `0.1`",
        see="limits.md#what-a-sandbox-may-use", default="none: no limit",
    ),
    "limit_pids": Description(
        "processes and threads that each sandbox may have, and a user may ask for; at least `64`",
        see="limits.md#what-a-sandbox-may-use", default="none: no limit",
    ),
    "limit_disk": Description(
        "refused: bound the file system of `HOLDFAST_DATA_DIR` instead",
        "A sandbox's files are in `HOLDFAST_DATA_DIR`, also those of a container, whose root is read-only.",
    ),
    "jwt_secret": Description("the key that signs users' tokens, at least 32 bytes", default=_KEPT),
    "jwt_jwks_url": Description(
        "the keys of an identity provider, instead of the secret", "Needs issuer and audience, too."
    ),
    "jwt_issuer": Description("the required issuer of users' tokens, with `HOLDFAST_JWT_JWKS_URL`"),
    "jwt_audience": Description("the required audience of users' tokens, with `HOLDFAST_JWT_JWKS_URL`"),
    "api_token": Description("the token of services and operators, at least 16 bytes", default=_KEPT),
    "internal_token": Description("the token of internal services, at least 16 bytes", default=_KEPT),
    "relay_secret": Description("the secret of a relay, at least 16 bytes", default=_KEPT),
    "vault_key": Description(
        "the key that seals users' credentials, at least 32 bytes",
        "Any long random text. With it set, neither the data directory nor a backup has the key to the credentials in "
        "the store: keep it in a safe place.",
        default=_KEPT,
    ),
    "vault_key_old": Description(
        "the previous vault key, while credentials are sealed again",
        "Set it together with a new `HOLDFAST_VAULT_KEY`, restart, and remove it when `holdfast doctor` says so.",
    ),
    "allowed_origins": Description(
        "origins of pages that may use the gateway, comma-separated, exact", default="the own origin"
    ),
    "query_tokens": Description("whether `?token=` is accepted"),
    "trusted_proxies": Description(
        "addresses and networks whose `X-Forwarded-*` count, comma-separated",
        "An entry that covers every address, such as `0.0.0.0/0`, causes a warning.",
    ),
    "pending_limit": Description("messages that wait while a sandbox is away"),
    "pending_ttl": Description("how long messages wait while a sandbox is away", unit="s"),
    "pending_bytes": Description("bytes of messages that wait while a sandbox is away", unit="bytes"),
    "sync_debounce": Description("how long files must be quiet before a sync", see="../snapshots.md", unit="s"),
    "sync_max_wait": Description(
        "the longest wait for a sync while files keep changing", see="../snapshots.md", unit="s"
    ),
    "sync_attempts": Description("attempts of a sync before it counts as failed", see="../snapshots.md"),
    "sync_max_files": Description(
        "files of a workspace; a larger one is not stored, and its session reports that",
        "About 0.4 KiB of the gateway's memory a file while a first sync runs.",
    ),
    "sync_max_bytes": Description(
        "bytes of a workspace; a larger one is not stored, and its session reports that", unit="bytes"
    ),
    "sync_agent_skip": Description(
        "files of the agent's home that are not stored: patterns as in `.gitignore`, comma-separated; `-` for none",
        default="caches and logs",
    ),
    "snapshot_keep": Description("stored generations of a session"),
    "snapshot_grace": Description(
        "time between the two passes that find an object unreferenced before it is removed", unit="s"
    ),
    "sleep_after": Description(
        "how long a session is idle before it sleeps: without input, output or API calls",
        "A session may have its own (`sleepAfter`).", unit="s",
    ),
    "quiet_after": Description(
        "how long an agent that owes an answer may be silent before its session counts as idle",
        "Then the session sleeps like an idle one, and unanswered messages become `interrupted`. A permission or "
        "question of the agent stays open as long: then it is `expired`, and the next process gets it (`pending` in "
        "`start`). While messages wait for the agent, the session does not sleep. It is a setting of its own, not a "
        "multiple of the idle time: a silent build or test may take as long in a session that sleeps after a minute "
        "as in one that sleeps after a day.", unit="s",
    ),
    "start_timeout": Description("how long a bridge and its agent may take to be ready", unit="s"),
    "exec_timeout": Description("how long one command may take", unit="s"),
    "restore_timeout": Description("how long a restore may make no progress; then `unrestored`", unit="s"),
    "orphan_after": Description("after how long a sandbox that no gateway talks to ends itself", unit="s"),
    "create_on_attach": Description("whether an unknown id becomes the user's own session"),
    "demo": Description(
        "lets owners cut, kill and delay their own sessions, to show that nothing is lost",
        "By `POST /api/sandboxes/{id}/demo/...`. The gateway warns if others can reach it.",
    ),
    "allow_private_repos": Description("lets `repoUrl` name private addresses"),
    "max_connections": Description("connections in all; `/health` always answers"),
    "max_connections_per_user": Description("connections of one user"),
    "max_connections_per_address": Description("connections from one address"),
    "max_sessions_per_user": Description("sessions of one user, archived ones included", see="limits.md"),
    "max_stored_per_user": Description(
        "bytes of records and of files in snapshots, of one user", see="limits.md", unit="bytes"
    ),
    "max_running": Description("sandboxes that run or are being started", see="limits.md"),
    "max_running_per_user": Description("sandboxes of one user that run or are being started", see="limits.md"),
    "starts_at_once": Description(
        "sandboxes that start, or are found again, at the same time; the others wait in turn", see="limits.md"
    ),
    "starts_at_once_per_user": Description("the same for one user", see="limits.md"),
    "max_agent_records": Description(
        "records a second that one session's agent may make unasked",
        "These are requests for permission, questions, and answers to no message. A long record counts as one for "
        "each 4 KiB; an answer to a message counts only for these. Ten seconds' worth may come at once. Above that, "
        "the gateway stops reading the agent for a while: nothing is lost.",
    ),
    "max_requests_per_user": Description(
        "HTTP requests and upgrades a second of one user, twice that in a burst; then 429 `too_many_requests`",
        "Services are not counted. Guests who came by a share are counted separately: all guests of a user together, "
        "and all ended shares of a user together.",
    ),
    "max_frames_per_user": Description(
        "WebSocket frames a second, over all sockets of a user",
        "Those of guests count separately. Two seconds' worth may come at once. Above that, the user's sockets are not "
        "read until the debt is paid: nothing is dropped.",
    ),
    "max_input_per_user": Description(
        "bytes (unpacked) a second, over all sockets of a user", "Counted as frames are.", unit="bytes"
    ),
    "max_frame_bytes": Description(
        "bytes of one message, at most that; a longer one closes the socket with 1009", unit="bytes"
    ),
    "handshake_timeout": Description("how long a whole request head may take", unit="s"),
    "auth_timeout": Description("how long the answer to an upgrade may take", unit="s"),
    "drain_timeout": Description("how long an orderly end may take", unit="s"),
    "compression": Description("permessage-deflate: fewer bytes for more CPU and memory"),
    "record_sessions": Description(
        "a directory for recordings of each session's events", see="recordings.md"
    ),
    "log_level": Description("`debug`, `info`, `warning` or `error`"),
}  # fmt: skip
BUCKET = {
    "AWS_ACCESS_KEY_ID": "the name of the key that opens the bucket of `HOLDFAST_OBJECTS`",
    "AWS_SECRET_ACCESS_KEY": "its secret",
    "AWS_SESSION_TOKEN": "its token, if the key is temporary",
    "CF_ACCOUNT_ID": "the Cloudflare account of a bucket of R2 whose address names no endpoint",
}


def shown(value: Any, unit: str = "") -> str:
    """The value in the environment's form; a secret as `set`."""
    match value:
        case None | () | "":
            return "none"
        case bool():
            return "true" if value else "false"
        case SecretStr():
            return "set"
        case tuple():
            return ",".join(value)
        case AgentChoice():
            return value.said
        case int() | float() if unit == "bytes":
            size, name = next(((size, name) for size, name in _UNITS if value and value % size == 0), (1, ""))
            return f"{value // size:.0f} {name}".strip()
        case float() if unit == "s":
            return f"{_digits(value / 3600)} h" if value and value % 3600 == 0 else f"{_digits(value)} s"
        case float():
            return _digits(value)
        case str() if "://" in value:
            return without_credentials(value)
    return str(value)


def _digits(value: float) -> str:
    """Without an exponent, which no setting takes."""
    return f"{value:.9f}".rstrip("0").rstrip(".")


def default_of(name: str) -> str:
    """The default of a name of the environment, in words; with backquotes where it is a value."""
    known = KNOWN[name]
    about = DESCRIPTIONS[known.name]
    if about.default:
        return about.default
    text = shown(known.default, about.unit)
    return text if text == "none" and known.default in (None, (), "") else f"`{text}`"


def value_of(settings: Settings, name: str) -> str:
    """The value in use, for a name of the environment."""
    if name in BUCKET_NAMES:
        return "set" if name in settings.sources else "not set"
    known = KNOWN[name]
    value = getattr(settings, known.name)
    if value is None and "Secret" in str(known.type):
        return "not set"
    if known.name == "shell" and value:
        return AgentChoice(command=value).said
    return shown(value, DESCRIPTIONS[known.name].unit)


def rows() -> Iterator[tuple[str, str, str]]:
    """Name, default and docs line of each setting."""
    for name, known in KNOWN.items():
        yield name, default_of(name), DESCRIPTIONS[known.name].line
    for name, line in BUCKET.items():
        yield name, "none", line


def table() -> str:
    """The table of docs/operations/settings.md."""
    lines = ["| setting | default | |", "|---|---|---|"]
    for name, default, line in rows():
        about = DESCRIPTIONS.get(name.removeprefix(PREFIX).lower(), Description(""))
        more = f". {about.more.removesuffix('.')}" if about.more else ""
        see = f". [More]({about.see})" if about.see else ""
        lines.append(f"| `{name}` | {default} | {line}{more}{see} |")
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Without backquotes."""
    return text.replace("`", "")
