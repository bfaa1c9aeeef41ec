"""What is written to a control group and read from it, in both versions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.ports.resources import NO_LIMITS, ResourceLimits, Resources, ResourceUsage
from sandbox.providers.cgroups.files import (
    CONTROLLERS,
    Reading,
    Version,
    files_read,
    lacking,
    limit_met,
    own_path,
    reading,
    settings,
    words,
)

MIB = 1 << 20
ALL = ResourceLimits(512 * MIB, 1.5, 100)

FIRST = {
    "memory.limit_in_bytes": f"{512 * MIB}\n",
    "memory.usage_in_bytes": "1000\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    "pids.max": "100\n",
    "pids.current": "7\n",
    "pids.events": "max 2\n",
    "cpu.cfs_quota_us": "150000\n",
    "cpu.cfs_period_us": "100000\n",
    "cpuacct.usage": "2500000000\n",
}
SECOND = {
    "memory.max": f"{512 * MIB}\n",
    "memory.current": "1000\n",
    "memory.events": "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n",
    "pids.max": "100\n",
    "pids.current": "7\n",
    "pids.events": "max 2\n",
    "cpu.max": "150000 100000\n",
    "cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
}
UNLIMITED: dict[Version, dict[str, str]] = {
    1: {
        "memory.limit_in_bytes": "9223372036854771712\n",
        "pids.max": "max\n",
        "cpu.cfs_quota_us": "-1\n",
        "cpu.cfs_period_us": "100000\n",
    },
    2: {"memory.max": "max\n", "pids.max": "max\n", "cpu.max": "max 100000\n"},
}


def written(version: Version, limits: ResourceLimits) -> dict[str, str]:
    return {setting.file: setting.value for setting in settings(version, limits)}


def test_limits_are_written_as_each_version_wants_them() -> None:
    assert written(1, ALL) == {
        "memory.limit_in_bytes": str(512 * MIB),
        "memory.memsw.limit_in_bytes": str(512 * MIB),
        "memory.swappiness": "0",
        "pids.max": "100",
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "150000",
    }
    assert written(2, ALL) == {
        "memory.max": str(512 * MIB),
        "memory.swap.max": "0",
        "pids.max": "100",
        "cpu.max": "150000 100000",
    }
    # The kernel refuses memory and swap together below memory alone: in this order each is possible.
    assert [each.file for each in settings(1, ALL)][:2] == ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
    assert {each.file for each in (*settings(1, ALL), *settings(2, ALL)) if each.optional} == {
        "memory.memsw.limit_in_bytes",
        "memory.swappiness",
        "memory.swap.max",
    }


@pytest.mark.parametrize("version", [1, 2])
def test_no_limit_writes_nothing(version: Version) -> None:
    assert settings(version, NO_LIMITS) == []
    assert not NO_LIMITS.any
    assert ALL.any


@given(
    st.sampled_from([1, 2]),
    st.none() | st.integers(1, 1 << 50),
    st.none() | st.integers(10, 10_000).map(lambda hundredths: hundredths / 100),
    st.none() | st.integers(1, 1 << 22),
)
def test_what_was_written_is_read_again(
    version: Version, memory: int | None, cpus: float | None, pids: int | None
) -> None:
    limits = ResourceLimits(memory, cpus, pids)
    texts = UNLIMITED[version] | {name: f"{value}\n" for name, value in written(version, limits).items()}
    assert reading(version, texts).resources.limits == limits


@pytest.mark.parametrize(("version", "texts"), [(1, FIRST), (2, SECOND)])
def test_use_and_ends_are_read(version: Version, texts: dict[str, str]) -> None:
    assert {name for _, name in files_read(version)} == texts.keys()
    assert {controller for controller, _ in files_read(version)} == set(CONTROLLERS[version])
    usage = ResourceUsage(memory=1000, cpu_seconds=2.5, pids=7)
    assert reading(version, texts) == Reading(Resources(ALL, usage), killed=3, refused=2)


@pytest.mark.parametrize("version", [1, 2])
def test_files_that_say_nothing_are_no_limits_and_no_use(version: Version) -> None:
    assert reading(version, {}) == Reading()
    odd = {name: "odd\n" for _, name in files_read(version) if name != "cpu.stat"}
    assert reading(version, odd) == Reading()
    zero = {"cpu.cfs_quota_us": "1", "cpu.cfs_period_us": "0", "cpu.max": "1 0"}
    assert reading(version, zero) == Reading()


def test_a_limit_without_its_controller_is_told() -> None:
    assert lacking(ALL, frozenset({"memory", "pids", "cpu"})) == []
    assert lacking(ALL, frozenset({"memory"})) == ["cpus", "pids"]
    assert lacking(ResourceLimits(memory=MIB), frozenset({"memory"})) == []


def test_the_own_group_is_found_in_both_versions() -> None:
    first = "5:cpu,cpuacct:/of/both\n4:memory:/of:memory\n1:name=systemd:/init\n0::/user.slice/a.scope\n"
    assert own_path(first, "memory") == "/of:memory"
    assert own_path(first, "cpuacct") == "/of/both"
    assert own_path(first, "pids") is None
    assert own_path(first, "") == "/user.slice/a.scope"
    assert own_path("nonsense\n", "") is None


def test_controllers_are_listed_and_asked_for() -> None:
    assert words("cpu memory pids\n") == words("+memory +pids +cpu") == {"cpu", "memory", "pids"}


def test_the_limit_that_was_met_is_told_with_where_it_comes_from() -> None:
    now = reading(2, SECOND)
    operator = ResourceLimits(memory=512 * MIB)
    name, told = limit_met(Reading(now.resources, killed=2, refused=2), now, operator) or ("", "")
    assert (name, told) == ("memory", "the sandbox's memory limit of 512 MiB was reached; HOLDFAST_LIMIT_MEMORY")
    name, told = limit_met(Reading(now.resources, killed=3, refused=1), now, operator) or ("", "")
    assert name == "pids"
    assert told == "the sandbox's limit of 100 processes and threads was reached; the session's own limits.pids"
    odd = reading(2, SECOND | {"memory.max": "1000001"})
    assert "1000001 bytes" in (limit_met(Reading(), odd, operator) or ("", ""))[1]


def test_without_a_limit_or_anything_new_nothing_is_told() -> None:
    now = reading(2, SECOND)
    assert limit_met(now, now, NO_LIMITS) is None
    assert limit_met(Reading(), reading(2, SECOND | UNLIMITED[2]), NO_LIMITS) is None  # the host's memory ran out
