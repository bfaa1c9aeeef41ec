"""Images that real engines fetch from real registries when a session starts."""

import asyncio
import contextlib
import hashlib
import json
import socket
import uuid
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from sandbox.ports.progress import ImageChosen, ImagePull, ImagePulled, StartProgress
from sandbox.ports.sandbox import Command, SandboxFailed, SandboxUnavailable
from sandbox.providers.container.kits import Kits
from sandbox.providers.container.logins import LoginFile
from sandbox.providers.container.pulls import PullEnd
from tests.contract.sandbox import spec
from tests.sandbox import containers
from tests.sandbox.containers import AnyEngine, _Fleet
from tests.support.engine import DockerEngine, busybox, root_of
from tests.support.image_registry import PASSWORD, USER, ImageRegistry
from tests.support.waiting import files_with, until


def pushed(docker: DockerEngine, image: str, *, login: Path | None = None) -> str:
    """An image of its own by that name, in its registry and on no engine. What is in it, in /etc/which."""
    which = uuid.uuid4().hex
    docker.load(image, busybox(**{"etc/which": which}))
    push(docker, image, login)
    return which


def push(docker: DockerEngine, image: str, login: Path | None = None) -> None:
    docker.client(*([] if login is None else ["--config", str(login)]), "push", image)
    docker.client("rmi", "--force", docker.client("images", "--quiet", image).strip())


def of_another_cpu(image: str) -> bytes:
    """What `docker load` takes."""
    layer = root_of({"etc/which": uuid.uuid4().bytes})
    roots = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}
    config = {"architecture": "s390x", "os": "linux", "config": {}, "rootfs": roots}
    manifest = [{"Config": "config.json", "RepoTags": [image], "Layers": ["layer.tar"]}]
    documents = {"config.json": config, "manifest.json": manifest}
    return root_of({"layer.tar": layer} | {name: json.dumps(each).encode() for name, each in documents.items()})


def name_in(registry: ImageRegistry) -> str:
    return f"{registry.address}/team/{uuid.uuid4().hex}:1"


def logged_in(docker: DockerEngine, registry: ImageRegistry, directory: Path) -> Path:
    """What `docker login` writes."""
    words = ("login", "--username", USER, "--password-stdin", registry.address)
    docker.client("--config", str(directory), *words, stdin=PASSWORD.encode())
    return directory / "config.json"


def opened(
    engine: AnyEngine, data_dir: Path, kits: Kits, *, may_pull: bool = True, **settings: Any
) -> AbstractAsyncContextManager[_Fleet]:
    return containers.opened(engine, data_dir, kits, may_pull=may_pull, **settings)


async def which(fleet: _Fleet, session_id: str = "s1") -> str:
    done = await fleet.sandbox(session_id).exec(Command(("cat", "/etc/which"), timeout_seconds=60))
    return done.stdout.strip()


async def test_an_image_that_is_not_there_is_fetched_and_a_session_keeps_to_its_digest(
    any_engine: AnyEngine, docker_engine: DockerEngine, image_registry: ImageRegistry, tmp_path: Path, kits: Kits
) -> None:
    image, heard, ends = name_in(image_registry), list[StartProgress](), list[PullEnd]()
    first = pushed(docker_engine, image)
    async with opened(any_engine, tmp_path, kits, on_pull=ends.append) as fleet:
        await fleet.start(spec(image=image), heard.append)
        assert await which(fleet) == first
        *pulls, pulled, chosen = heard
        assert isinstance(chosen, ImageChosen)
        assert pulled == ImagePulled(image)
        assert pulls[0] == ImagePull(image)
        last = pulls[-1]
        assert isinstance(last, ImagePull)
        assert last.of_layers == last.layers > 0
        repository = image.removesuffix(":1")
        assert chosen.digest.startswith(f"{repository}@sha256:")
        assert [(end.image, end.result) for end in ends] == [(image, "ok")]

        second = pushed(docker_engine, image)
        await fleet.sandbox("s1").stop()
        any_engine.client("rmi", "--force", chosen.id)
        kept = {"image": image, "image_id": chosen.id, "image_digest": chosen.digest}
        await fleet.start(spec(incarnation=2, **kept), heard.append)
        assert await which(fleet) == first, "the tag means another image now"
        assert heard[-1] == chosen
        assert ends[-1].image == chosen.digest
        await fleet.start(spec("s2", image=image), heard.append)
        assert await which(fleet, "s2") == second

        by_digest = f"{repository}@{chosen.digest.partition('@')[2]}"
        await fleet.start(spec("s3", image=by_digest), heard.append)
        assert await which(fleet, "s3") == first
        assert len(ends) == 3, "it was there"


