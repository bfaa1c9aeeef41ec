"""What PostgreSQL's errors mean to Holdfast. No error of the driver leaves the adapter; it is translated here."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from persistence.errors import CannotOpen, StoreFull, StoreUnavailable

# ValueError: the driver cannot parse an address, or a part of one.
DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
    ValueError,
)
DISK_FULL = "53100"
LOCKED = ("55P03", "40P01")  # another transaction held a lock for too long, or both waited for each other
# The data are wrong or too large, or a constraint or a trigger refuses them: a retry would fail, too.
REFUSALS = ("21", "22", "23", "44", "54", "P0")
CANNOT_OPEN = {
    "28": "Check the user and the password in HOLDFAST_STORE, and the server's pg_hba.conf",
    "3D": "Create the database, or check its name in HOLDFAST_STORE",
    "42": "Run `holdfast migrate` as the owner of the tables; deploy/postgres-roles.sql has the gateway's rights",
    "42704": "Check the options after the ? in HOLDFAST_STORE",  # no such option
    "22023": "Check the options after the ? in HOLDFAST_STORE",  # not with this value
}


class NotAsBelieved(asyncpg.PostgresError):
    """A session differs from its writer's assumption; nothing was stored. Our own function all_as_believed raises it,
    by its SQLSTATE."""

    sqlstate = "HF001"


def sqlstate(error: BaseException) -> str:
    """PostgreSQL's own number of the error; empty if it has none."""
    return str(getattr(error, "sqlstate", None) or "")


def refuses(error: BaseException) -> bool:
    """Whether the database refuses these data for ever, but would take others."""
    return sqlstate(error).startswith(REFUSALS)


def reason(error: BaseException) -> str:
    """The error in one line. PostgreSQL's own text never holds a password; its detail may hold a row, and is left
    out."""
    silent = "the server does not answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    return f"{error}".partition("\n")[0] or silent


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn the driver's errors into StoreUnavailable or StoreFull, named after `what`."""
    try:
        yield
    except DRIVER_ERRORS as error:
        kind = StoreFull if sqlstate(error) == DISK_FULL else StoreUnavailable
        raise kind(f"{what}: {reason(error)}") from error


def cannot_open(where: str, error: BaseException) -> CannotOpen | None:
    """Advice for an operator if only a person can make the database usable; None if the error may pass by itself."""
    state = sqlstate(error)
    advice = CANNOT_OPEN.get(state) or CANNOT_OPEN.get(state[:2])
    match error:
        case ssl.SSLCertVerificationError():
            advice = "Check sslrootcert in HOLDFAST_STORE, and that the certificate names the host"
        case ConnectionError() if "SSL" in str(error):
            advice = "Switch TLS on in the server, or check sslmode in HOLDFAST_STORE"
        case asyncpg.ClientConfigurationError():
            advice = "Check HOLDFAST_STORE"
        case ValueError():  # without the driver's text, which may quote a password
            return CannotOpen(
                "HOLDFAST_STORE cannot be read. Write / ? # @ and % in the password as %2F %3F %23 %40 and %25"
            )
    return CannotOpen(f"cannot use the database {where}: {reason(error)}. {advice}") if advice else None
