"""A gateway in a container, beside its sandboxes on the same engine. The image is the one of deploy/Dockerfile but for
its programs, which are this machine's, mounted: `make images` builds the real one and tries it, which takes minutes."""

import io
import shlex
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.engine import DockerEngine
from tests.support.gateway_container import GatewayContainer, a_session_lives_there
from tests.support.image import USER, make_environment
from tests.test_deploy import DOCKERFILE, instructions
from tests.test_image import place_of_environment

IMAGE = "holdfast-test/gateway:1"
ACCOUNTS = f"root:x:0:0:root:/root:/bin/sh\nholdfast:x:{USER}:{USER}::/home/holdfast:/bin/sh\n"
KEPT = ("ENV", "USER", "WORKDIR", "VOLUME", "CMD")


def root_without_programs() -> bytes:
    """The files of the image, with nothing where this machine's programs are to be mounted."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name, mode, owner in (("tmp", 0o1777, 0), ("data", 0o700, int(USER)), ("usr", 0o755, 0), ("etc", 0o755, 0)):
            place = tarfile.TarInfo(name)
            place.type, place.mode, place.uid, place.gid = tarfile.DIRTYPE, mode, owner, owner
            tar.addfile(place)
        for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
            if Path("/", name).is_symlink():
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, str(Path("/", name).readlink())
                tar.addfile(link)
        accounts = tarfile.TarInfo("etc/passwd")
        accounts.size = len(ACCOUNTS)
        tar.addfile(accounts, io.BytesIO(ACCOUNTS.encode()))
    return whole.getvalue()


@pytest.fixture(scope="module")
def flags(docker_engine: DockerEngine) -> Iterator[list[str]]:
    """What mounts the programs."""
    layout = instructions(DOCKERFILE.read_text())
    last = max(index for index, (name, _) in enumerate(layout) if name == "FROM")
    kept = [f"{name} {rest}".replace("$PATH", "/usr/bin:/bin") for name, rest in layout[last:] if name in KEPT]
    docker_engine.load(IMAGE, root_without_programs(), *kept)
    directory = Path(tempfile.mkdtemp(prefix="hf-environment-", dir="/tmp"))  # a place that others may look into
    try:
        directory.chmod(0o755)
        make_environment(directory / "environment", place_of_environment())
        places = {"/usr": "/usr", str(directory / "environment"): place_of_environment()}
        if not Path(sys.base_prefix).is_relative_to("/usr"):
            places[sys.base_prefix] = sys.base_prefix
        yield [f"--volume={shlex.quote(source)}:{target}:ro" for source, target in places.items()]
    finally:
        shutil.rmtree(directory)


async def test_a_gateway_in_a_container_runs_its_sessions_in_others(
    docker_engine: DockerEngine, flags: list[str]
) -> None:
    settings = {"HOLDFAST_DOCKER_IMAGE": docker_engine.image}
    with GatewayContainer(docker_engine.socket, IMAGE, settings, flags) as gateway:
        await a_session_lives_there(gateway)
    assert docker_engine.client("ps", "--all", "--quiet") == ""


def test_a_gateway_whose_data_is_in_no_volume_says_so(docker_engine: DockerEngine, flags: list[str]) -> None:
    settings = {"HOLDFAST_DOCKER_IMAGE": docker_engine.image, "HOLDFAST_DATA_DIR": "/tmp/data"}
    with (
        pytest.raises(RuntimeError, match=r"/tmp/data is in no volume of it: mount one there"),
        GatewayContainer(docker_engine.socket, IMAGE, settings, flags),
    ):
        pass
    assert docker_engine.client("ps", "--all", "--quiet") == ""
