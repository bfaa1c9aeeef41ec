"""Settings: typed, frozen, each declared once; `loading.py` reads them from the environment and a file.

`resolve_secrets` and `read_sandbox_env` touch the disk. A plain dataclass on purpose: this module is imported by every
command, and a validation library would triple its start. The line of docs of each setting is in `descriptions.py`,
which few commands need.
"""

import enum
import os
import secrets
import stat
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args, get_origin

from gateway.agents.catalogue import CACHES
from gateway.agents.choice import DEMO_CHOICE, AgentChoice, read_choice
from gateway.config import values
from gateway.config.objects_url import ObjectsUrl, objects_url
from gateway.config.sources import Source
from gateway.config.store_url import StoreUrl as StoreUrl
from gateway.config.store_url import store_url
from gateway.config.values import SecretStr as SecretStr
from gateway.limits.images import read_patterns
from gateway.limits.resources import MOST_CPUS, MOST_MEMORY, MOST_PIDS
from sandbox.ports.resources import LEAST_CPUS, LEAST_MEMORY, LEAST_PIDS

PREFIX = "HOLDFAST_"
CONFIG = "HOLDFAST_CONFIG"
# A bucket's keys, by the names that its own tools use: read where HOLDFAST_OBJECTS names a bucket.
BUCKET_NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "CF_ACCOUNT_ID")
PROVIDERS = ("local", "docker")
VAULT_KEY, VAULT_KEY_OLD = "vault_key", "vault_key.old"  # files among the secrets
OWN_IMAGE = "holdfast-sandbox"  # the image of deploy/sandbox.Dockerfile
_MIB = 1 << 20
# Parts of an agent's home that it fetches or makes again.
AGENT_CACHES = (
    *(".cache/", ".npm/", ".bun/install/cache/", ".cargo/registry/", ".local/share/Trash/", "__pycache__/"),
    *CACHES,
)


