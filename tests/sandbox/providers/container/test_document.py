"""The document that the engine gets: all of the boundary, and no secret."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sandbox.ports.resources import NO_LIMITS, ResourceLimits
from sandbox.providers.container.document import (
    Bind,
    ContainerLimits,
    ContainerPlan,
    container,
    container_name,
    home_of,
    inner_paths,
    label,
    labels,
)

PLAN = ContainerPlan(
    session_id="s1",
    labels=labels("house", "home", "s1"),
    incarnation=7,
    image="sha256:abc",
    image_env={"PATH": "/opt/bin", "LD_DEBUG": "all", "GLIBC_TUNABLES": "x", "SECRET": "of the image"},
    kit="kit-1",
    start_line=("/kit/ld.so", "/kit/python"),
    user="1000:1000",
    binds=[Bind("/data/kept", "/session", writable=True), Bind("/data/kit", "/kit")],
    door_seconds=30.0,
)


def test_what_a_session_asks_for_takes_the_place_of_what_every_container_gets() -> None:
    standard = ContainerLimits()
    assert standard.with_those_of(NO_LIMITS) == standard
    asked = standard.with_those_of(ResourceLimits(memory=1 << 30, cpus=0.5, pids=70))
    assert (asked.memory_bytes, asked.cpus, asked.processes, asked.tmp) == (1 << 30, 0.5, 70, 256 << 20)
    assert asked.open_files == standard.open_files
    assert asked.of_the_whole == ResourceLimits(memory=1 << 30, cpus=0.5, pids=70)


def test_a_container_can_do_nothing_that_it_need_not() -> None:
    made = container(PLAN)
    host = made["HostConfig"]
    assert (made["User"], made["NetworkDisabled"], made["OpenStdin"]) == ("1000:1000", True, False)
    assert (host["CapDrop"], host["SecurityOpt"], host["ReadonlyRootfs"]) == (["ALL"], ["no-new-privileges"], True)
    assert (host["NetworkMode"], host["IpcMode"], host["LogConfig"]) == ("none", "private", {"Type": "none"})
    assert (host["RestartPolicy"], host["AutoRemove"]) == ({"Name": "no"}, False)
    assert {"/proc/kcore", "/proc/keys", "/sys/firmware"} <= set(host["MaskedPaths"])
    assert not host.keys() & {"Privileged", "CapAdd", "Devices", "PidMode", "UsernsMode", "Ulimits", "Binds"}


def test_nothing_of_the_image_decides_what_runs_or_how() -> None:
    made = container(PLAN)
    door = "/holdfast-kit/packages/sandbox/providers/container/door.py"
    rlimits = json.dumps(ContainerLimits().rlimits)
    assert made["Entrypoint"] == ["/kit/ld.so", "/kit/python", "-I", "-S", door, "/holdfast-door/door", "30", rlimits]
    assert (made["Cmd"], made["WorkingDir"], made["StopSignal"]) == ([], "/", "SIGTERM")
    assert made["Healthcheck"] == {"Test": ["NONE"]}
    silenced = ["GLIBC_TUNABLES=", "LD_AUDIT=", "LD_DEBUG=", "LD_LIBRARY_PATH=", "LD_PRELOAD="]
    assert made["Env"] == silenced, "and of the rest nothing is repeated"


def test_what_is_mounted_is_read_only_but_for_the_roots_and_tmp() -> None:
    mounts = container(PLAN)["HostConfig"]["Mounts"]
    assert [(each["Type"], each["Target"], each.get("ReadOnly")) for each in mounts] == [
        ("bind", "/session", False),
        ("bind", "/kit", True),
        ("tmpfs", "/tmp", None),
    ]
    places = inner_paths()
    assert (places.kept, places.workspace, places.agent) == ("/session", "/workspace", "/agent")


@given(memory=st.integers(6 << 20, 1 << 40), tmp=st.integers(0, 1 << 40), cpus=st.floats(0.01, 512))
def test_files_in_memory_never_use_it_up(memory: int, tmp: int, cpus: float) -> None:
    limits = ContainerLimits(memory_bytes=memory, tmp_bytes=tmp, cpus=cpus)
    host = container(ContainerPlan(**{**_members(), "limits": limits}))["HostConfig"]
    in_memory = host["Mounts"][-1]["TmpfsOptions"]["SizeBytes"] + host["ShmSize"]
    assert in_memory <= memory / 2
    assert host["Memory"] == host["MemorySwap"] == memory, "no swap beside it"
    assert isinstance(host["NanoCpus"], int)
    assert abs(host["NanoCpus"] - cpus * 1e9) < 1


def test_a_runtime_is_named_only_if_one_is_wanted() -> None:
    assert "Runtime" not in container(PLAN)["HostConfig"]
    assert container(ContainerPlan(**{**_members(), "runtime": "runsc"}))["HostConfig"]["Runtime"] == "runsc"


def test_a_container_is_found_by_name_and_labels() -> None:
    made = container(PLAN)
    assert (label(made, "installation"), home_of(made)) == ("house", "home")
    assert (label(made, "session"), label(made, "incarnation"), label(made, "kit")) == ("s1", "7", "kit-1")
    assert made["Labels"].items() >= labels("house", "home", "s1").items() >= labels("house").items()
    assert label({}, "session") == label({"Labels": None}, "session") == label({"Labels": {}}, "session") == ""
    assert label({"Labels": {"dev.holdfast.session": 7}}, "session") == ""
    places = [("a", "a"), ("a", "b"), ("b", "b"), ("b", "a")]
    names = {container_name(*place, session) for place in places for session in ("s1", "s2", "S1")}
    assert len(names) == 12
    assert all(name.replace("-", "").isalnum() for name in names)


def test_a_container_of_an_earlier_gateway_is_that_of_the_directory_by_whose_id_it_was_named() -> None:
    """It had one id for both."""
    assert home_of({"Labels": {"dev.holdfast.installation": "0123456789abcdef", "dev.holdfast.session": "s1"}}) == (
        "0123456789abcdef"
    )
    assert container_name("0123456789abcdef", "0123456789abcdef", "s1") == "holdfast-0123456789abcdef-e8bc163c82eee187"


def _members() -> dict[str, Any]:
    return {name: getattr(PLAN, name) for name in PLAN.__dataclass_fields__}
