"""What is made of an engine's answers: each ill is named, with what to change; no answer is an error."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.commands.engine_findings import (
    is_podman,
    of_engine,
    of_limits,
    of_registry,
    of_restarts,
    of_runtime,
    of_users,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
DOCKER = {"Version": "20.10.24", "ApiVersion": "1.41", "MinAPIVersion": "1.12", "Components": [{"Name": "Engine"}]}
PODMAN = {"Version": "4.3.1", "ApiVersion": "1.41", "Components": [{"Name": "Podman Engine"}]}
INFO: dict[str, Any] = {
    "OSType": "linux", "Architecture": "x86_64", "CgroupVersion": "2", "LiveRestoreEnabled": True,
    "MemoryLimit": True, "SwapLimit": True, "CpuCfsQuota": True, "PidsLimit": True,
    "Runtimes": {"runc": {"path": "runc"}}, "DefaultRuntime": "runc",
    "SecurityOptions": ["name=seccomp,profile=default"],
}  # fmt: skip


def test_an_engine_is_named_with_what_it_speaks() -> None:
    docker = of_engine("unix:///e.sock", DOCKER, INFO, "x86_64")
    assert (docker.state, docker.told) == (
        "ok", "Docker Engine 20.10.24 at unix:///e.sock, API 1.41, linux/x86_64, control groups v2"
    )  # fmt: skip
    podman = of_engine("unix:///e.sock", PODMAN, {}, "x86_64")
    assert podman.told == "Podman 4.3.1 at unix:///e.sock, API 1.41, linux/x86_64"


@pytest.mark.parametrize(
    ("version", "info", "words"),
    [
        (DOCKER | {"ApiVersion": "1.24"}, {}, "use Docker Engine 20.10 or newer, or Podman 4 or newer"),
        (DOCKER, {"Architecture": "aarch64"}, "the container engine runs on aarch64, and the gateway on x86_64"),
        (DOCKER, {"OSType": "windows"}, "runs no Linux containers"),
    ],
)
def test_an_engine_that_cannot_be_used_says_why(version: dict[str, Any], info: dict[str, Any], words: str) -> None:
    found = of_engine("unix:///e.sock", version, INFO | info, "x86_64")
    assert (found.state, found.advice) == ("fail", "set HOLDFAST_DOCKER to an engine of this host")
    assert words in found.told


def test_docker_without_live_restore_ends_what_runs() -> None:
    assert of_restarts(DOCKER, INFO).state == "ok"
    off = of_restarts(DOCKER, INFO | {"LiveRestoreEnabled": False})
    assert (off.state, '"live-restore": true' in off.advice) == ("warn", True)
    assert of_restarts(PODMAN, {"LiveRestoreEnabled": False}).state == "ok"


def test_limits_that_are_ignored_are_named_by_their_settings() -> None:
    assert of_limits(INFO, []).state == "ok"
    found = of_limits(INFO | {"MemoryLimit": False, "SwapLimit": False, "PidsLimit": False}, [])
    assert (found.state, found.told) == (
        "warn", "the engine does not hold containers to HOLDFAST_LIMIT_MEMORY, HOLDFAST_LIMIT_PIDS"
    )  # fmt: skip
    said = of_limits({}, ["Resource limits are not supported and ignored on cgroups V1 rootless systems"])
    assert (said.state, "ignored" in said.told, "cgroup_enable=memory" in said.advice) == ("warn", True, True)


@pytest.mark.parametrize(
    ("asked", "info", "state", "words"),
    [
        ("", {}, "ok", "runc, the engine's own"),
        ("runc", {}, "ok", "runc"),
        ("io.containerd.kata.v2", {}, "ok", "io.containerd.kata.v2"),
        ("runsc", {}, "fail", "HOLDFAST_DOCKER_RUNTIME=runsc: the engine knows runc"),
        ("runsc", {"Runtimes": None}, "fail", "the engine knows none"),
        (
            "runsc",
            {"Runtimes": {"runsc": {"path": "runsc"}}},
            "fail",
            "lets no sandbox connect to a socket of the host",
        ),
        ("runsc", {"Runtimes": {"runsc": {"runtimeArgs": ["--host-uds=open"]}}}, "ok", "runsc"),
        ("own", {"Runtimes": {"own": {"path": "/usr/bin/runsc"}}}, "fail", "the runtime own is gVisor"),
        (
            "",
            {"DefaultRuntime": "runsc-kvm", "Runtimes": {"runsc-kvm": 1}},
            "fail",
            "set HOLDFAST_DOCKER_RUNTIME=runsc-kvm",
        ),
    ],
)
def test_a_runtime_is_there_and_lets_a_bridge_be_reached(
    asked: str, info: dict[str, Any], state: str, words: str
) -> None:
    found = of_runtime(asked, DOCKER, INFO | info)
    assert (found.state, bool(found.advice)) == (state, state == "fail")
    assert words in found.told


def test_podman_runs_what_its_own_settings_say() -> None:
    assert of_runtime("", PODMAN, INFO).state == of_runtime("runc", PODMAN, INFO).state == "ok"
    found = of_runtime("runsc", PODMAN, INFO | {"Runtimes": {"runsc": {}}})
    assert (found.state, 'runtime = "runsc"' in found.advice) == ("fail", True)
    assert "containers run in runc" in found.told


@pytest.mark.parametrize(
    ("version", "uid", "options", "state", "words", "advice"),
    [
        (DOCKER, 0, ["name=seccomp"], "ok", "uid 1000 inside is 1000 outside, too", "userns-remap"),
        (PODMAN, 0, ["name=seccomp"], "ok", "uid 1000 inside is 1000 outside, too", ""),
        (DOCKER, 500, ["name=seccomp"], "ok", "uid 500 inside is 500 outside, too", ""),
        (DOCKER, 500, ["name=seccomp", "name=rootless"], "ok", "uid 0 inside is uid 500 outside", ""),
        (DOCKER, 0, ["name=seccomp", "name=userns"], "ok", "uid 1000 inside is uid 101000 outside", ""),
        (DOCKER, 0, ["name=seccomp", "name=rootless"], "fail", "the gateway is root", "HOLDFAST_DOCKER"),
        (DOCKER, 500, ["name=userns"], "fail", "the gateway must be root", "HOLDFAST_DOCKER"),
        (DOCKER, 500, [7], "fail", "not a list of strings", "HOLDFAST_DOCKER"),
        (DOCKER, 500, [], "warn", "filters no system calls", "seccomp"),
    ],
)
def test_whom_containers_run_as(
    version: dict[str, Any], uid: int, options: list[Any], state: str, words: str, advice: str
) -> None:
    root = {"DockerRootDir": "/var/lib/docker/100000.100000"}
    found = of_users(version, INFO | root | {"SecurityOptions": options}, uid, uid)
    assert (found.state, bool(found.advice)) == (state, bool(advice))
    assert words in found.told
    assert advice in found.advice


@pytest.mark.parametrize(
    ("said", "state", "words"),
    [
        ({"Platforms": [{"architecture": "arm64"}, {"architecture": "amd64"}]}, "warn", "wait; its registry has it"),
        ({"Platforms": [{"architecture": "arm64"}, 7]}, "fail", "has debian:13 for arm64, and this host is amd64"),
        ({}, "warn", "its registry has it"),
    ],
)
def test_an_image_that_is_in_its_registry_can_be_had_if_it_is_for_this_cpu(
    said: dict[str, Any], state: str, words: str
) -> None:
    found = of_registry("debian:13", "wait", "fetch it", said, "x86_64")
    assert found.state == state
    assert words in found.told


@given(st.dictionaries(st.sampled_from(["Components", "Version", "ApiVersion"]), JSON))
def test_any_version_can_be_read(version: dict[str, Any]) -> None:
    assert is_podman(version) in (True, False)
    assert of_engine("e", version, INFO, "x86_64").state in ("ok", "fail")


@given(st.dictionaries(st.sampled_from(sorted(INFO)), JSON), st.sampled_from(["", "runsc"]))
def test_any_answer_can_be_read(info: dict[str, Any], asked: str) -> None:
    found = [of_restarts(DOCKER, info), of_limits(info, []), of_runtime(asked, DOCKER, info)]
    found += [of_users(DOCKER, info, 0, 0)]
    assert all(each.state in ("ok", "warn", "fail") and each.told for each in found)
