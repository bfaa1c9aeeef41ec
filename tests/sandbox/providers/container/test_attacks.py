"""What images, programs and engines may try, beyond the attempts to get out (test_escape.py) and the bombs
(test_limits.py). docs/decisions/0028-containers.md lists every attack with its test."""

import contextlib
import io
import json
import platform
import tarfile
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.ports.link import LinkRefused
from sandbox.ports.sandbox import Command, SandboxFailed, SandboxUnavailable
from sandbox.providers.container.image import loaders
from sandbox.providers.container.kits import Kits
from sandbox.providers.container.note import read_note
from sandbox.providers.local.layout import SandboxHome
from tests.contract.sandbox import attach, run_agent, spec
from tests.sandbox.containers import UID, AnyEngine, _Fleet, fleet_on, opened
from tests.sandbox.local import python
from tests.sandbox.providers.container.test_engine import _json, _liar
from tests.sandbox.providers.container.test_fleet import shell
from tests.support.bridge import Owner
from tests.support.engine import DockerEngine, busybox

CANARY = f"canary-{uuid.uuid4().hex}"
OUR_PATHS = ("/workspace", "/agent", "/session", "/holdfast", "/holdfast-kit", "/holdfast-door", "/tmp", "/etc/passwd")


@contextlib.asynccontextmanager
async def made_of(
    root: bytes, engine: DockerEngine, data_dir: Path, kits: Kits, *changes: str, **settings: Any
) -> AsyncIterator[_Fleet]:
    image = f"holdfast-test/attack:{uuid.uuid4().hex}"
    engine.load(image, root, *changes)
    async with opened(engine, data_dir, kits, image=image, **settings) as fleet:
        yield fleet


def with_members(*members: tuple[str, bytes, str | bytes]) -> bytes:
    """An image of busybox with these beside it: name, kind, and content, or what a link leads to."""
    whole = io.BytesIO(busybox())
    with tarfile.open(fileobj=whole, mode="a") as tar:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type, member.mode = kind, 0o755
            if isinstance(content, bytes):
                member.size = len(content)
            else:
                member.linkname = content
            tar.addfile(member, io.BytesIO(content) if isinstance(content, bytes) else None)
    return whole.getvalue()


# -- images -----------------------------------------------------------------------------------------------------------


