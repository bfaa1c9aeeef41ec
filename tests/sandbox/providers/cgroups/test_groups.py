"""Control groups: the second version on plain files, and the version that this machine has."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.ports.resources import NO_LIMITS, ResourceLimits
from sandbox.providers.cgroups import groups
from sandbox.providers.cgroups.groups import LEAF, Group, Groups, NoGroups
from tests.sandbox.cgroups import NO_GROUPS

MIB = 1 << 20
ALL = "cpuset cpu io memory hugetlb pids\n"
LIMITS = ResourceLimits(256 * MIB, 0.5, 64)


class SecondTree:
    """A tree of the second version in plain files, with the gateway in `/system.slice/holdfast.service`."""

    def __init__(self, root: Path, own: str = "/system.slice/holdfast.service") -> None:
        self.root, self.membership = root / "cgroup", root / "membership"
        self.own = self.root / own.lstrip("/")
        self.own.mkdir(parents=True)
        self.membership.write_text(f"0::{own}\n")
        self.give(self.root, ALL)
        self.give(self.own, ALL, members=[os.getpid()])

    def give(self, directory: Path, controllers: str, members: list[int] | None = None) -> None:
        (directory / "cgroup.controllers").write_text(controllers)
        (directory / "cgroup.subtree_control").write_text("")
        (directory / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in members or []))
        if directory != self.root:
            (directory / "cgroup.type").write_text("domain\n")

    def find(self) -> Groups:
        return groups.find("tag", root=self.root, membership=self.membership)


def test_the_group_of_a_process_is_found_where_it_can_be_seen(tmp_path: Path) -> None:
    proc, second = tmp_path / "proc", tmp_path / "second"
    (second / "docker/abc").mkdir(parents=True)
    (second / "cgroup.controllers").write_text(ALL)
    (second / "docker/abc/memory.events").write_text("oom 3\noom_kill 2\n")
    first = tmp_path / "first"
    (first / "memory/docker/abc").mkdir(parents=True)

    def found(root: Path, membership: str) -> Group | None:
        (proc / "7").mkdir(parents=True, exist_ok=True)
        (proc / "7/cgroup").write_text(membership)
        return Group.of(7, root=root, proc=proc)

    there = found(second, "0::/docker/abc\n")
    assert there is not None
    assert there.directories == [second / "docker/abc"]
    told = there.read()
    assert told is not None
    assert told.killed == 2
    both = "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n"
    assert found(first, both) == Group(1, {"memory": str(first / "memory/docker/abc")})
    for elsewhere in ("0::/../../docker/abc\n", "0::/docker/other\n", ""):
        assert found(second, elsewhere) is None
    assert Group.of(8, root=second, proc=proc) is None, "it has ended"


def text(path: Path) -> str:
    return path.read_text().strip()


def test_a_delegated_group_is_divided_and_the_gateway_goes_into_a_leaf(tmp_path: Path) -> None:
    tree = SecondTree(tmp_path)
    found = tree.find()
    assert found.version == 2
    assert found.controllers == {"memory", "pids", "cpu"}
    assert text(tree.own / LEAF / "cgroup.procs") == str(os.getpid())
    assert not (tree.own / "holdfast-tag").exists(), "nobody needs it yet"
    group = found.make("s1", LIMITS)
    for directory in (tree.own, tree.own / "holdfast-tag"):
        assert text(directory / "cgroup.subtree_control") == "+cpu +memory +pids"
    directory = tree.own / "holdfast-tag" / "s1"
    assert group.directories == [directory]
    names = ("memory.max", "memory.swap.max", "pids.max", "cpu.max")
    assert [text(directory / name) for name in names] == [str(256 * MIB), "0", "64", "50000 100000"]
    group.join([os.getpid()])
    assert group.members() == {os.getpid()}
    assert found.names() == {"s1"}


def test_a_gateway_that_is_in_its_leaf_already_stays_there(tmp_path: Path) -> None:
    tree = SecondTree(tmp_path)
    tree.find()
    (tree.own / "cgroup.procs").write_text("")
    tree.membership.write_text(f"0::/system.slice/holdfast.service/{LEAF}\n")
    again = tree.find()
    assert again.named("s1").directories == [tree.own / "holdfast-tag" / "s1"]
    assert not (tree.own / LEAF / LEAF).exists()


def test_a_group_with_other_processes_is_left_as_it_is(tmp_path: Path) -> None:
    tree = SecondTree(tmp_path)
    tree.give(tree.own, ALL, members=[os.getpid(), 1])
    with pytest.raises(NoGroups, match=r"has other processes than the gateway: .*Delegate=yes"):
        tree.find()
    assert text(tree.own / "cgroup.subtree_control") == ""
    assert not (tree.own / LEAF).exists()


def test_the_root_of_all_groups_may_have_members(tmp_path: Path) -> None:
    tree = SecondTree(tmp_path)
    tree.membership.write_text("0::/\n")
    (tree.root / "cgroup.procs").write_text("1\n2\n")
    assert tree.find().named("s1").directories == [tree.root / "holdfast-tag" / "s1"]


def test_controllers_that_are_not_there_are_told_by_the_limits_they_would_hold(tmp_path: Path) -> None:
    tree = SecondTree(tmp_path)
    tree.give(tree.own, "memory pids\n", members=[os.getpid()])
    found = tree.find()
    assert found.lacking(LIMITS) == ["cpus"]
    assert found.lacking(ResourceLimits(memory=MIB)) == []
    tree.give(tree.own, "cpuset\n")
    with pytest.raises(NoGroups, match="none of the controllers memory, pids and cpu"):
        tree.find()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_group_of_somebody_elses_is_told_with_what_to_change(tmp_path: Path) -> None:
    tree = SecondTree(tmp_path)
    tree.own.chmod(0o500)
    with pytest.raises(NoGroups, match="Permission denied"):
        tree.find()
    tree.own.chmod(0o700)


def test_a_host_without_groups_says_so(tmp_path: Path) -> None:
    (tmp_path / "membership").write_text("1:name=systemd:/\n")
    with pytest.raises(NoGroups, match="no controllers are mounted"):
        groups.find("tag", root=tmp_path, membership=tmp_path / "membership")
    with pytest.raises(NoGroups, match="No such file"):
        groups.find("tag", root=tmp_path, membership=tmp_path / "nothing")


def test_in_a_container_the_mount_begins_at_its_own_group(tmp_path: Path) -> None:
    """There /proc shows the host's path, which is not below the mount."""
    (tmp_path / "membership").write_text("4:memory:/docker/abc\n3:pids:/own\n")
    for name in ("memory", "pids/own"):
        (tmp_path / name).mkdir(parents=True)
    found = groups.find("tag", root=tmp_path, membership=tmp_path / "membership")
    assert found.named("s1").paths == {
        "memory": str(tmp_path / "memory/holdfast-tag/s1"),
        "pids": str(tmp_path / "pids/own/holdfast-tag/s1"),
    }


