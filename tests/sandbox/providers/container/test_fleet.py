"""The container fleet beyond the contract: secrets, hostile images, engines that go away, what is left over."""

import asyncio
import dataclasses
import json
import subprocess
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.ports.link import LinkRefused
from sandbox.ports.progress import ImageChosen, StartProgress
from sandbox.ports.resources import ResourceLimits
from sandbox.ports.sandbox import Command, SandboxFailed, SandboxUnavailable
from sandbox.providers.container.containers import Containers
from sandbox.providers.container.document import ContainerLimits
from sandbox.providers.container.doorway import Caller, Doorway
from sandbox.providers.container.kits import Kits
from sandbox.providers.container.note import read_note, write_note
from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.processes import find
from tests.contract.sandbox import attach, run_agent, spec
from tests.sandbox.containers import UID, AnyEngine, _Fleet, fleet_on, named, opened
from tests.support.bridge import Owner
from tests.support.engine import DockerEngine, busybox
from tests.support.waiting import files_with, until

CANARY = f"canary-{uuid.uuid4().hex}"


@pytest.fixture
async def fleet(docker_engine: DockerEngine, tmp_path: Path, kits: Kits) -> AsyncIterator[_Fleet]:
    async with opened(docker_engine, tmp_path, kits) as fleet:
        yield fleet


async def shell(fleet: _Fleet, script: str, session_id: str = "s1") -> str:
    done = await fleet.sandbox(session_id).exec(Command(("sh", "-c", script), timeout_seconds=60))
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip()


async def test_a_secret_is_nowhere_on_the_engines_side(any_engine: AnyEngine, tmp_path: Path, kits: Kits) -> None:
    async with opened(any_engine, tmp_path, kits, base_env={"HOUSE": f"house-{CANARY}"}) as fleet:
        await fleet.start(spec(env={"SECRET": f"session-{CANARY}"}))
        assert await shell(fleet, "echo $SECRET $HOUSE") == f"session-{CANARY} house-{CANARY}"
        home = SandboxHome(tmp_path, "s1")
        note = read_note(home)
        assert note is not None
        found = await fleet.containers.find("s1")
        for secret in (CANARY, note.token):
            assert secret not in json.dumps(found)
            assert files_with(secret.encode(), any_engine.directory) == []
            assert files_with(secret.encode(), tmp_path) == ([home.note] if secret == note.token else [])
        shown = Path(f"/proc/{note.pid}/cmdline").read_bytes() + Path(f"/proc/{note.pid}/environ").read_bytes()
        assert CANARY.encode() not in shown
        assert note.token.encode() not in shown
        assert not (tmp_path / "doors" / home.socket.removesuffix(".sock") / "door").exists()


async def test_what_runs_inside_has_no_rights_and_no_way_out(fleet: _Fleet) -> None:
    await fleet.start(spec())
    told = await shell(
        fleet, "cat /proc/self/status; id -u; whoami; grep -o '[a-z0-9]*:' /proc/net/dev | tr -d : ; cat /proc/1/comm"
    )
    assert "CapEff:\t0000000000000000" in told
    assert "NoNewPrivs:\t1" in told
    assert "Seccomp:\t2" in told
    assert told.splitlines()[-4:] == [str(UID), "agent", "lo", "holdfast-bridge"]
    script = "for each in / /holdfast-kit /holdfast-door /etc; do touch $each/x 2>/dev/null && echo $each; done; true"
    assert await shell(fleet, script) == ""
    assert await shell(fleet, "touch /tmp/x /session/workspace/x && echo yes") == "yes"
    assert await shell(fleet, "ls -A /holdfast-door") == ""
    assert (await shell(fleet, "cat /proc/self/limits | grep 'open files'")).split()[-2] == "8192"
    found = await fleet.containers.find("s1")
    assert found is not None
    assert found["HostConfig"]["Memory"] == ContainerLimits().memory_bytes


async def test_programs_see_both_roots_as_directories_where_they_expect_them(fleet: _Fleet) -> None:
    await fleet.start(spec())
    assert (
        await shell(fleet, "pwd -P; readlink -f /workspace; readlink -f /agent; echo $HOME")
        == "/workspace\n/workspace\n/agent\n/agent"
    )
    assert await shell(fleet, "echo kept > /workspace/x; cat /session/workspace/x") == "kept"


