"""Tokens for one repository, made by an app of a git host: asked over TLS, as GitHub has it."""

from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from gateway.egress.providers import read_providers
from gateway.egress.repositories import GitRepository
from gateway.vault.credential import ApiKey, Credential, GitApp
from gateway.vault.git_tokens import GitTokens, NoGitToken
from tests.gateway.egress.git_host import GitHost, git_host

KEY = rsa.generate_private_key(65537, 2048)
PEM = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()
APP = Credential("ann", "github", GitApp("12345", PEM), 1)


async def minted(host: GitHost, tokens: GitTokens, credential: Credential = APP, path: str = "o/r", **how: bool) -> str:
    github = read_providers(host.providers_file()).by_name["github"]
    repository = GitRepository(f"127.0.0.2:{host.port}", path)
    return (await tokens.token(credential, github, repository, **how)).key


async def test_an_app_gets_a_token_for_that_repository_alone(tmp_path: Path) -> None:
    async with git_host(tmp_path) as host:
        tokens = GitTokens()
        assert await minted(host, tokens) == await minted(host, tokens) == "minted-1", "kept while it is good"
        [(word, asked)] = host.minted
        assert jwt.decode(word, KEY.public_key(), ["RS256"])["iss"] == "12345"
        assert asked == {"repositories": ["r"], "permissions": {"contents": "write"}}
        assert await minted(host, tokens, fresh=True) == "minted-2", "the one before was refused"
        later = Credential("ann", "github", GitApp("12345", PEM), 2)
        assert await minted(host, tokens, later) == "minted-3", "the credential was set anew"


async def test_a_token_is_used_as_it_is(tmp_path: Path) -> None:
    async with git_host(tmp_path) as host:
        assert await minted(host, GitTokens(), Credential("ann", "github", ApiKey("ghp"))) == "ghp"
        assert host.minted == []


async def test_what_goes_wrong_is_said(tmp_path: Path) -> None:
    async with git_host(tmp_path) as host:
        with pytest.raises(NoGitToken, match="not installed for this repository"):
            await minted(host, GitTokens(), path="o/other")
        lines = [line for line in host.providers_file().decode().splitlines() if "token_api" not in line]
        gitlab = read_providers("\n".join(lines).replace("github", "gitlab").encode()).by_name["gitlab"]
        with pytest.raises(NoGitToken, match="has no token_api"):
            await GitTokens().token(APP, gitlab, GitRepository("gitlab.com", "o/r"))
    with pytest.raises(NoGitToken, match="did not answer"):
        await minted(host, GitTokens())