def test_two_data_directories_have_two_tags_also_in_each_others_place(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    first = groups.tag(one)
    assert first == groups.tag(one) != groups.tag(other)
    one.rename(tmp_path / "moved")
    other.rename(one)
    assert groups.tag(one) != first


@pytest.mark.parametrize(
    "note", [None, {}, {"version": 3, "paths": {}}, {"version": 2}, {"version": 2, "paths": {"a": 1}}]
)
def test_a_note_that_is_none_names_no_group(note: object) -> None:
    assert Group.noted(note) is None
    group = Group(2, {"memory": "/a"})
    assert Group.noted(group.note()) == group


def test_a_group_that_is_gone_says_nothing_and_is_removed_again(tmp_path: Path) -> None:
    group = Group(2, {"memory": str(tmp_path / "gone")})
    assert group.read() is None
    assert group.members() == set()
    assert groups.end(group)


# What the kernel does.


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Groups]:
    if NO_GROUPS:
        pytest.skip(NO_GROUPS)
    found = groups.find(groups.tag(tmp_path))
    yield found
    for name in found.names():
        groups.end(found.named(name))
    found.close()
    assert not any(Path(path).parent.exists() for path in found.named("any").paths.values())


def test_the_kernel_takes_the_limits_and_says_them_again(real: Groups) -> None:
    limits = ResourceLimits(*(None if name in real.lacking(LIMITS) else getattr(LIMITS, name)
                              for name in ("memory", "cpus", "pids")))  # fmt: skip
    group = real.make("s1", limits)
    reading = group.read()
    assert reading is not None
    assert reading.resources.limits == limits
    assert (reading.killed, reading.refused) == (0, 0)
    unlimited = real.make("s2", NO_LIMITS).read()
    assert unlimited is not None
    assert unlimited.resources.limits == NO_LIMITS
    assert real.names() == {"s1", "s2"}


def test_the_end_of_a_group_is_the_end_of_what_is_in_it(real: Groups) -> None:
    group = real.make("s1", NO_LIMITS)
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    group.join([program.pid, 2**22])  # a process that is gone is fine
    assert group.members() == {program.pid}
    assert not group.try_remove()
    assert groups.end(group)
    assert program.wait() == -9
    assert not any(directory.exists() for directory in group.directories)