class SettingsError(Exception):
    """The gateway cannot run as configured. `problems` are complete sentences, one per line for the operator."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def by(read: Callable[[str], Any]) -> dict[str, Any]:
    return {"read": read}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every `HOLDFAST_<NAME>`, with defaults that run on a laptop. Times are seconds, sizes are bytes."""

    config: Path | None = field(default=None, metadata=by(Path))  # the file that was read
    host: str = field(default="127.0.0.1", metadata=by(values.host))
    port: int = field(default=8080, metadata=by(values.whole(0, 65535)))
    data_dir: Path = field(default=Path(".holdfast"), metadata=by(Path))
    store: StoreUrl = field(default=StoreUrl(""), metadata=by(store_url))  # "": sqlite in the data directory
    store_pool: int = field(default=8, metadata=by(values.whole(2, 100)))
    spool_bytes: int = field(default=1 << 30, metadata=by(values.size(_MIB, 1 << 46)))
    retention_age: float | None = field(default=None, metadata=by(values.duration_from(3600, "1h")))  # None: for ever
    retention_count: int | None = field(default=None, metadata=by(values.whole(100, 10**12)))  # None: all
    objects: ObjectsUrl = field(default=ObjectsUrl(""), metadata=by(objects_url))  # "": in the data directory
    objects_unchecked: bool = field(default=False, metadata=by(values.switch))
    redis: str = field(default="", metadata=by(str))
    sandbox: str = field(default="local", metadata=by(str))
    providers: tuple[str, ...] = field(default=(), metadata=by(values.names))  # (): the one of `sandbox`
    docker: str = field(default="unix:///var/run/docker.sock", metadata=by(values.unix_address))
    docker_image: str = field(default=OWN_IMAGE, metadata=by(values.image))
    images: tuple[str, ...] = field(default=(), metadata=by(read_patterns))  # (): docker_image alone
    docker_pull: str = field(default="missing", metadata=by(values.choice("missing", "never")))
    docker_pull_timeout: float = field(default=300.0, metadata=by(values.positive_duration))  # without progress
    docker_auth_file: Path | None = field(default=None, metadata=by(Path))
    docker_runtime: str = field(default="", metadata=by(values.runtime))  # "": the engine's own default
    gone_providers: tuple[str, ...] = field(default=(), metadata=by(values.names))
    agent: AgentChoice = field(default=DEMO_CHOICE, metadata=by(read_choice))
    agents_dir: Path = field(default=Path(), metadata=by(Path))  # the default: in the data directory
    orphans: str = field(default="remove", metadata=by(values.choice("remove", "keep")))
    local_level: str = field(default="auto", metadata=by(values.choice("auto", "trusted", "contained")))
    shell: tuple[str, ...] | None = field(default=None, metadata=by(values.command))
    terminal_size: str = field(default="active", metadata=by(values.choice("active", "smallest", "fixed")))
    terminal_ring: int = field(default=2 * _MIB, metadata=by(values.size(64 << 10, 256 * _MIB)))
    terminal_hold: float = field(default=10.0, metadata=by(values.duration))
    terminal_scrollback: int = field(default=1000, metadata=by(values.whole(0, 10_000)))
    terminal_idle: float = field(default=0.0, metadata=by(values.duration))  # 0: never
    terminals: int = field(default=16, metadata=by(values.whole(1, 256)))
    sandbox_env_file: Path | None = field(default=None, metadata=by(Path))
    network: str = field(default="none", metadata=by(values.network))
    network_max: str = field(default="", metadata=by(values.network))  # "": by who can reach the gateway
    network_inner: tuple[str, ...] = field(default=(), metadata=by(values.inner_networks))

    providers_file: Path | None = field(default=None, metadata=by(Path))
    prices_file: Path | None = field(default=None, metadata=by(Path))
    budget_per_user: float | None = field(default=None, metadata=by(values.number(0, 1_000_000)))  # USD a day

    # Limits of one sandbox; None: no limit. A user may ask for less, a service for more.
    limit_memory: int | None = field(default=None, metadata=by(values.size(LEAST_MEMORY, MOST_MEMORY)))
    limit_cpus: float | None = field(default=None, metadata=by(values.number(LEAST_CPUS, MOST_CPUS)))
    limit_pids: int | None = field(default=None, metadata=by(values.whole(LEAST_PIDS, MOST_PIDS)))
    limit_disk: int | None = field(default=None, metadata=by(values.size(_MIB, 1 << 46)))

    jwt_secret: SecretStr | None = field(default=None, metadata=by(values.secret(32)))
    jwt_jwks_url: str | None = field(default=None, metadata=by(values.key_url))
    jwt_issuer: str | None = field(default=None, metadata=by(str))
    jwt_audience: str | None = field(default=None, metadata=by(str))
    api_token: SecretStr | None = field(default=None, metadata=by(values.secret(16)))
    internal_token: SecretStr | None = field(default=None, metadata=by(values.secret(16)))
    relay_secret: SecretStr | None = field(default=None, metadata=by(values.secret(16)))
    vault_key: SecretStr | None = field(default=None, metadata=by(values.secret(32)))
    vault_key_old: SecretStr | None = field(default=None, metadata=by(values.secret(32)))
    allowed_origins: tuple[str, ...] = field(default=(), metadata=by(values.origins))  # (): the own origin
    query_tokens: bool = field(default=True, metadata=by(values.switch))
    trusted_proxies: tuple[str, ...] = field(default=(), metadata=by(values.networks))

    pending_limit: int = field(default=100, metadata=by(values.whole(1, 100_000)))
    pending_ttl: float = field(default=300.0, metadata=by(values.positive_duration))
    pending_bytes: int = field(default=8 * _MIB, metadata=by(values.size(1, 1 << 30)))
    sync_debounce: float = field(default=2.0, metadata=by(values.duration))
    sync_max_wait: float = field(default=10.0, metadata=by(values.positive_duration))
    sync_attempts: int = field(default=3, metadata=by(values.whole(1, 100)))
    sync_max_files: int = field(default=250_000, metadata=by(values.whole(1, 10_000_000)))
    sync_max_bytes: int = field(default=32 << 30, metadata=by(values.size(_MIB, 1 << 46)))
    sync_agent_skip: tuple[str, ...] = field(default=AGENT_CACHES, metadata=by(values.patterns))
    snapshot_keep: int = field(default=10, metadata=by(values.whole(1, 10_000)))
    snapshot_grace: float = field(default=86_400.0, metadata=by(values.duration_from(600, "10m")))
    sleep_after: float = field(default=600.0, metadata=by(values.positive_duration))
    quiet_after: float = field(default=3600.0, metadata=by(values.positive_duration))
    start_timeout: float = field(default=30.0, metadata=by(values.positive_duration))
    exec_timeout: float = field(default=600.0, metadata=by(values.positive_duration))
    restore_timeout: float = field(default=60.0, metadata=by(values.positive_duration))
    orphan_after: float = field(default=600.0, metadata=by(values.positive_duration))
    create_on_attach: bool = field(default=False, metadata=by(values.switch))
    demo: bool = field(default=False, metadata=by(values.switch))
    allow_private_repos: bool = field(default=False, metadata=by(values.switch))

    max_connections: int = field(default=9000, metadata=by(values.whole(1, 1_000_000)))
    max_connections_per_user: int = field(default=100, metadata=by(values.whole(1, 1_000_000)))
    max_connections_per_address: int = field(default=200, metadata=by(values.whole(1, 1_000_000)))
    # Limits of one user. One person on a laptop reaches none of these.
    max_sessions_per_user: int = field(default=10_000, metadata=by(values.whole(1, 1_000_000_000)))
    max_stored_per_user: int = field(default=256 << 30, metadata=by(values.size(1024, 1 << 60)))
    max_running: int = field(default=500, metadata=by(values.whole(1, 1_000_000)))
    max_running_per_user: int = field(default=50, metadata=by(values.whole(1, 1_000_000)))
    starts_at_once: int = field(default=8, metadata=by(values.whole(1, 1000)))
    starts_at_once_per_user: int = field(default=2, metadata=by(values.whole(1, 1000)))
    max_agent_records: int = field(default=200, metadata=by(values.whole(1, 1_000_000)))  # a second
    max_requests_per_user: int = field(default=300, metadata=by(values.whole(1, 1_000_000)))  # a second
    max_frames_per_user: int = field(default=5000, metadata=by(values.whole(10, 10_000_000)))  # a second
    max_input_per_user: int = field(default=16 * _MIB, metadata=by(values.size(_MIB, 1 << 40)))  # a second
    # At most what a link carries: otherwise a stored message could never be delivered, and would block the others for
    # ever.
    max_frame_bytes: int = field(default=_MIB, metadata=by(values.size(1024, _MIB)))
    handshake_timeout: float = field(default=5.0, metadata=by(values.positive_duration))
    auth_timeout: float = field(default=10.0, metadata=by(values.positive_duration))
    drain_timeout: float = field(default=20.0, metadata=by(values.positive_duration))
    compression: bool = field(default=False, metadata=by(values.switch))
    record_sessions: Path | None = field(default=None, metadata=by(Path))
    log_level: str = field(default="info", metadata=by(values.choice("debug", "info", "warning", "error")))

    # The source of each setting that was given, by its name in the environment.
    sources: Mapping[str, Source] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.store == StoreUrl(""):
            object.__setattr__(self, "store", StoreUrl(f"sqlite:///{self.data_dir}/holdfast.db"))
        if self.objects == ObjectsUrl(""):
            object.__setattr__(self, "objects", ObjectsUrl("file", self.data_dir / "objects"))
        agents_dir = self.data_dir / "agents" if self.agents_dir == Path() else self.agents_dir
        object.__setattr__(self, "agents_dir", agents_dir.absolute())  # programs in it are run in other directories
        if not self.providers:
            object.__setattr__(self, "providers", (self.sandbox,))
        if not self.network_max:
            object.__setattr__(self, "network_max", "outbound" if self.loopback_only else "none")

    @property
    def spool_path(self) -> Path:
        """Records that a remote store has not taken yet; for an HTTP sink, all records."""
        return self.data_dir / "spool.db"

    @property
    def loopback_only(self) -> bool:
        return values.is_loopback(self.host)


