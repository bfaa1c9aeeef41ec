"""The options after `?` in the address of a Postgres. Pure.

The driver knows some options and passes all others to the server, as settings of the connection. So an unknown one may
be right; but one that looks like an option of ours is a misspelt password more often than a setting, and is refused.
"""

import difflib
from collections.abc import Iterator
from urllib.parse import unquote_plus

PASSWORDS = frozenset({"password", "sslpassword"})
_DRIVER = {
    *("host", "port", "user", "dbname", "database", "passfile", "service", "servicefile", "target_session_attrs"),
    *("sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslnegotiation", "krbsrvname", "gsslib"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version"),
}
_SERVER = {
    *("application_name", "options", "search_path", "role", "client_encoding", "timezone", "datestyle", "work_mem"),
    *("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"),
    *("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout"),
    *("synchronous_commit", "default_transaction_isolation", "default_transaction_read_only", "jit"),
    *("password_encryption", "client_min_messages", "log_statement", "transaction_timeout"),
}
_SHOWN = _DRIVER | _SERVER - {"options"}  # `options` may hold any words for the server
_ALIASES = dict.fromkeys(("pass", "passw", "pwd", "pw", "passphrase", "secret"), "password") | {
    "username": "user", "hostname": "host", "db": "dbname", "ssl": "sslmode",
}  # fmt: skip


def check_options(query: str) -> None:
    """Raises ValueError with the names that are wrong, and no values."""
    for pair in query.split("&") if query else ():
        name, sign, _ = pair.partition("=")
        if not sign:
            raise ValueError("wants options as name=value, with & between: ?sslmode=verify-full")
        name = unquote_plus(name)
        if near := _meant(name):
            raise ValueError(f"has no option {_shown_name(name)}; did you mean {near}?")


def is_hidden(name: str) -> bool:
    """True if the value of an option, named as it is written, must not be shown."""
    plain = unquote_plus(name)
    return plain not in _DRIVER and plain.lower() not in _SHOWN


def pairs_of(query: str) -> Iterator[tuple[str, str, str]]:
    """Name, sign and value as they are written."""
    return (pair.partition("=") for pair in query.split("&") if pair)


def _meant(name: str) -> str | None:
    """The driver's option that a misspelt name means; None if the name is right, or may be."""
    plain = name.lower()
    if name in _DRIVER or name in PASSWORDS or plain in _SERVER or "." in name:
        return None
    known = sorted(_DRIVER | PASSWORDS)
    if plain in known:
        return plain
    near = _ALIASES.get(plain) or next(iter(difflib.get_close_matches(plain[:64], known, n=1, cutoff=0.75)), None)
    return near


def _shown_name(name: str) -> str:
    return name if name.isascii() and name.isidentifier() and len(name) <= 32 else "of that name"
