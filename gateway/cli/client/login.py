"""The user of this machine, for commands without --user."""

import getpass


def whoever(user: str | None = None, email: str | None = None) -> tuple[str, str]:
    """A user's name and address: as given, else those of the login."""
    name = user or _login()
    return name, email or f"{name}@localhost"


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user need not have a name
        return "me"
