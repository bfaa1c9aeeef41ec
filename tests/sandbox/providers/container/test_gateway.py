"""A whole gateway whose sessions run in containers."""

import asyncio
import base64
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app import make_fleets
from gateway.cli.commands.doctor import examine
from gateway.cli.commands.doctor_store import Finding
from gateway.config.loading import load_settings
from gateway.config.settings import SettingsError
from gateway.session.providers import SILENT
from sandbox.providers.local.layout import SandboxHome
from tests.gateway.http.sessions.test_lifecycle import comes_to
from tests.sandbox.containers import UID
from tests.sandbox.providers.container.test_registry import logged_in, name_in, pushed
from tests.support.chat import hear, say
from tests.support.engine import DockerEngine, busybox
from tests.support.gateway import Gateway
from tests.support.image_registry import PASSWORD, USER, ImageRegistry
from tests.support.waiting import files_with, until


async def test_a_session_in_a_container_survives_its_gateway_and_its_engine_and_comes_back_from_sleep(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    there = {"SANDBOX": "docker", "DOCKER": f"unix://{docker_engine.socket}", "DOCKER_IMAGE": docker_engine.image}
    async with Gateway(tmp_path / "data", **there) as gateway, gateway.http() as ada:
        created = await gateway.create("s1")
        assert created["provider"] == "docker"
        async with gateway.chat("s1") as socket:
            await say(socket, "message", content="hello")
            await hear(socket, "done")
        file = SandboxHome(gateway.data_dir, "s1").workspace / "file"
        file.write_text("kept")
        os.chown(file, UID, UID)
        note = SandboxHome(gateway.data_dir, "s1").note
        before = note.read_bytes()

        await gateway.restart(kill=True)
        docker_engine.kill()
        try:
            async with gateway.chat("s1") as socket:
                await say(socket, "message", content="is anybody there")
        finally:
            docker_engine.start()
        async with gateway.chat("s1") as socket:
            await say(socket, "message", content="again")
            await hear(socket, "done")
        assert note.read_bytes() == before, "the same container all the time"

        assert (await ada.post("/api/sandboxes/s1/sleep")).status_code == 200
        await comes_to(ada, "s1", "sleeping")
        assert docker_engine.client("ps", "--quiet") == ""
        assert (await ada.get("/files/s1/file")).text == "kept"
        async with gateway.chat("s1") as socket:
            await say(socket, "message", content="awake")
            await hear(socket, "done")
        assert (await ada.get("/files/s1/file")).text == "kept"
        assert note.read_bytes() != before
        assert (await ada.delete("/api/sandboxes/s1?purge=1")).status_code == 200
        assert docker_engine.client("ps", "--all", "--quiet") == ""


async def test_people_are_told_of_an_engine_that_is_silent_or_away(docker_engine: DockerEngine, tmp_path: Path) -> None:
    there = {"DOCKER": f"unix://{docker_engine.socket}", "DOCKER_IMAGE": docker_engine.image}
    there |= {"PROVIDERS": "local,docker", "IMAGES": "debian:*-slim"}
    async with Gateway(tmp_path / "data", **there) as gateway, gateway.http() as ada:

        async def told(words: str | None) -> dict[str, Any]:
            """What is said of the engine once it is that."""

            async def look() -> dict[str, Any]:
                local, docker = (await ada.get("/api/providers")).json()["providers"]
                assert (local["name"], local["healthy"], docker["name"]) == ("local", True, "docker")
                assert docker["problem"] is None if words is None else words in (docker["problem"] or ""), docker
                return dict(docker)

            return await until(look, f"the engine is said to be {words}")

        up = await told(None)
        assert (up["healthy"], up["level"], up["image"]) == (True, "container", docker_engine.image)
        assert (up["networks"], up["images"]) == (["none", "outbound"], ["debian:*-slim"])
        docker_engine.pause()
        try:
            assert not (await told(SILENT))["healthy"]
        finally:
            docker_engine.resume()
        await told(None)
        docker_engine.kill()
        try:
            await told("the container engine at unix://")
            async with gateway.http(gateway.admin) as admin:
                assert 'holdfast_provider_up{provider="docker"} 0.0' in (await admin.get("/metrics")).text
                (_, away) = (await admin.get("/api/providers")).json()["providers"]
                assert (away["running"], away["capacity"]) == (0, {"cpus": None, "memory": None})
                assert away["images"] == ["**"], "a service names any"
        finally:
            docker_engine.start()
        await told(None)
        async with gateway.http(gateway.admin) as admin:
            (_, back) = (await admin.get("/api/providers")).json()["providers"]
            assert back["capacity"]["cpus"] == os.cpu_count()


async def test_a_session_has_the_provider_image_and_limits_that_it_names_and_its_branch_has_them_too(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    docker_engine.load("holdfast-test/chosen:1", busybox(**{"etc/which": "chosen"}))
    images = {"DOCKER_IMAGE": docker_engine.image, "IMAGES": "holdfast-test/chosen"}
    limits = {"LIMIT_MEMORY": "512m", "LIMIT_PIDS": 200}
    there = {"PROVIDERS": "local,docker", "DOCKER": f"unix://{docker_engine.socket}", **images, **limits}
    async with Gateway(tmp_path / "data", **there) as gateway, gateway.http() as ada:
        local = await ada.post("/api/sandboxes/s", json={"image": "holdfast-test/chosen:1"})
        assert local.status_code == 400
        assert "local sandboxes have this host's programs and no image: use provider docker" in local.json()["error"]
        other = await ada.post("/api/sandboxes/s", json={"provider": "docker", "image": "debian"})
        assert (other.status_code, other.json()["code"]) == (403, "image_not_allowed")

        asked = {"provider": "docker", "image": "holdfast-test/chosen:1", "limits": {"memory": "256MiB"}}
        assert (await ada.post("/api/sandboxes/s1", json=asked)).status_code == 201
        shown = await comes_to(ada, "s1", "running")
        await until(lambda: _digest(ada, "s1"))
        assert (shown["provider"], shown["image"]) == ("docker", "holdfast-test/chosen:1")
        assert shown["limits"] == {"memory": 256 << 20, "cpus": 2.0, "pids": 200}
        digest = await _digest(ada, "s1")
        assert (
            digest == docker_engine.client("image", "inspect", "--format", "{{.Id}}", "holdfast-test/chosen:1").strip()
        )

        docker_engine.load("holdfast-test/chosen:1", busybox(**{"etc/which": "another"}))
        assert (await ada.post("/api/sandboxes/s1/sync")).status_code == 200
        branch = (await ada.post("/api/sandboxes/s1/snapshots/newest/branch")).json()["id"]
        assert (await ada.post(f"/api/sandboxes/{branch}/wake")).status_code == 200
        status = await comes_to(ada, branch, "running")
        assert (status["provider"], status["image"], status["imageDigest"]) == ("docker", asked["image"], digest)
        assert status["limits"]["memory"] == 256 << 20
        assert docker_engine.client("ps", "--format", "{{.Image}}").split() == [digest.removeprefix("sha256:")[:12]] * 2
        for name in ("s1", branch):
            assert (await ada.delete(f"/api/sandboxes/{name}?purge=1")).status_code == 200


async def test_an_image_is_fetched_by_the_login_of_a_file_that_nobody_ever_sees(
    docker_engine: DockerEngine, private_registry: ImageRegistry, tmp_path: Path
) -> None:
    config = tmp_path / "docker"
    config.mkdir()
    file = logged_in(docker_engine, private_registry, config)
    image, absent = name_in(private_registry), name_in(private_registry)
    pushed(docker_engine, image, login=config)
    there = {"SANDBOX": "docker", "DOCKER": f"unix://{docker_engine.socket}", "DOCKER_IMAGE": image}
    logins = {"DOCKER_AUTH_FILE": file, "IMAGES": f"{private_registry.address}/**"}
    async with Gateway(tmp_path / "data", **there, **logins) as gateway, gateway.http() as ada:
        assert "there is no image" in gateway.log, "a warning, and no more"
        assert (await ada.post("/api/sandboxes/absent", json={"image": absent})).status_code == 201
        shown = await comes_to(ada, "absent", "error")
        assert shown["reason"] == f"there is no image {absent} in its registry: check its name, tag and digest"
        assert (await ada.post("/api/sandboxes/s1")).status_code == 201
        async with gateway.chat("s1") as socket:
            await say(socket, "message", content="hello")
            await hear(socket, "done")
        shown = (await ada.get("/api/sandboxes/s1")).json()
        assert (shown["image"], shown["pull"]) == (image, None)
        assert shown["imageDigest"].startswith(f"{image.removesuffix(':1')}@sha256:")
        async with gateway.http(gateway.admin) as admin:
            figures = (await admin.get("/metrics")).text
        assert 'holdfast_image_pulls_total{provider="docker",result="ok"} 1.0' in figures
        assert 'holdfast_image_pulls_total{provider="docker",result="not_found"} 1.0' in figures
        assert 'holdfast_image_pull_seconds_count{provider="docker"} 2.0' in figures
        for session_id in ("s1", "absent"):
            assert (await ada.delete(f"/api/sandboxes/{session_id}?purge=1")).status_code == 200
        for words in ('"event":"image.pulled"', '"event":"image.not_pulled"', f'"image":"{image}"'):
            assert words in gateway.log
        for secret in (PASSWORD, base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()):
            assert secret not in gateway.log
            assert files_with(secret.encode(), tmp_path / "data") == []


def test_logins_that_cannot_be_used_keep_a_gateway_from_starting(tmp_path: Path) -> None:
    given = {"SANDBOX": "docker", "DOCKER_IMAGE": "x", "DATA_DIR": str(tmp_path)}
    given["DOCKER_AUTH_FILE"] = str(tmp_path / "no")
    with pytest.raises(SettingsError, match=r"HOLDFAST_DOCKER_AUTH_FILE: .*/no cannot be read: No such file"):
        make_fleets(load_settings({f"HOLDFAST_{name}": value for name, value in given.items()}))


async def _digest(client: httpx.AsyncClient, session_id: str) -> str | None:
    found: str | None = (await client.get(f"/api/sandboxes/{session_id}")).json()["imageDigest"]
    return found


async def test_a_container_that_ends_is_removed_and_its_session_is_back(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    """In the directory of a gateway that kept the installation's id there: it is the store's from now on."""
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "installation").write_text("0123456789abcdef")
    there = {"SANDBOX": "docker", "DOCKER": f"unix://{docker_engine.socket}", "DOCKER_IMAGE": docker_engine.image}
    async with (
        Gateway(tmp_path / "data", **there) as gateway,
        gateway.http() as ada,
        gateway.http(gateway.admin) as boss,
    ):
        await gateway.create("s1")
        await comes_to(ada, "s1", "running")
        await until(lambda: _containers(docker_engine), "a container")
        (before,) = _containers(docker_engine)
        named = docker_engine.client("inspect", "--format", "{{.Name}}", before)
        assert named.startswith("/holdfast-0123456789abcdef-")
        with closing(sqlite3.connect(gateway.data_dir / "holdfast.db")) as store:
            assert store.execute("SELECT id FROM installation").fetchall() == [("0123456789abcdef",)]
        docker_engine.client("kill", before)
        await until(lambda: _containers(docker_engine) not in ([], [before]), "another container")
        async with gateway.chat("s1") as socket:
            await say(socket, "message", content="awake")
            await hear(socket, "done")

        (now,) = _containers(docker_engine)
        SandboxHome(gateway.data_dir, "s1").note.unlink()  # nobody can reach it any more
        (found,) = (await boss.get("/internal/orphans")).json()["orphans"]
        assert (found["name"], found["sessionId"]) == (now, "s1")
        assert (await boss.delete("/internal/orphans")).json() == {"orphans": [found]}
        async with gateway.chat("s1") as socket:
            await say(socket, "message", content="again")
            await hear(socket, "done")
        assert (await ada.delete("/api/sandboxes/s1?purge=1")).status_code == 200
        assert _containers(docker_engine) == []


def _containers(engine: DockerEngine) -> list[str]:
    return engine.client("ps", "--all", "--quiet", "--no-trunc").split()


async def test_the_doctor_tries_the_engine(docker_engine: DockerEngine, tmp_path: Path) -> None:
    async def told(address: str) -> dict[str, Finding]:
        given = {"SANDBOX": "docker", "DOCKER": address, "DOCKER_IMAGE": docker_engine.image, "DATA_DIR": str(tmp_path)}
        settings = load_settings({f"HOLDFAST_{name}": value for name, value in given.items()})
        return {finding.name: finding for finding in await asyncio.to_thread(examine, settings)}

    found = await told(f"unix://{docker_engine.socket}")
    assert found["sandbox"].state == "ok", found
    assert found["sandbox"].told.startswith("docker, container: a container was started in ")
    assert docker_engine.client("ps", "--all", "--quiet") == ""
    assert list(tmp_path.iterdir()) == [], "what was tried is gone"
    found = await told(f"unix://{tmp_path}/nobody.sock")
    assert (found["engine"].state, "sandbox" in found) == ("fail", False)
    assert "nobody.sock does not answer: No such file" in found["engine"].told


def test_nobody_pays_for_containers_who_has_none() -> None:
    looks = "import sys, gateway.app; print([name for name in sys.modules if name.startswith('sandbox.providers.con')])"
    done = subprocess.run([sys.executable, "-c", looks], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
