"""What is asked of an image and of an engine before a container is made of them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.settings import Settings
from sandbox.providers.container.engine_answers import BadAnswer
from sandbox.providers.container.image import (
    OWN,
    ContainerUser,
    Image,
    Unusable,
    accounts,
    check_engine,
    check_image,
    check_runtime,
    image_of,
    loaders,
    no_image,
    no_libc,
    user_of,
)

USER = ContainerUser(1000, 1000, 1000, 1000, given=True)
REMAPPED = {"SecurityOptions": ["name=seccomp,profile=default", "name=userns"], "DockerRootDir": "/var/lib/docker/1.2"}


def test_an_image_is_known_by_its_id_and_its_environment() -> None:
    env = ["PATH=/opt/bin:/bin", "EMPTY=", "EQUALS=a=b", "unset", "=odd"]
    found = image_of({"Id": "sha256:abc", "Config": {"Env": env}, "Architecture": "amd64"})
    assert found == Image("sha256:abc", {"PATH": "/opt/bin:/bin", "EMPTY": "", "EQUALS": "a=b"}, "amd64")
    assert image_of({"Id": "x", "Config": {"Env": None}}) == image_of({"Id": "x"}) == Image("x", {}, "")
    with pytest.raises(BadAnswer):
        image_of({"Id": "x", "Config": {"Env": "PATH=/bin"}})


@pytest.mark.parametrize("cpu", ["amd64", ""])
def test_an_image_of_this_cpu_can_run(cpu: str) -> None:
    check_image(Image("x", {}, cpu), "debian:12", "x86_64")


def test_of_several_digests_that_of_the_named_registry_counts() -> None:
    digests = [f"{name}@sha256:{'0a' * 32}" for name in ("other/debian", "debian", "r.example/team/debian")]
    said = {"Id": "x", "RepoDigests": [*digests, "<none>@<none>"]}
    assert image_of(said, "debian:12").digest == digests[1]
    assert image_of(said, "docker.io/library/debian").digest == digests[1]
    assert image_of(said, "r.example/team/debian:1").digest == digests[2]
    assert image_of(said, "python").digest == image_of(said, "no name").digest == image_of(said).digest == ""
    assert image_of({"Id": "x", "RepoDigests": None}, "debian").digest == ""


def test_who_lacks_the_default_image_hears_how_it_is_built() -> None:
    assert Settings().docker_image == OWN
    built = f"docker build -t {OWN} -f deploy/sandbox.Dockerfile deploy"
    assert built in no_image(OWN)
    assert no_image(f"{OWN}:latest") == no_image(OWN)
    assert no_image("debian:12") == "there is no image debian:12 on the container engine: pull or build it there first"


def test_an_image_of_another_cpu_is_refused_by_name() -> None:
    with pytest.raises(Unusable, match=r"the image debian:12 is for arm64, and this host is amd64"):
        check_image(Image("x", {}, "arm64"), "debian:12", "x86_64")


def test_an_engine_of_another_machine_is_refused() -> None:
    check_engine({"Architecture": "x86_64", "OSType": "linux"}, "x86_64")
    check_engine({"Architecture": "arm64"}, "aarch64")
    check_engine({}, "riscv64")
    with pytest.raises(Unusable, match=r"runs on aarch64, and the gateway on x86_64"):
        check_engine({"Architecture": "aarch64"}, "x86_64")
    with pytest.raises(Unusable, match="no Linux containers"):
        check_engine({"OSType": "windows"}, "x86_64")


OPEN = {"path": "runsc", "runtimeArgs": ["--platform=kvm", "--host-uds=open"]}


@pytest.mark.parametrize(
    ("asked", "info"),
    [
        (None, {}),
        ("runc", {}),
        (None, {"DefaultRuntime": "runc", "Runtimes": None}),
        ("runc", {"Runtimes": {"runc": 7}}),
        ("crun", {"Runtimes": {"crun": {"path": 7}}}),
        ("io.containerd.kata.v2", {}),
        ("io.containerd.runsc.v1", {}),
        ("runsc", {"Runtimes": {"runsc": OPEN}}),
        ("runsc-kvm", {"Runtimes": {"runsc-kvm": OPEN | {"runtimeArgs": ["--fsgofer-host-uds"]}}}),
    ],
)
def test_a_runtime_in_which_a_bridge_can_be_reached_is_fine(asked: str | None, info: dict[str, Any]) -> None:
    check_runtime(info, asked)


@pytest.mark.parametrize(
    ("asked", "info", "why"),
    [
        ("runsc", {}, "the container engine has no runtime runsc"),
        ("runsc", {"Runtimes": {"runsc": {"path": "runsc"}}}, 'a socket of the host, .*: add "--host-uds=open"'),
        ("runsc", {"Runtimes": {"runsc": OPEN | {"runtimeArgs": None}}}, "--host-uds=open"),
        ("own", {"Runtimes": {"own": OPEN}}, "the runtime own is gVisor: give it a name with runsc in it"),
        (None, {"DefaultRuntime": "runsc", "Runtimes": {"runsc": OPEN}}, "set HOLDFAST_DOCKER_RUNTIME=runsc"),
    ],
)
def test_a_gvisor_in_which_none_can_be_reached_is_refused(asked: str | None, info: dict[str, Any], why: str) -> None:
    with pytest.raises(Unusable, match=why):
        check_runtime(info, asked)


@pytest.mark.parametrize(
    ("info", "uid", "user"),
    [
        ({}, 0, USER),
        ({"SecurityOptions": None}, 10001, ContainerUser(10001, 10002, 10001, 10002, given=False)),
        (
            {"SecurityOptions": ["name=rootless"]},
            10001,
            ContainerUser(0, 0, 10001, 10002, given=False),
        ),
        (
            {**REMAPPED, "DockerRootDir": "/var/lib/docker/100000.200000"},
            0,
            ContainerUser(1000, 1000, 101000, 201000, given=True),
        ),
    ],
)
def test_whom_a_container_runs_as_is_never_root_outside(info: dict[str, Any], uid: int, user: ContainerUser) -> None:
    found = user_of(info, uid, uid + 1, in_container=False)
    assert found == user
    assert found.owner != 0
    assert found.said == f"{user.uid}:{user.gid}"


def test_users_that_cannot_work_are_refused_in_words() -> None:
    with pytest.raises(Unusable, match="rootless and the gateway is root"):
        user_of({"SecurityOptions": ["name=rootless"]}, 0, 0, in_container=False)
    with pytest.raises(Unusable, match="userns-remap"):
        user_of(REMAPPED, 10001, 10001, in_container=False)
    for root in ("/var/lib/docker", "", "/var/lib/docker/a.b", "/var/lib/docker/1."):
        with pytest.raises(BadAnswer, match="which users"):
            user_of({**REMAPPED, "DockerRootDir": root}, 0, 0, in_container=False)


@pytest.mark.parametrize("option", ["name=rootless", "name=userns"])
def test_a_gateway_in_a_container_counts_users_as_its_sandboxes_do(option: str) -> None:
    info = {"SecurityOptions": [option], "DockerRootDir": "/var/lib/docker/1.2"}
    assert user_of(info, 10001, 10002, in_container=True) == ContainerUser(10001, 10002, 10001, 10002, given=False)
    assert user_of(info, 0, 0, in_container=True) == USER


def test_the_user_has_a_name_and_a_home() -> None:
    assert accounts(b"", USER, "/home") == b"agent:x:1000:1000::/home:/bin/sh\n"
    theirs = b"root:x:0:0:root:/root:/bin/bash\nagent:x:7:7::/:/bin/sh\n"
    assert accounts(theirs, USER, "/home") == theirs + b"holdfast-agent:x:1000:1000::/home:/bin/sh\n"
    known = b"node:x:1000:1000::/home/node:/bin/bash\n"
    assert accounts(known, USER, "/home") == known


@given(st.binary())
def test_whatever_an_image_has_there_every_line_is_an_account(content: bytes) -> None:
    lines = accounts(content, USER, "/home").split(b"\n")
    assert lines.pop() == b""
    assert all(line.count(b":") == 6 for line in lines)
    assert any(line.split(b":")[2] == b"1000" for line in lines)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_each_libc_has_its_loader(machine: str) -> None:
    for libc in ("glibc", "musl"):
        assert all(machine.replace("_", "-") in path.replace("_", "-") for path in loaders(libc, machine))
        assert loaders(libc, machine)
    assert loaders("glibc", "riscv64") == ()


def test_an_image_without_a_libc_is_refused_with_what_to_use() -> None:
    told = "this agent cannot run in the image alpine:3, which has no glibc: use an image of Debian, Ubuntu or Fedora"
    assert no_libc("alpine:3", "glibc").startswith(told)
    assert "an image of Alpine" in no_libc("debian:13", "musl")
