"""The object store that the settings ask for, and the check whether it may be used."""

from collections.abc import Callable
from random import Random

from gateway.config.settings import Settings
from sync.objects.probe import probe
from sync.objects.retrying import RequestLimits, RetryingObjects
from sync.ports import ObjectStore


def make_objects(settings: Settings, *, limits: RequestLimits | None = None) -> RetryingObjects:
    """The store is not contacted before it is entered; the settings have already reported a wrong address."""
    return RetryingObjects(_plain(settings), limits or RequestLimits(), Random())


def _plain(settings: Settings) -> ObjectStore:
    url = settings.objects
    if url.kind == "file":
        from sync.objects.files import FileObjects

        return FileObjects(url.path)
    from sync.objects.s3 import S3Objects

    assert url.keys is not None, "load_settings completes the address"
    token = url.keys.session_token
    return S3Objects(
        url.bucket,
        prefix=url.prefix,
        endpoint=url.endpoint,
        region=url.region,
        checksum=url.checksum,
        access_key_id=url.keys.access_key_id,
        secret_access_key=url.keys.secret_access_key.get_secret_value(),
        session_token=None if token is None else token.get_secret_value(),
    )


async def check_objects(store: RetryingObjects, settings: Settings, warn: Callable[[str], None]) -> None:
    """Raises ObjectsRefused if the store breaks a promise that snapshots need, ObjectsUnavailable if it does not
    answer. With HOLDFAST_OBJECTS_UNCHECKED the store is not asked, and `warn` is called."""
    if settings.objects_unchecked:
        warn("HOLDFAST_OBJECTS_UNCHECKED is set: whether the object store honours conditional writes is not known")
    else:
        await probe(store, store.bare)
