"""Where the engine's host has the files of a gateway, in a container or not."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.providers.container.engine_answers import BadAnswer
from sandbox.providers.container.host_paths import HostPaths, host_paths, own_container
from sandbox.providers.container.image import Unusable

ID = "0123456789abcdef" * 4
OTHER = "f" * 64
NAMES = st.from_regex(r"[a-z .]{1,4}[a-z]", fullmatch=True)


def line(root: str, mount_point: str) -> str:
    return f"1019 1009 254:0 {root} {mount_point} rw,relatime - ext4 /dev/vda1 rw\n"


@pytest.mark.parametrize(
    "root",
    [
        f"/var/lib/docker/containers/{ID}/resolv.conf",
        f"/containers/{ID}/hostname",
        f"/home/ann/.local/share/containers/storage/overlay-containers/{ID}/userdata/hostname",
        f"/containers/overlay-containers/{ID}/userdata/.containerenv",
    ],
)
@pytest.mark.parametrize("mount_point", ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"])
def test_a_container_is_known_by_what_its_engine_mounts_over_its_names(root: str, mount_point: str) -> None:
    before = line("/", "/") + line(f"/var/lib/docker/containers/{OTHER}/hostname", "/somewhere/hostname") + "odd\n"
    assert own_container(before + line(root, mount_point)) == ID


@pytest.mark.parametrize(
    "mountinfo",
    [
        "",
        "odd\n",
        line("/", "/"),
        line("/var/lib/docker/containers", "/var/lib/docker/containers"),
        line(f"/var/lib/docker/containers/{ID}/hostname", f"/var/lib/docker/containers/{ID}/hostname"),
        line("/var/lib/kubelet/pods/1/etc-hosts", "/etc/hosts"),
        line(f"/containers/{ID[:12]}/hostname", "/etc/hostname"),
    ],
)
def test_what_is_in_no_container_of_an_engine_is_no_container(mountinfo: str) -> None:
    assert own_container(mountinfo) is None


def described(**mounts: str) -> dict[str, Any]:
    return {"Mounts": [{"Destination": inside, "Source": source} for inside, source in mounts.items()]}


def test_on_the_host_a_path_is_itself() -> None:
    assert host_paths(None) == HostPaths()
    assert not HostPaths().in_container
    assert HostPaths().of(Path("/srv/data")) == "/srv/data"


def test_in_a_container_a_path_is_where_the_host_has_its_volume() -> None:
    found = host_paths(described(**{"/data": "/volumes/one/_data", "/data/kit": "/kits", "/tmp": ""}))
    assert found.in_container
    assert found.of(Path("/data")) == "/volumes/one/_data"
    assert found.of(Path("/data/doors/x")) == "/volumes/one/_data/doors/x"
    assert found.of(Path("/data/kit/abc")) == "/kits/abc"


@pytest.mark.parametrize("path", ["/srv/data", "/datas", "/tmp/data"])
def test_what_no_volume_holds_is_refused_in_words(path: str) -> None:
    found = host_paths(described(**{"/data": "/volumes/one/_data", "/tmp": ""}))
    with pytest.raises(Unusable, match=rf"{path} is in no volume of it: mount one there"):
        found.of(Path(path))
    with pytest.raises(Unusable):
        host_paths({"Mounts": None}).of(Path(path))


@pytest.mark.parametrize("mounts", [{"/data": "/x"}, ["/data"], "x"])
def test_an_engine_that_does_not_tell_its_mounts_is_not_believed(mounts: Any) -> None:
    with pytest.raises(BadAnswer):
        host_paths({"Mounts": mounts})


@given(st.lists(NAMES, max_size=4), st.lists(NAMES, min_size=1, max_size=3), st.dictionaries(NAMES, NAMES, max_size=3))
def test_the_deepest_mount_has_it(inside: list[str], below: list[str], others: dict[str, str]) -> None:
    place = Path("/", *inside)
    mounts = {str(place): "/host", **{f"/{name}": f"/other/{source}" for name, source in others.items()}}
    path = Path(place, *below)
    expected = max((each for each in mounts if path.is_relative_to(each)), key=lambda each: len(Path(each).parts))
    assert Path(host_paths(described(**mounts)).of(path)) == Path(mounts[expected], path.relative_to(expected))
