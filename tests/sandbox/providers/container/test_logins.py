"""Logins of registries."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.ports.images import read_reference
from sandbox.providers.container.logins import MOST_BYTES, BadLogins, Login, LoginFile, login_for, read_logins


def pair(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def written(**auths: Any) -> bytes:
    return json.dumps({"auths": auths, "HttpHeaders": {}}).encode()


def test_logins_are_read_as_docker_and_podman_write_them() -> None:
    content = written(
        **{
            "https://index.docker.io/v1/": {"auth": pair("hub", "pa:ss")},
            "r.example:5000": {"username": "ann", "password": "secret"},
            "r.example:5000/team": {"auth": pair("team", "narrow")},
            "http://token.example/v2/": {"auth": pair("x", "y"), "identitytoken": "idtoken"},
        }
    )
    logins = read_logins(content)

    def found(image: str) -> Login | None:
        return login_for(logins, read_reference(image))

    assert found("debian:12") == found("team/x") == Login("docker.io", "hub", "pa:ss")
    assert found("r.example:5000/x") == found("r.example:5000/teams/x") == Login("r.example:5000", "ann", "secret")
    assert found("r.example:5000/team/x/y:1") == Login("r.example:5000/team", "team", "narrow")
    assert found("token.example/x") == Login("token.example", identity_token="idtoken")
    assert found("r.example/x") is found("other.example/r.example:5000") is None


def test_the_header_is_what_engines_read() -> None:
    said = json.loads(base64.urlsafe_b64decode(Login("r.example/team", "ann", "?>?>").header))
    assert said == {"username": "ann", "password": "?>?>", "serveraddress": "r.example"}
    token = json.loads(base64.urlsafe_b64decode(Login("r.example", identity_token="t").header))
    assert token == {"identitytoken": "t", "serveraddress": "r.example"}


def test_a_login_shows_no_secret() -> None:
    shown = repr(Login("r.example", "ann", "secret", "token"))
    assert "secret" not in shown
    assert "token" not in shown


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", 'wants JSON with "auths"'),
        (b"[]", 'wants JSON with "auths"'),
        (b"[" * 100_000, 'wants JSON with "auths"'),
        (b"\xff", 'wants JSON with "auths"'),
        (b'{"auths": []}', "wants an object of objects"),
        (b'{"auths": {"r": "x"}}', "wants an object of objects"),
        (
            b'{"auths": {"r.example": {}}, "credsStore": "desktop"}',
            "'r.example' in it has no login: credential helpers",
        ),
        (written(**{"r.example": {"auth": "no base64!"}}), "has no login"),
        (written(**{"r.example": {"auth": pair("secret-user", "")}}), "has no login"),
        (written(**{"r.example": {"auth": 7}}), "has no login"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_of_without_what_is_in_it(content: bytes, words: str) -> None:
    with pytest.raises(BadLogins, match=words) as refused:
        read_logins(content)
    assert "secret" not in str(refused.value)


def test_the_file_is_private_and_read_each_time_and_its_secrets_are_hidden_once(tmp_path: Path) -> None:
    hidden: list[str] = []
    path = tmp_path / "auth.json"
    file = LoginFile(path, hidden.append)
    with pytest.raises(BadLogins, match=r"auth\.json cannot be read: No such file"):
        file.read()
    path.write_bytes(written(**{"r.example": {"auth": pair("ann", "one")}}))
    path.chmod(0o640)
    with pytest.raises(BadLogins, match=r"chmod 600"):
        file.read()
    path.chmod(0o600)
    assert file.read() == file.read() == [Login("r.example", "ann", "one")]
    assert sorted(hidden) == sorted(["one", pair("ann", "one")])
    path.write_bytes(written(**{"r.example": {"identitytoken": "two"}}))
    assert file.read() == [Login("r.example", identity_token="two")]
    assert hidden[2:] == ["two"]
    path.write_bytes(b"[]")
    with pytest.raises(BadLogins, match=r"auth\.json wants JSON"):
        file.read()
    path.write_bytes(b" " * (MOST_BYTES + 1))
    with pytest.raises(BadLogins, match=r"has more than"):
        file.read()