async def test_many_sessions_wait_for_one_pull(
    any_engine: AnyEngine, docker_engine: DockerEngine, image_registry: ImageRegistry, tmp_path: Path, kits: Kits
) -> None:
    image, ends = name_in(image_registry), list[PullEnd]()
    content = pushed(docker_engine, image)
    async with opened(any_engine, tmp_path, kits, image=image, on_pull=ends.append) as fleet:
        names = [f"s{number}" for number in range(6)]
        await asyncio.gather(*(fleet.start(spec(name)) for name in names))
        assert await asyncio.gather(*(which(fleet, name) for name in names)) == [content] * 6
        assert [end.result for end in ends] == ["ok"]


async def test_a_registry_that_wants_a_login_gets_the_one_of_the_file_and_nobody_else_sees_it(
    any_engine: AnyEngine,
    docker_engine: DockerEngine,
    private_registry: ImageRegistry,
    tmp_path: Path,
    kits: Kits,
) -> None:
    config = tmp_path / "docker"
    config.mkdir()
    file = logged_in(docker_engine, private_registry, config)
    image = name_in(private_registry)
    content = pushed(docker_engine, image, login=config)
    ends, hidden = list[PullEnd](), list[str]()
    async with opened(any_engine, tmp_path / "none", kits, on_pull=ends.append) as fleet:
        with pytest.raises(SandboxFailed, match=r"wants a login, or has no such image: HOLDFAST_DOCKER_AUTH_FILE"):
            await fleet.start(spec(image=image))
    logins = LoginFile(file, hidden.append)
    async with opened(any_engine, tmp_path / "data", kits, logins=logins, on_pull=ends.append) as fleet:
        given = file.read_text()
        wrong = {"auths": {private_registry.address: {"username": USER, "password": "another password"}}}
        file.write_text(json.dumps(wrong))
        with pytest.raises(SandboxFailed, match=r"refused the login of HOLDFAST_DOCKER_AUTH_FILE"):
            await fleet.start(spec(image=image))
        file.chmod(0o644)
        with pytest.raises(SandboxFailed, match=r"HOLDFAST_DOCKER_AUTH_FILE: .*chmod 600"):
            await fleet.start(spec(image=image))
        file.chmod(0o600)
        file.write_text(given)
        await fleet.start(spec(image=image))
        assert await which(fleet) == content
        assert [end.result for end in ends] == ["unauthorized", "unauthorized", "failed", "ok"]
        assert PASSWORD in hidden
        for secret in hidden:
            assert secret not in str(ends)
            assert files_with(secret.encode(), any_engine.directory) == []
            assert files_with(secret.encode(), tmp_path / "data") == []


async def test_why_an_image_cannot_be_had_is_told_in_words(
    any_engine: AnyEngine, docker_engine: DockerEngine, image_registry: ImageRegistry, tmp_path: Path, kits: Kits
) -> None:
    strange = name_in(image_registry)
    docker_engine.client("load", stdin=of_another_cpu(strange))
    push(docker_engine, strange)
    absent = f"{image_registry.address}/team/absent"
    async with opened(any_engine, tmp_path, kits) as fleet:

        async def told(image: str) -> str:
            with pytest.raises(SandboxFailed) as failed:
                await fleet.start(spec(image=image))
            return str(failed.value)

        for name in (f"{absent}:1", f"{absent}@sha256:{'0a' * 32}"):
            assert await told(name) == f"there is no image {name} in its registry: check its name, tag and digest"
        assert "the container engine cannot reach its registry" in await told("127.0.0.1:1/x/y:1")
        assert "is for s390x, and this host is" in await told(strange)
    async with opened(any_engine, tmp_path / "never", kits, may_pull=False) as fleet:
        assert await told(f"{absent}:1") == (
            f"there is no image {absent}:1 on the container engine: pull or build it there first"
        )


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A registry that takes every request and answers none."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


def image_of(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}/x/y:1"


def asks(listener: socket.socket) -> socket.socket | None:
    with contextlib.suppress(BlockingIOError):
        return listener.accept()[0]
    return None


async def test_a_registry_that_is_silent_is_given_up(
    any_engine: AnyEngine, silent: socket.socket, tmp_path: Path, kits: Kits
) -> None:
    async with opened(any_engine, tmp_path, kits, pull_timeout=0.5) as fleet:
        with pytest.raises(SandboxFailed, match=r"no progress for 0\.5 s \(HOLDFAST_DOCKER_PULL_TIMEOUT\)"):
            await fleet.start(spec(image=image_of(silent)))


async def test_an_engine_that_dies_in_the_middle_of_a_pull_is_unavailable(
    docker_engine: DockerEngine, silent: socket.socket, tmp_path: Path, kits: Kits
) -> None:
    ends: list[PullEnd] = []
    async with opened(docker_engine, tmp_path, kits, on_pull=ends.append) as fleet:
        starting = asyncio.create_task(fleet.start(spec(image=image_of(silent))))
        asking = await until(lambda: asks(silent), "the engine asks")
        docker_engine.kill()
        try:
            with pytest.raises(SandboxUnavailable, match="does not answer"):
                await starting
        finally:
            docker_engine.start()
            asking.close()
        assert [end.result for end in ends] == ["failed"]
