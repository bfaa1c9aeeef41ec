"""Whether a session still needs the `envVars` that were lost with an earlier gateway."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping

from gateway.session.model.state import SessionSpec
from persistence.errors import StoreUnavailable

HasCredential = Callable[[str, str], Awaitable[bool]]


async def no_credentials(user_id: str, provider: str) -> bool:
    """Where there is no vault."""
    return False


class EnvCover:
    """`envs` are the secrets of all sessions, by their ids; `has` asks the vault for a user's credential."""

    def __init__(self, envs: MutableMapping[str, Mapping[str, str]], has: HasCredential = no_credentials) -> None:
        self._envs = envs
        self._has = has

    async def look(self, session_id: str, user_id: str, spec: SessionSpec) -> None:
        """A session whose variables are gone needs them no more if each was a key that the vault has now."""
        if not spec.env_providers or session_id in self._envs:
            return
        try:
            covered = [await self._has(user_id, provider) for provider in spec.env_providers]
        except StoreUnavailable:  # it is looked at again with the next wake or resume
            return
        if all(covered):
            self._envs.setdefault(session_id, {})