async def test_what_a_program_left_in_the_place_of_a_root_leads_nowhere(fleet: _Fleet, tmp_path: Path) -> None:
    """The engine follows links, and mounts what they lead to."""
    await fleet.start(spec())
    await shell(fleet, "cd /session; mv workspace other; ln -s /etc workspace; mv agent more; echo > agent")
    await fleet.sandbox("s1").stop()
    await fleet.start(dataclasses.replace(spec(), incarnation=2))
    assert (
        await shell(fleet, "ls -A /workspace /session/workspace /agent | grep -v :; touch /workspace/x /agent/x") == ""
    )
    assert (SandboxHome(tmp_path, "s1").kept / "other").is_dir()


async def test_a_session_may_have_limits_of_its_own(any_engine: AnyEngine, tmp_path: Path, kits: Kits) -> None:
    async with opened(any_engine, tmp_path, kits) as fleet:
        limits = ResourceLimits(memory=256 << 20, cpus=0.5, pids=100)
        await fleet.start(dataclasses.replace(spec(), limits=limits))
        found = await fleet.sandbox("s1").resources()
        assert found is not None
        assert found.limits == limits
        used = found.usage
        assert None not in (used.memory, used.cpu_seconds, used.pids), used
        await fleet.start(dataclasses.replace(spec(), incarnation=2))
        found = await fleet.sandbox("s1").resources()
        assert found is not None
        standard = ContainerLimits()
        assert found.limits == ResourceLimits(standard.memory_bytes, standard.cpus, standard.processes)