@dataclass(frozen=True, kw_only=True)
class Secrets:
    """The gateway's signing key and tokens. `jwt_secret` is None where tokens are verified by JWKS."""

    jwt_secret: SecretStr | None
    api_token: SecretStr
    internal_token: SecretStr
    relay_secret: SecretStr
    vault_key: SecretStr  # seals credentials
    old_vault_keys: tuple[SecretStr, ...] = ()  # open values that they sealed, until those are resealed


KNOWN: dict[str, Field[Any]] = {
    PREFIX + known.name.upper(): known for known in fields(Settings) if "read" in known.metadata
}


class WrittenForm(enum.Enum):
    """How a file may write a setting; text in quotes is right for each."""

    PLAIN = enum.auto()  # a number, true or false
    TEXT = enum.auto()
    LIST = enum.auto()  # of texts, which the environment separates by commas
    WORDS = enum.auto()  # of a command line


def form_of(name: str) -> WrittenForm:
    """The form of a name of the environment."""
    if name not in KNOWN:
        return WrittenForm.TEXT
    known = KNOWN[name]
    kinds = get_args(known.type) if isinstance(known.type, types.UnionType) else (known.type,)
    if known.metadata["read"] in (values.command, read_choice):
        return WrittenForm.WORDS
    if {int, float, bool} & set(kinds):
        return WrittenForm.PLAIN
    if known.metadata["read"] is values.network:
        return WrittenForm.LIST
    return WrittenForm.LIST if any(get_origin(kind) is tuple for kind in kinds) else WrittenForm.TEXT


