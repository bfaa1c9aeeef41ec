"""The finding of `holdfast doctor` about the place of stored workspaces."""

import asyncio
import os

from gateway.cli.commands.doctor_store import WILL_NOT_START, Finding
from gateway.config.settings import Settings
from sync.objects.files import strangers
from sync.ports import ObjectsRefused, ObjectsUnavailable

PROBE_SECONDS = 30.0


def check_objects(settings: Settings) -> Finding:
    return _bucket(settings) if settings.objects.kind == "s3" else _directory(settings)


def _directory(settings: Settings) -> Finding:
    """Only reads: a diagnosis makes no directories."""
    place = settings.objects.path.absolute()
    nearest = next(each for each in (place, *place.parents) if each.exists())
    if not nearest.is_dir():
        return Finding("objects", "fail", f"{nearest} is no directory", "set HOLDFAST_OBJECTS to one")
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Finding("objects", "fail", f"{nearest} cannot be written", "set HOLDFAST_OBJECTS, or chown it")
    if nearest == place and (foreign := strangers(place)):
        told = f"{place} holds files that are not Holdfast's ({', '.join(foreign[:3])})"
        return Finding("objects", "fail", told, "set HOLDFAST_OBJECTS to an empty directory")
    own = settings.data_dir.absolute() / "objects"
    if own.exists() and own.resolve() != place.resolve():
        told = f"{place} is used, and not {own}, which exists as well"
        return Finding("objects", "warn", told, "unset HOLDFAST_OBJECTS to use that, as after `restore --into`")
    return Finding("objects", "ok", f"{place}" if nearest == place else f"{place} does not exist yet")


def _bucket(settings: Settings) -> Finding:
    """Tests it as a start does: writes a few bytes below `probe/` and removes them."""
    from gateway.wiring.objects import make_objects
    from sync.objects.probe import PromiseBroken, probe
    from sync.objects.retrying import RequestLimits

    async def ask() -> None:
        async with asyncio.timeout(PROBE_SECONDS), make_objects(settings, limits=RequestLimits(attempts=3)) as store:
            await probe(store, store.bare)

    try:
        asyncio.run(ask())
    except PromiseBroken as error:
        if settings.objects_unchecked:
            return Finding("objects", "warn", str(error), "HOLDFAST_OBJECTS_UNCHECKED lets it start all the same")
        return Finding("objects", "fail", str(error), WILL_NOT_START)
    except ObjectsRefused as error:
        return Finding("objects", "fail", str(error), WILL_NOT_START)
    except (ObjectsUnavailable, TimeoutError) as error:
        told = f"{settings.objects} cannot be used: {error if str(error) else 'no answer in time'}"
        return Finding("objects", "fail", told, "check the endpoint in HOLDFAST_OBJECTS, and the server")
    return Finding("objects", "ok", f"{settings.objects}; it honours conditional writes")
