"""The object stores of a campaign: outside of the gateway, and mortal."""

import asyncio
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from sync.objects.files import FileObjects
from sync.ports import ObjectStore, ObjectsUnavailable
from tests.support.s3 import START_SECONDS, S3Place, S3Server


class Cupboard(Protocol):
    """An object store. `environ` is the environment of a gateway that uses it."""

    @property
    def environ(self) -> dict[str, str]: ...
    def objects(self) -> ObjectStore:
        """It, as a test looks into it: past every proxy."""
        ...

    @property
    def mortal(self) -> bool:
        """Whether it is a process that can be killed."""
        ...

    def kill(self) -> None: ...
    async def start(self, *, patiently: bool = True) -> None:
        """Start it again, on its data. `patiently`: return when it serves requests, not only answers."""
        ...

    async def comes_to_itself(self) -> None:
        """Wait until it serves requests."""
        ...


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory: it dies with the gateway only."""

    path: Path
    mortal = False

    @property
    def environ(self) -> dict[str, str]:
        return {"HOLDFAST_OBJECTS": f"file://{self.path}"}

    def objects(self) -> ObjectStore:
        return FileObjects(self.path)

    def kill(self) -> None:
        raise AssertionError("a directory cannot be killed")

    async def start(self, *, patiently: bool = True) -> None:
        raise AssertionError("a directory is always there")

    async def comes_to_itself(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Bucket:
    """A place on an S3 server; the gateway reaches it at the port `through`, if that is given."""

    server: S3Server
    place: S3Place
    through: int | None = None
    mortal = True

    @property
    def environ(self) -> dict[str, str]:
        return (self.place if self.through is None else self.place.at(self.through)).environ

    def objects(self) -> ObjectStore:
        return self.place.objects()

    def kill(self) -> None:
        self.server.kill()

    async def start(self, *, patiently: bool = True) -> None:
        self.server.start()
        if patiently:
            await self.comes_to_itself()

    async def comes_to_itself(self) -> None:
        """For seconds after a start, SeaweedFS may answer that its objects do not exist."""
        async with self.objects() as store, asyncio.timeout(START_SECONDS):
            while True:
                try:
                    await store.put("ready", b"")
                    async for each in store.list(""):
                        await store.get(each.key)
                    return
                except ObjectsUnavailable:
                    await asyncio.sleep(0.02)


async def everything_in(cupboard: Cupboard) -> dict[str, str]:
    """The hash of every object that is part of a snapshot, by key."""
    async with cupboard.objects() as store:
        found: dict[str, str] = {}
        async for each in store.list("v1/"):
            got = await store.get(each.key)
            found[each.key] = "gone" if got is None else sha256(got.content).hexdigest()
        return found
