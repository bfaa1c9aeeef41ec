"""Why a credential that exists cannot be used, in words for people."""


class CredentialError(Exception):
    """`why` goes on a sentence that names the provider; no value is in it."""

    def __init__(self, provider: str, why: str, told: str) -> None:
        super().__init__(told)
        self.provider = provider
        self.why = why


class NeedsCredential(CredentialError):
    """It cannot be used until somebody sets it again."""

    def __init__(self, provider: str, why: str, *, is_for_everybody: bool) -> None:
        who = "the operator has to set it again" if is_for_everybody else "set it again"
        super().__init__(provider, why, f"the credential for {provider} cannot be used: {why}; {who}")
        self.is_for_everybody = is_for_everybody


class RefreshUnavailable(CredentialError):
    """Its tokens have ended, and fresh ones cannot be had now: try again."""

    def __init__(self, provider: str, why: str) -> None:
        super().__init__(provider, why, f"the tokens for {provider} have ended and cannot be refreshed now: {why}")


class TooManyCredentials(Exception):
    """The user has as many as anybody may have."""