async def test_our_own_filter_of_system_calls_is_in_force(fleet: _Fleet) -> None:
    """The engine's own allows AF_VSOCK and io_uring; ours does not."""
    await fleet.start(spec())
    script = "import socket\ntry: socket.socket(40, 1)\nexcept OSError as error: print(error.errno)"
    done = await fleet.sandbox("s1").exec(Command((*spec().agent[:1], "-c", script), timeout_seconds=60))
    assert done.stdout.strip() == "97", done


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(['ENTRYPOINT ["/bin/false"]', 'CMD ["/bin/false"]', "USER root"], id="entrypoint"),
        pytest.param(["ENV LD_PRELOAD=/bin/nothing.so", "ENV LD_AUDIT=/bin/nothing.so"], id="preload"),
        pytest.param(["ENV PYTHONHOME=/nonsense", "ENV PYTHONPATH=/nonsense", "ENV LD_DEBUG=all"], id="python"),
        pytest.param(["VOLUME /session", "VOLUME /holdfast-kit", "VOLUME /other"], id="volumes"),
        pytest.param(["STOPSIGNAL SIGKILL", "WORKDIR /nowhere", "HEALTHCHECK CMD kill 1", "ONBUILD RUN x"], id="stops"),
    ],
)
async def test_a_hostile_image_starts_and_the_gateway_is_not_fooled(
    changes: list[str], docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    image = f"holdfast-test/hostile:{uuid.uuid4().hex}"
    dockerfile = "\n".join([f"FROM {docker_engine.image}", *changes])
    docker_engine.client("build", "--tag", image, "-", stdin=dockerfile.encode())
    async with opened(docker_engine, tmp_path, kits, image=image) as fleet:
        await fleet.start(spec())
        assert await shell(fleet, "id -u; pwd; cat /proc/1/comm") == f"{UID}\n/workspace\nholdfast-bridge"
        log = (SandboxHome(tmp_path, "s1").bridge_log).read_text()
        assert all("bridge." in line for line in log.splitlines())
        found = await fleet.containers.find("s1")
        assert found is not None
        loaders = [each for each in found["Config"]["Env"] if each.startswith("LD_")]
        assert {"LD_PRELOAD=", "LD_AUDIT=", "LD_LIBRARY_PATH="} <= set(loaders)
        assert all(each.endswith("=") for each in loaders), "what the image says of loaders does not count"
        await fleet.sandbox("s1").destroy()
        assert docker_engine.client("volume", "ls", "--quiet") == ""
        assert not (tmp_path / "sandboxes/s1").exists()


async def test_what_an_image_sets_for_its_programs_reaches_them_beneath_our_own(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    image = f"holdfast-test/env:{uuid.uuid4().hex}"
    docker_engine.load(image, busybox(), "ENV PATH=/opt/own:/bin", "ENV OWN=image", "ENV OURS=image", "ENV HOME=/root")
    async with opened(docker_engine, tmp_path, kits, image=image, base_env={"OURS": "operator"}) as fleet:
        await fleet.start(spec())
        assert await shell(fleet, "echo $PATH $OWN $OURS $HOME") == "/opt/own:/bin image operator /agent"


async def test_a_session_keeps_to_what_its_image_meant_when_the_name_means_another(
    any_engine: AnyEngine, tmp_path: Path, kits: Kits
) -> None:
    image = f"holdfast-test/moving:{uuid.uuid4().hex}"
    any_engine.load(image, busybox(**{"etc/which": "first"}))
    heard: list[StartProgress] = []
    async with opened(any_engine, tmp_path, kits) as fleet:
        await fleet.start(spec(image=image), heard.append)
        assert await shell(fleet, "cat /etc/which") == "first"
        (first,) = heard
        assert isinstance(first, ImageChosen)
        assert (first.name, bool(first.id)) == (image, True)
        any_engine.load(image, busybox(**{"etc/which": "second"}))
        kept = spec(incarnation=2, image=image, image_id=first.id)
        await fleet.start(kept, heard.append)
        assert await shell(fleet, "cat /etc/which") == "first"
        assert heard[1] == first
        await fleet.start(spec("s2", image=image), heard.append)
        assert await shell(fleet, "cat /etc/which", "s2") == "second"
        await fleet.sandbox("s1").stop()
        any_engine.client("rmi", first.id)
        await fleet.start(spec(incarnation=3, image=image, image_id=first.id), heard.append)
        assert await shell(fleet, "cat /etc/which") == "second", "nobody has the first any more"
        assert heard[3] == heard[2] != first
        gone = f"holdfast-test/none@sha256:{'0a' * 32}"
        with pytest.raises(SandboxFailed, match="there is no image holdfast-test/none@sha256:"):
            await fleet.start(spec(incarnation=4, image=image, image_id=first.id, image_digest=gone))


async def test_an_image_with_accounts_keeps_them_and_the_user_has_a_name(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    image = f"holdfast-test/accounts:{uuid.uuid4().hex}"
    docker_engine.load(image, busybox(**{"etc/passwd": "daemon:x:1:1::/:/bin/false\n"}))
    async with opened(docker_engine, tmp_path, kits, image=image) as fleet:
        await fleet.start(spec())
        told = await shell(fleet, "cat /etc/passwd; whoami")
        assert told == "daemon:x:1:1::/:/bin/false\nagent:x:1000:1000::/agent:/bin/sh\nagent"


async def test_why_a_start_fails_is_told_in_words(docker_engine: DockerEngine, tmp_path: Path, kits: Kits) -> None:
    warnings: list[str] = []
    nothing = "holdfast-test/nothing:1"
    async with opened(docker_engine, tmp_path / "none", kits, image=nothing, warn=warnings.append) as fleet:
        assert f"there is no image {nothing}" in warnings[0]
        with pytest.raises(SandboxFailed, match=r"no image holdfast-test/nothing:1 .*: pull or build it"):
            await fleet.start(spec())
    async with opened(docker_engine, tmp_path / "runtime", kits, runtime="no-such-runtime") as fleet:
        with pytest.raises(SandboxFailed, match=r"did not start: .*no-such-runtime"):
            await fleet.start(spec())
        assert await fleet.containers.all(stopped=True) == []
    fleet = fleet_on(docker_engine, tmp_path / "gvisor", kits, runtime="runsc")
    with pytest.raises(SandboxFailed, match="the container engine has no runtime runsc"):
        await fleet.open()
    assert "no runtime runsc" in ((await fleet.health()).problem or "")
    with pytest.raises(SandboxFailed, match="no way out yet"):
        fleet.check(spec(network="outbound"))
    await fleet.close()
    small = ContainerLimits(memory_bytes=12 << 20)
    async with opened(docker_engine, tmp_path / "small", kits, limits=small) as fleet:
        with pytest.raises(SandboxFailed, match=r"did not start: .*memory"):
            await fleet.start(spec())
        assert await fleet.running() == []


async def test_a_program_that_ends_at_once_is_noticed_at_once(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    """A kit that does not run, say: nobody waits for its door."""
    broken = {tmp_path: "/holdfast-kit/packages/sandbox"}
    async with opened(docker_engine, tmp_path, kits, readable=broken, start_timeout=3600) as fleet:
        with pytest.raises(SandboxFailed, match=r"did not start: it ended at once with code 2"):
            await fleet.start(spec())
        assert read_note(SandboxHome(tmp_path, "s1")) is None


async def test_a_container_that_nobody_lets_in_ends_by_itself(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a gateway that was killed, or stopped for ever, between the engine's start and the door."""

    async def nobody(doorway: object, descriptors: object, uid: object, is_first: object) -> Caller:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(Doorway, "hand_over", nobody)
    async with opened(docker_engine, tmp_path, kits, door_seconds=0.5, start_timeout=3600) as fleet:
        with pytest.raises(SandboxFailed, match="it ended at once with code 1"):
            await fleet.start(spec())


async def test_a_start_that_is_given_up_leaves_no_container(fleet: _Fleet, tmp_path: Path) -> None:
    starting = asyncio.create_task(fleet.start(spec()))
    note = await until(lambda: read_note(SandboxHome(tmp_path, "s1")))
    starting.cancel()
    await asyncio.wait({starting})
    assert starting.cancelled()
    assert note.container
    assert await fleet.containers.all(stopped=True) == []
    assert read_note(SandboxHome(tmp_path, "s1")) is None


async def test_a_start_that_is_given_up_while_the_engine_makes_the_container_leaves_none(fleet: _Fleet) -> None:
    starting = asyncio.create_task(fleet.start(spec()))
    names: set[str] = set()
    while "container.create" not in names:
        await asyncio.sleep(0)  # each turn of the loop: it may be over soon
        names = {task.get_name() for task in asyncio.all_tasks()}
    starting.cancel()
    await asyncio.wait({starting})
    assert starting.cancelled()
    # The engine may come to what it was asked for at any time: so ask for something after it.
    await fleet.start(spec("s2"))
    assert len(await fleet.containers.all(stopped=True)) == 1


async def test_a_foreign_container_with_our_name_is_neither_used_nor_removed(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    async with opened(docker_engine, tmp_path, kits, propose=named("house")) as fleet:
        name = fleet.containers.name("s1")
        labels = {"dev.holdfast.installation": "another", "dev.holdfast.session": "s1"}
        said = {"Image": docker_engine.image, "Cmd": ["sleep", "600"], "Labels": labels}
        foreign, _ = await fleet.containers.engine.create(name, {**said, "HostConfig": {"NetworkMode": "none"}})
        await fleet.containers.engine.start(foreign)
        try:
            sandbox = fleet.sandbox("s1")
            assert not await sandbox.runs()
            assert not await sandbox.kill()
            await sandbox.destroy()
            with pytest.raises(LinkRefused):
                await sandbox.connect(Owner(), None)
            with pytest.raises(SandboxFailed, match=r"did not start: .*already in use"):
                await fleet.start(spec())
            found = await fleet.containers.engine.inspect(foreign)
            assert found is not None
            assert found["State"]["Running"]
        finally:
            await fleet.containers.engine.remove(foreign)


async def test_another_gateway_on_the_same_directory_finds_what_runs_and_removes_what_nobody_knows(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    async with opened(docker_engine, tmp_path, kits, propose=named("house")) as fleet:
        for session_id in ("runs", "ended", "unknown"):
            await fleet.start(spec(session_id))
        owner = Owner()
        link = await attach(fleet, owner, session_id="runs")
        epoch = await run_agent(link, owner)
        assert await fleet.sandbox("ended").kill()
        SandboxHome(tmp_path, "unknown").drop_note()
        async with opened(docker_engine, tmp_path / "other", kits, propose=named("other-house")) as other:
            assert await other.running() == []
        second = fleet_on(docker_engine, tmp_path, kits, propose=named("house"))
        await second.open()
        assert await second.running() == ["runs"]
        assert sorted(each.session_id for each in await second.leftovers()) == ["ended", "unknown"]
        assert [await second.clear(each) for each in await second.leftovers()] == [True, True]
        assert len(await second.containers.all(stopped=True)) == 1
        later = Owner()
        link = await second.sandbox("runs").connect(later, None)
        await until(lambda: later.hellos and later.lines() == [b"start"])
        assert later.epoch == epoch
        link.close()
        await second.close()


async def test_a_copy_of_the_store_beside_another_directory_has_containers_of_its_own(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    """As of a backup that was put back beside the gateway that it is of."""
    async with (
        opened(docker_engine, tmp_path / "first", kits, propose=named("house")) as first,
        opened(docker_engine, tmp_path / "copy", kits, propose=named("house")) as copy,
    ):
        await first.start(spec())
        assert await copy.running() == []
        assert not await copy.sandbox("s1").runs()
        await copy.start(spec())
        await copy.sandbox("s1").destroy()
        assert await first.running() == ["s1"]
        assert await shell(first, "echo here") == "here"


async def test_a_container_of_an_earlier_gateway_is_found_whatever_the_stores_id_is_now(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was named by an id of the data directory's, and did not say whose roots it has."""
    with monkeypatch.context() as earlier:
        old = "0123456789abcdef"
        tmp_path.joinpath("installation").write_text(old)
        labels = {"dev.holdfast.installation": old, "dev.holdfast.session": "s1"}
        earlier.setattr(Containers, "labels", lambda self, session_id: labels)
        before = fleet_on(docker_engine, tmp_path, kits, propose=None)
        await before.open()
        await before.start(spec())
        await before.close()
    async with opened(docker_engine, tmp_path, kits, propose=named("house")) as fleet:
        assert await fleet.running() == ["s1"]
        assert await shell(fleet, "echo here") == "here"
        await fleet.start(dataclasses.replace(spec(), incarnation=2))
        (found,) = await fleet.containers.all(stopped=True)
        assert found["Labels"]["dev.holdfast.installation"] == "house"


async def test_an_engine_that_is_killed_disturbs_nobody_and_nothing_is_taken_for_gone(
    fleet: _Fleet, docker_engine: DockerEngine
) -> None:
    await fleet.start(spec())
    owner = Owner()
    link = await attach(fleet, owner)
    await run_agent(link, owner)
    docker_engine.kill()
    try:
        link.deliver(1, b"while the engine is away")
        await until(lambda: len(owner.lines()) == 2)
        assert await shell(fleet, "echo here") == "here"
        for ask in (fleet.running, fleet.sandbox("s1").runs, fleet.sandbox("s1").stop, fleet.sandbox("s1").kill):
            with pytest.raises(SandboxUnavailable, match="does not answer"):
                await ask()
        with pytest.raises(SandboxUnavailable):
            await fleet.start(spec(incarnation=2))
    finally:
        docker_engine.start()
    assert await fleet.running() == ["s1"]
    assert owner.lost == []
    await fleet.sandbox("s1").stop()
    await until(lambda: owner.lost)
    assert await fleet.running() == []


async def test_a_gateway_opens_while_the_engine_is_away_and_starts_when_it_is_back(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    warnings: list[str] = []
    fleet = fleet_on(docker_engine, tmp_path, kits, warn=warnings.append)
    docker_engine.kill()
    try:
        await fleet.open()
        assert "does not answer" in warnings[0]
    finally:
        docker_engine.start()
    await fleet.start(spec())
    assert await fleet.running() == ["s1"]
    await fleet.sandbox("s1").destroy()
    await fleet.close()


async def test_a_bridge_that_its_engine_lost_is_ended_before_another_has_the_roots(
    fleet: _Fleet, tmp_path: Path
) -> None:
    """An engine may say that a container has ended while its first process runs on: the note knows that one."""
    home = SandboxHome(tmp_path, "s1")
    await fleet.start(spec())
    note = read_note(home)
    assert note is not None
    with subprocess.Popen(["sleep", "600"]) as orphan:
        found = find(orphan.pid)
        assert found is not None
        write_note(home, dataclasses.replace(note, pid=found.pid, started=found.started))
        await fleet.sandbox("s1").stop()
        assert not found.alive
    assert read_note(home) is None


async def test_twenty_start_at_once(fleet: _Fleet) -> None:
    names = [f"s{number:02}" for number in range(20)]
    await asyncio.gather(*(fleet.start(spec(name)) for name in names))
    assert await fleet.running() == names
    told = await asyncio.gather(*(shell(fleet, "echo $HOLDFAST_SESSION_ID", name) for name in names))
    assert told == names


async def test_files_of_the_user_that_containers_had_before_are_given_to_the_one_they_have(
    fleet: _Fleet, tmp_path: Path
) -> None:
    """An engine may remap users from one day on, or not any more."""
    await fleet.start(spec())
    await shell(fleet, "mkdir -m 700 /workspace/d; echo mine > /workspace/d/f; ln -s /etc/hostname /workspace/link")
    await fleet.sandbox("s1").stop()
    home = SandboxHome(tmp_path, "s1")
    subprocess.run(["chown", "-hR", "4321:4321", home.kept, home.state], check=True)
    await fleet.start(spec(incarnation=2))
    assert await shell(fleet, "echo more >> /workspace/d/f; cat /workspace/d/f") == "mine\nmore"
    strangers = subprocess.run(["find", home.kept, home.state, "!", "-uid", str(UID)], capture_output=True, check=True)
    assert strangers.stdout == b""
    assert Path("/etc/hostname").stat().st_uid == 0
