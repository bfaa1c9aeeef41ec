"""Errors about a credential that exists and cannot be used, in words for people."""


class CredentialError(Exception):
    """`why` ends a sentence that names the provider; it contains no value."""

    def __init__(self, provider: str, why: str, told: str) -> None:
        super().__init__(told)
        self.provider = provider
        self.why = why


class NeedsCredential(CredentialError):
    """It cannot be used until its owner sets it again."""

    def __init__(self, provider: str, why: str, *, is_for_everybody: bool) -> None:
        who = "the operator has to set it again" if is_for_everybody else "set it again"
        super().__init__(provider, why, f"the credential for {provider} cannot be used: {why}; {who}")
        self.is_for_everybody = is_for_everybody


class RefreshUnavailable(CredentialError):
    """Its tokens have expired, and cannot be refreshed now: try again."""

    def __init__(self, provider: str, why: str) -> None:
        super().__init__(provider, why, f"the tokens for {provider} have ended and cannot be refreshed now: {why}")


class TooManyCredentials(Exception):
    """The user has as many credentials as one user may have."""
