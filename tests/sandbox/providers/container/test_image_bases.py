"""What `make images` builds on, as far as that costs seconds."""

import subprocess
from pathlib import Path

import pytest

from tests.support.engine import DockerEngine
from tests.support.image_bases import TRUSTED, NoBase, mirror, of_this_machine, proxies, trusting
from tests.support.images import ImageBuilder, engine


@pytest.fixture
def apt_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for the machine's own."""
    program = tmp_path / "apt-get"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return program


def say(program: Path, *lines: str) -> None:
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    program.chmod(0o755)


def test_the_mirror_is_the_one_that_apt_has(apt_get: Path) -> None:
    debian = "Debian main http://mirror.example/debian/"
    say(apt_get, "Others main http://others.example/", "Debian main http://mirror.example/debian-security/", "", debian)
    assert mirror() == "http://mirror.example/debian/"


def test_a_machine_that_has_no_mirror_of_debian_hears_so(apt_get: Path) -> None:
    say(apt_get, "Others main http://others.example/")
    with pytest.raises(NoBase, match="no mirror of Debian: run apt-get update"):
        mirror()


def test_a_proxy_is_named_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://ann:secret@proxy.example:3128")
    monkeypatch.setenv("no_proxy", "")
    assert proxies() == ["--build-arg", "HTTPS_PROXY"]
    assert of_this_machine() == [TRUSTED, "http://ann:secret@proxy.example:3128"]


def test_an_engine_that_is_named_and_does_not_answer_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_DOCKER", f"unix://{tmp_path}/nobody.sock")
    with pytest.raises(NoBase, match=r"HOLDFAST_DOCKER: .*nobody\.sock"), engine():
        pass


def test_what_the_build_trusts_is_in_the_image_that_it_runs_in_and_in_no_other(
    docker_engine: DockerEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authorities"))
    docker = ImageBuilder(docker_engine.socket).docker
    assert trusting(docker, docker_engine.image) == docker_engine.image, "there are none"
    (tmp_path / "authorities").write_text("of this machine")
    built = trusting(docker, docker_engine.image)
    shows = ("run", "--rm", "--network", "none")
    assert docker(*shows, built, "sh", "-c", 'cat "$PIP_CERT"') == "of this machine"
    with pytest.raises(subprocess.CalledProcessError):
        docker(*shows, docker_engine.image, "cat", TRUSTED)
