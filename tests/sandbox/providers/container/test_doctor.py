"""`holdfast doctor` at real engines: what it says of each ill, and that nothing is left of what it tried."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.app import make_fleets
from gateway.cli.commands.doctor import _sandbox
from gateway.cli.commands.doctor_engine import check_engine
from gateway.cli.commands.doctor_store import Finding
from gateway.config.loading import load_settings
from sandbox.providers.container.installation import TRIALS
from tests.support.engine import DockerEngine, PodmanEngine, root_of, whats_missing
from tests.support.image_registry import ImageRegistry


@pytest.fixture
def place(tmp_path: Path, kits_directory: Path) -> Path:
    """A data directory that has its kit."""
    home = tmp_path / "data"
    home.mkdir(mode=0o700)
    (home / "kit").symlink_to(kits_directory)
    return home


async def told(engine: DockerEngine | PodmanEngine, place: Path, **settings: Any) -> dict[str, Finding]:
    there = {"SANDBOX": "docker", "DOCKER": f"unix://{engine.socket}", "DOCKER_IMAGE": engine.image, **settings}
    chosen = load_settings({f"HOLDFAST_{name}": str(value) for name, value in there.items()})
    warnings: list[str] = []
    (fleet,) = make_fleets(chosen, data_dir=place, warn=warnings.append)
    found = await asyncio.to_thread(check_engine, chosen, fleet, place, warnings)
    return {each.name: each for each in found}


async def test_an_engine_that_is_well_is_said_to_be(any_engine: DockerEngine | PodmanEngine, place: Path) -> None:
    found = await told(any_engine, place, LIMIT_MEMORY="256m")
    assert {name: each.state for name, each in found.items()} == dict.fromkeys(
        ("engine", "restarts", "runtime", "users", "image", "kit", "limits", "sandbox"), "ok"
    ), found
    named = "Docker Engine" if isinstance(any_engine, DockerEngine) else "Podman"
    assert found["engine"].told.startswith(named)
    assert any_engine.client("ps", "--all", "--quiet") == ""


async def test_what_is_tried_can_be_found_should_the_doctor_be_killed(docker_engine: DockerEngine, place: Path) -> None:
    settings = load_settings(
        {
            "HOLDFAST_SANDBOX": "docker",
            "HOLDFAST_DOCKER": f"unix://{docker_engine.socket}",
            "HOLDFAST_DOCKER_IMAGE": docker_engine.image,
            "HOLDFAST_DATA_DIR": str(place),
        }
    )
    began = int(time.time())
    found = await asyncio.to_thread(_sandbox, settings)
    assert {each.name: each.state for each in found}["sandbox"] == "ok", found
    asked = ["--since", str(began), "--until", str(int(time.time()) + 1), "--filter", "event=create"]
    told = docker_engine.client("events", *asked, "--filter", f"label=dev.holdfast.installation={TRIALS}")
    assert "dev.holdfast.session=doctor" in told


async def test_what_to_change_is_said_of_an_image_a_runtime_and_a_socket(
    any_engine: DockerEngine | PodmanEngine, place: Path
) -> None:
    any_engine.socket.chmod(0o666)
    try:
        found = await told(
            any_engine, place, DOCKER_IMAGE="nothing-here:1", DOCKER_PULL="never", DOCKER_RUNTIME="nothing"
        )
    finally:
        any_engine.socket.chmod(0o660)
    assert (found["engine"].state, found["engine"].told.startswith("everybody on this host may use")) == ("warn", True)
    assert (found["image"].state, "nothing-here:1" in found["image"].told) == ("fail", True)
    ours = await told(any_engine, place, DOCKER_IMAGE="holdfast-sandbox")
    assert (ours["image"].state, "build it" in ours["image"].told) == ("fail", True), "no registry has it"
    assert found["runtime"].state == "fail"
    assert "HOLDFAST_DOCKER_RUNTIME=nothing" in found["runtime"].told
    assert "sandbox" not in found, "there is nothing to try"


async def test_an_image_that_is_to_be_fetched_is_asked_for_at_its_registry(
    docker_engine: DockerEngine, image_registry: ImageRegistry, private_registry: ImageRegistry, place: Path
) -> None:
    there = f"{image_registry.address}/doctor/there:1"
    docker_engine.load(there, root_of({"file": b"something"}))
    docker_engine.client("push", there)
    docker_engine.client("rmi", there)
    found = await told(docker_engine, place, DOCKER_IMAGE=there)
    assert (found["image"].state, found["image"].advice) == ("warn", f"fetch it now: docker pull {there}")
    assert found["image"].told.endswith("its registry has it")
    assert "sandbox" not in found, "nothing is fetched to try it"
    for image, words in {
        f"{image_registry.address}/doctor/absent:1": "there is no image",
        f"{private_registry.address}/doctor/there:1": "wants a login",
    }.items():
        missing = (await told(docker_engine, place, DOCKER_IMAGE=image))["image"]
        assert (missing.state, words in missing.told) == ("fail", True), missing


async def test_podman_does_not_say_what_a_registry_has(
    podman_engine: PodmanEngine, image_registry: ImageRegistry, place: Path
) -> None:
    absent = f"{image_registry.address}/doctor/absent:1"
    found = (await told(podman_engine, place, DOCKER_IMAGE=absent))["image"]
    assert (found.state, found.advice) == ("warn", f"fetch it now: podman pull {absent}")


async def test_an_image_that_cannot_run_is_found_by_trying(docker_engine: DockerEngine, place: Path) -> None:
    """One whose /holdfast-kit is a file: nothing can be mounted there."""
    docker_engine.load("hf/in-the-way:1", root_of({"holdfast-kit": b"a file"}))
    found = await told(docker_engine, place, DOCKER_IMAGE="hf/in-the-way:1")
    assert found["image"].state == "ok"
    assert found["sandbox"].state == "fail"
    assert docker_engine.client("ps", "--all", "--quiet") == ""


async def test_docker_without_live_restore_is_warned_of(place: Path) -> None:
    if reason := whats_missing(*DockerEngine.programs):
        pytest.skip(reason)
    with DockerEngine(live_restore=False) as engine:
        found = await told(engine, place, DOCKER_IMAGE="nothing-here:1", DOCKER_PULL="never")
        assert (found["restarts"].state, '"live-restore": true' in found["restarts"].advice) == ("warn", True)


async def test_a_silent_engine_is_not_waited_for_long(
    docker_engine: DockerEngine, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cli.commands.doctor_engine.ASK_SECONDS", 0.5)
    docker_engine.pause()
    try:
        found = await told(docker_engine, place)
    finally:
        docker_engine.resume()
    assert set(found) == {"engine"}
    assert "no answer in time" in found["engine"].told