async def test_an_image_with_too_long_a_list_of_users_is_not_taken_for_an_engine_that_is_away(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    """Its session would wait for ever, and be told that the engine does not answer."""
    root = with_members(("etc/passwd", tarfile.REGTYPE, b"root:x:0:0::/:/bin/sh\n" * 50_000))
    async with made_of(root, docker_engine, tmp_path, kits) as fleet:
        with pytest.raises(SandboxFailed, match="its /etc/passwd is longer than 1048576 bytes"):
            await fleet.start(spec())
        assert docker_engine.client("ps", "--all", "--quiet") == ""


async def test_whatever_is_in_place_of_a_loader_is_not_fetched_to_see_that_it_is_there(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    """More than any answer may have: that was taken for an engine that is away."""
    (loader, *_) = loaders("glibc", platform.machine())
    root = with_members((f"{loader[1:]}/much", tarfile.REGTYPE, bytes(17 << 20)))
    async with made_of(root, docker_engine, tmp_path, kits) as fleet:
        await fleet.start(spec(agent_libc="glibc"))


async def test_a_program_for_every_process_that_an_image_names_is_not_needed_to_start(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    """The kit's loader reads the image's /etc/ld.so.preload: what cannot be loaded is passed over."""
    preload = b"/nothing.so\n/etc/passwd\n/bin/busybox\n"
    root = with_members(("etc/ld.so.preload", tarfile.REGTYPE, preload))
    changes = [f"VOLUME {json.dumps(list(OUR_PATHS[:-1]))}", "ENV LD_PRELOAD=/bin/busybox", "USER root"]
    async with made_of(root, docker_engine, tmp_path, kits, *changes) as fleet:
        await fleet.start(spec())
        owner = Owner()
        await run_agent(await attach(fleet, owner), owner)
        writable = "for each in /*; do touch $each/x 2>/dev/null && echo $each; done; true"
        assert (await shell(fleet, writable)).split() == [
            "/agent",
            "/holdfast",
            "/session",
            "/tmp",
            "/workspace",
        ]
        assert await shell(fleet, "id -u; cat /proc/1/comm; ls -A /holdfast-door") == f"{UID}\nholdfast-bridge"
        await fleet.sandbox("s1").destroy()
        assert docker_engine.client("volume", "ls", "--quiet") == ""


@pytest.mark.parametrize(
    ("name", "kind", "seconds", "why"),
    [
        pytest.param("etc/ld.so.preload", tarfile.FIFOTYPE, 5, "no answer within 5 s", id="preload without end"),
        pytest.param("etc/passwd/x", tarfile.REGTYPE, 3600, "directory", id="passwd is a directory"),
        pytest.param("holdfast-kit", tarfile.REGTYPE, 3600, "directory", id="the kit's place is a file"),
    ],
)
async def test_an_image_that_leaves_no_room_for_what_is_ours_is_refused_with_a_reason(
    name: str, kind: bytes, seconds: int, why: str, docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    """The engine refuses what it cannot mount; what never comes up meets the time for a start."""
    root = with_members((name, kind, b""))
    async with made_of(root, docker_engine, tmp_path, kits, start_timeout=seconds) as fleet:
        with pytest.raises(SandboxFailed, match=rf"did not start: .*{why}"):
            await fleet.start(spec())
        assert await fleet.containers.all(stopped=True) == []
        assert read_note(SandboxHome(tmp_path, "s1")) is None


async def test_links_in_place_of_our_directories_lead_to_nothing_of_the_host(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    """An engine follows them within the image, and mounts what is ours at their ends."""
    leads = [("workspace", str(tmp_path)), ("agent", "../../.."), ("holdfast", "/proc"), ("holdfast-door", "/tmp")]
    root = with_members(*((name, tarfile.SYMTYPE, target) for name, target in leads))
    before = sorted(path.name for path in tmp_path.iterdir())
    async with made_of(root, docker_engine, tmp_path / "data", kits) as fleet:
        with contextlib.suppress(SandboxFailed):
            await fleet.start(spec())
            assert await shell(fleet, "id -u; cat /proc/1/comm") == f"{UID}\nholdfast-bridge"
        assert set(before) ^ {path.name for path in tmp_path.iterdir()} <= {"data", "data-programs"}


# -- programs ---------------------------------------------------------------------------------------------------------


async def test_what_a_program_puts_in_place_of_what_the_gateway_opens_leads_nowhere(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(CANARY)
    home = SandboxHome(tmp_path / "data", "s1")
    bound = "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])"
    async with opened(docker_engine, tmp_path / "data", kits) as fleet:
        await fleet.start(spec())
        seen = await shell(fleet, "find / -xdev -type s; find /session /holdfast /holdfast-door /workspace -type s")
        assert seen == "", "no socket to connect to: no door, no bridge, no engine"
        assert await shell(fleet, f"ls {tmp_path} {docker_engine.socket} 2>/dev/null | wc -l") == "0"

        log = f"/holdfast/{home.agent_log.name}"
        for put in (f"ln -s {secret} {log}", f"ln -s /proc/1/environ {log}", f"mkfifo {log}", f"mkdir {log}"):
            await shell(fleet, f"rm -rf {log} && {put}")
            told = await fleet.sandbox("s1").logs()
            assert told.splitlines()[0].startswith(b"{"), "the bridge's own, which no program reaches"
            assert CANARY.encode() not in told
        await shell(fleet, f"rm -rf {log}")
        assert (await fleet.sandbox("s1").exec(Command((*python(bound), log), timeout_seconds=60))).exit_code == 0
        assert CANARY.encode() not in await fleet.sandbox("s1").logs()

        script = (
            "cd /session && rm -rf workspace agent .swap .trash && mkfifo workspace .swap && ln -s /holdfast .trash"
        )
        await shell(fleet, f"cd /; {script}")
        assert (
            await fleet.sandbox("s1").exec(Command((*python(bound), "/session/agent"), cwd="/", timeout_seconds=60))
        ).exit_code == 0
        await fleet.sandbox("s1").stop()
        await fleet.start(spec(incarnation=2))
        assert await shell(fleet, "touch /workspace/x /agent/x && ls -A /workspace") == "x"
        assert secret.read_text() == CANARY


# -- others on the engine, and the engine -----------------------------------------------------------------------------


async def test_a_foreign_container_with_our_labels_is_not_attached_and_harms_no_session(
    any_engine: AnyEngine, tmp_path: Path, kits: Kits
) -> None:
    """It says that it is of this very directory, and nobody has a note of it: that is left over, like its own."""
    async with opened(any_engine, tmp_path, kits) as fleet:
        host = {"NetworkMode": "none", "LogConfig": {"Type": "none"}}
        said = {"Image": any_engine.image, "Cmd": ["sleep", "600"], "HostConfig": host}
        for session_id in ("s1", "s2"):
            other = {**said, "Labels": fleet.containers.labels(session_id)}
            made, _ = await fleet.containers.engine.create(f"other-{uuid.uuid4().hex}", other)
            await fleet.containers.engine.start(made)
        await fleet.start(spec("s1"))
        owner = Owner()
        await run_agent(await attach(fleet, owner), owner)
        assert not await fleet.sandbox("s2").runs()
        with pytest.raises(LinkRefused):
            await fleet.sandbox("s2").connect(Owner(), None)
        await fleet.sandbox("s1").stop()
        assert not await fleet.sandbox("s1").runs()
        found = await fleet.leftovers()
        assert sorted(each.session_id for each in found) == ["s1", "s2"]
        assert [await fleet.clear(each) for each in found] == [True, True]
        assert await fleet.containers.all(stopped=True) == []


LIES: list[Any] = [
    b"",
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{]x",
    _json([]),
    _json("x"),
    _json(7),
    _json({"Id": "x"}),
]
LIES += [_json([7]), _json([{"Id": 7, "Labels": [], "State": {}}]), _json({"Id": "x", "State": [], "Config": "y"})]
LIES += [_json({"Id": "x", "Config": {"Env": "PATH"}}), _json({"Architecture": 7, "SecurityOptions": {"a": 1}})]
LIES += [_json({"message": ["no"]}, "500 Oh"), _json({"Id": "../x", "Warnings": {"a": 1}}, "201 Created")]


@pytest.mark.parametrize("lie", range(len(LIES)))
async def test_an_engine_that_answers_the_same_to_everything_is_not_believed(
    lie: int, tmp_path: Path, kits: Kits
) -> None:
    """What it says has a shape, or nothing is known: nothing else comes out, and nothing is waited for."""
    warnings: list[str] = []
    engine = SimpleNamespace(socket=tmp_path / "engine.sock", image="any:1")
    async with _liar(engine.socket, lambda path: LIES[lie]):
        fleet = fleet_on(engine, tmp_path / "data", kits, warn=warnings.append)  # type: ignore[arg-type]
        with contextlib.suppress(SandboxFailed):
            await fleet.open()
        sandbox = fleet.sandbox("s1")
        with pytest.raises((SandboxFailed, SandboxUnavailable)):
            await fleet.start(spec())
        for ask in (fleet.running, sandbox.runs, sandbox.kill, sandbox.resources, sandbox.stop, fleet.health):
            with contextlib.suppress(SandboxFailed, SandboxUnavailable):
                await ask()
        assert all(each.isprintable() for each in warnings)
        await fleet.close()