def resolve_secrets(settings: Settings) -> Secrets:
    """The given secrets, and for the others those of the data directory, made there once. Raises SettingsError."""
    home = settings.data_dir / "secrets"

    def resolve(name: str, given: SecretStr | None) -> SecretStr:
        return given or SecretStr(_kept_secret(home, name))

    try:
        return Secrets(
            jwt_secret=None if settings.jwt_jwks_url else resolve("jwt_secret", settings.jwt_secret),
            api_token=resolve("api_token", settings.api_token),
            internal_token=resolve("internal_token", settings.internal_token),
            relay_secret=resolve("relay_secret", settings.relay_secret),
            vault_key=resolve(VAULT_KEY, settings.vault_key),
            old_vault_keys=_old_vault_keys(settings, home),
        )
    except OSError as exc:
        raise SettingsError([f"{home} cannot be used: {exc.strerror or exc}; check HOLDFAST_DATA_DIR"]) from exc


def _old_vault_keys(settings: Settings, home: Path) -> tuple[SecretStr, ...]:
    """The one that is set, and the files' own: one that is being replaced, or that a setting has taken the place of."""
    names = (VAULT_KEY_OLD,) if settings.vault_key is None else (VAULT_KEY_OLD, VAULT_KEY)
    kept = [SecretStr(read_secret(home / name)) for name in names if (home / name).exists()]
    return (*((settings.vault_key_old,) if settings.vault_key_old else ()), *kept)


def kept_vault_keys(settings: Settings) -> list[SecretStr]:
    """Those there are, the present one first. Makes none. Raises SettingsError."""
    home = settings.data_dir / "secrets"
    path = home / VAULT_KEY
    present = settings.vault_key or (SecretStr(read_secret(path)) if path.exists() else None)
    return [*([present] if present else []), *_old_vault_keys(settings, home)]


def replace_vault_key(home: Path) -> None:
    """Make another key in the place of the file's, which stays beside it as the old one until nothing needs it. Cut off
    anywhere, it leaves keys that open everything; run again, it leaves an old key where it is. Raises OSError,
    SettingsError."""
    present, old = home / VAULT_KEY, home / VAULT_KEY_OLD
    if old.exists() and read_secret(old) != read_secret(present):
        return  # an unfinished change: values of the old key are resealed first
    draft = home / f".{VAULT_KEY}.{secrets.token_hex(8)}"
    try:
        _write_secret(draft)
        with suppress(FileExistsError):
            os.link(present, old)
        _sync_directory(home)
        draft.rename(present)
        _sync_directory(home)
    finally:
        draft.unlink(missing_ok=True)


def forget_old_vault_key(home: Path) -> None:
    """Nothing needs it any more. Raises OSError."""
    (home / VAULT_KEY_OLD).unlink(missing_ok=True)
    _sync_directory(home)


def _kept_secret(home: Path, name: str) -> str:
    """Read or make one secret. If two starts race, one wins: the file appears whole, by link, or not at all."""
    home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # `parents` alone would leave it open to others
    home.mkdir(mode=0o700, exist_ok=True)
    path = home / name
    if not path.exists():
        draft = home / f".{name}.{secrets.token_hex(8)}"
        try:
            _write_secret(draft)
            with suppress(FileExistsError):  # another start was first: its secret is read below
                os.link(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        _sync_directory(home)
    return read_secret(path)


def _write_secret(path: Path) -> None:
    """A new one, whole on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(48))
        file.flush()
        os.fsync(file.fileno())


def read_secret(path: Path) -> str:
    """Raises SettingsError if it is damaged, or others may read it."""
    text = _read_private(path).strip()
    if len(text) < 32:
        raise SettingsError([f"{path} is damaged; remove it to have a new one made (what it signed or sealed ends)"])
    return text


def _read_private(path: Path) -> str:
    """The file's text; raises SettingsError if other users may read it."""
    with open(path, encoding="utf-8") as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode) or mode & 0o077:
            raise SettingsError([f"{path} must be readable by its owner alone: chmod 600 {path}"])
        return file.read(_MIB)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_sandbox_env(path: Path) -> dict[str, str]:
    """The NAME=value lines that every sandbox gets; `#` begins a comment, values may be quoted. Raises
    SettingsError."""
    try:
        text = _read_private(path)
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsError([f"HOLDFAST_SANDBOX_ENV_FILE {path} cannot be read: {exc}"]) from exc
    found: dict[str, str] = {}
    problems = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.removeprefix("export ").partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name.isidentifier() or not name.isascii():
            problems.append(f"HOLDFAST_SANDBOX_ENV_FILE {path}, line {number}: wants NAME=value")
            continue
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        found[name] = value
    if problems:
        raise SettingsError(problems)
    return found
