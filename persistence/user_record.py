"""What is kept of a user beside conversations: sealed credentials, and the configuration of the user's agents.

A credential's value comes sealed, and leaves sealed: a store never sees it, nor can it open it.
"""

import msgspec


class SealedCredential(msgspec.Struct, frozen=True, gc=False):
    """One user's credential for one provider. `user_id` is NO_USER for the one that everybody may use."""

    user_id: str
    provider: str
    kind: str  # api, oauth, ...: shown in lists
    key_id: str  # which key opens `sealed`
    sealed: bytes
    set_at: float  # seconds since 1970, for people
    trouble: str = ""  # why it cannot be used, in words; "" while it can
    number: int = 0  # given by the store with each change, never twice: who read it finds out whether it is still so


class UserConfig(msgspec.Struct, frozen=True, gc=False):
    """What a user's agents are configured with, as canonical JSON."""

    user_id: str
    body: bytes
    set_at: float
