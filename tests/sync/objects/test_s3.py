"""Objects on a real S3 server, and on one that is busy, deaf, silent, killed, or somebody else's."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from random import Random

import pytest

from sync.objects.retrying import RequestLimits, RetryingObjects
from sync.objects.s3 import PART_BYTES, WHOLE_BYTES, S3Objects
from sync.ports import Conflict, ObjectsRefused, ObjectsUnavailable
from tests.contract.object_store import found_in
from tests.support.faulty_s3 import FaultyS3
from tests.support.s3 import S3Place, S3Server
from tests.support.waiting import until

QUICK = RequestLimits(base_seconds=0.001, cap_seconds=0.02)


@pytest.fixture
def place(s3_server: S3Server) -> S3Place:
    return s3_server.make_place()


@pytest.fixture
async def faults(s3_server: S3Server) -> AsyncIterator[FaultyS3]:
    async with FaultyS3(s3_server.port, Random(5)) as faults:
        yield faults


@pytest.fixture
def store(place: S3Place, faults: FaultyS3) -> S3Objects:
    """Through the proxy."""
    return place.at(faults.port).objects()


def retrying(store: S3Objects, limits: RequestLimits = QUICK) -> RetryingObjects:
    return RetryingObjects(store, limits, Random(3))


# -- the address ------------------------------------------------------------------------------------------------------


async def test_objects_lie_below_the_prefix_and_are_seen_from_there(place: S3Place) -> None:
    whole, below = place.objects(), replace(place, prefix=f"{place.prefix}/some/where").objects()
    await below.put("a/b", b"x")
    await whole.put("some/where-else", b"")
    assert set(await found_in(whole, "")) == {"some/where/a/b", "some/where-else"}
    assert set(await found_in(below, "")) == {"a/b"}
    assert set(await found_in(below, "a/")) == {"a/b"}
    assert await below.get("where-else") is None


async def test_a_missing_bucket_is_refused_by_every_method_and_never_taken_for_an_empty_one(place: S3Place) -> None:
    store = replace(place, bucket="no-such-bucket").objects()
    for call in (
        store.put("k", b""),
        store.create("k", b""),
        store.get("k"),
        store.get_range("k", 0, 1),
        store.get_range("k", 0, 0),
        store.head("k"),
        found_in(store, ""),
        store.put("k", b"x" * (WHOLE_BYTES + 1)),
    ):
        with pytest.raises(ObjectsRefused, match="NoSuchBucket; create it"):
            await call


@pytest.mark.parametrize(
    ("wrong", "says"),
    [({"access_key_id": "nobody"}, "AWS_ACCESS_KEY_ID"), ({"secret_access_key": "guess"}, "AWS_SECRET_ACCESS_KEY")],
)
async def test_wrong_keys_are_refused_and_not_repeated(place: S3Place, wrong: dict[str, str], says: str) -> None:
    store = replace(place, **wrong).objects()
    for call in (store.get("k"), store.put("k", b""), found_in(store, "")):
        with pytest.raises(ObjectsRefused, match=says) as caught:
            await call
        assert "guess" not in f"{caught.value} {caught.value.__cause__}"
    with pytest.raises(ObjectsRefused, match="403"):
        await store.head("k")


async def test_a_server_that_is_not_there_is_unavailable(place: S3Place) -> None:
    store = place.at(1).objects()
    with pytest.raises(ObjectsUnavailable, match="nobody listens"):
        await store.get("k")
    with pytest.raises(ObjectsUnavailable):
        await store.create("k", b"")
    with pytest.raises(ObjectsUnavailable):
        await found_in(store, "")


def test_the_environment_is_not_read(place: S3Place) -> None:
    program = (
        "import asyncio, os\nfrom tests.support.s3 import S3Place\n"
        f"asyncio.run({place!r}.objects().put('from/elsewhere', b'x'))\n"
        "os._exit(0)  # as gateway.cli.run does, for the driver's threads\n"
    )
    misleading = {
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "other",
        "AWS_SECRET_ACCESS_KEY": "other",
        "AWS_SESSION_TOKEN": "other",
        "AWS_REGION": "mars",
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_S3_EXPRESS": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
    }
    subprocess.run([sys.executable, "-c", program], env={**os.environ, **misleading}, check=True)


# -- what passes over the wire ----------------------------------------------------------------------------------------


async def test_large_content_goes_up_in_parts_and_small_in_one_request(store: S3Objects, faults: FaultyS3) -> None:
    await store.put("small", b"x" * 1000)
    await store.delete("small")
    assert [method for method, _ in faults.seen] == ["PUT", "DELETE"]
    faults.seen.clear()
    await store.put("large", bytes(WHOLE_BYTES + 1))
    methods = [method for method, _ in faults.seen]
    assert methods.count("PUT") == WHOLE_BYTES // PART_BYTES + 1
    assert (methods[0], methods[-1], methods.count("POST")) == ("POST", "POST", 2)


async def test_a_lost_part_is_sent_again_without_the_others(store: S3Objects, faults: FaultyS3) -> None:
    content = Random(1).randbytes(WHOLE_BYTES + 1)
    faults.lose_replies(2)
    await store.put("large", content)
    assert [method for method, _ in faults.seen].count("PUT") == WHOLE_BYTES // PART_BYTES + 1 + 2
    got = await store.get("large")
    assert got is not None
    assert got.content == content


async def test_large_content_that_never_gets_through_leaves_what_was_there_and_no_parts(
    store: S3Objects, faults: FaultyS3
) -> None:
    await store.put("large", b"before")
    faults.refused = {"PUT"}
    with pytest.raises(ObjectsUnavailable):
        await store.put("large", bytes(WHOLE_BYTES + 1))
    await until(  # the clean-up goes on behind the refusal
        lambda: any(method == "DELETE" and "uploadId=" in path for method, path in faults.seen),
        lambda: f"the upload is given up; seen: {faults.seen}",
    )
    faults.heal()
    got = await store.get("large")
    assert got is not None
    assert got.content == b"before"


async def test_a_bit_that_turns_on_the_way_is_noticed_by_the_server(store: S3Objects, faults: FaultyS3) -> None:
    faults.corrupt()
    with pytest.raises(ObjectsUnavailable):
        await store.put("k", b"precious" * 100)
    assert await store.get("k") is None
    faults.corrupt()
    await retrying(store).put("k", b"precious" * 100)
    got = await store.get("k")
    assert got is not None
    assert got.content == b"precious" * 100


# -- answers that are late, lost, or no -------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 500, 502, 503, 504, 429, 409])
async def test_a_write_without_a_clear_answer_is_unavailable_and_never_a_conflict(
    store: S3Objects, faults: FaultyS3, status: int
) -> None:
    etag = await store.put("k", b"before")
    for write in (store.create("k", b"x"), store.replace("k", b"x", etag), store.put("k", b"x")):
        faults.answer(status, "Whatever")
        with pytest.raises(ObjectsUnavailable):
            await write
    assert len(faults.seen) == 4, "each was sent once"


async def test_a_write_that_happened_and_whose_answer_was_lost_is_unavailable(
    store: S3Objects, faults: FaultyS3
) -> None:
    faults.lose_replies()
    with pytest.raises(ObjectsUnavailable):
        await store.create("k", b"1")
    got = await store.get("k")
    assert got is not None
    assert got.content == b"1"
    faults.lose_replies()
    with pytest.raises(ObjectsUnavailable):
        await store.replace("k", b"2", got.etag)
    with pytest.raises(Conflict):
        await store.replace("k", b"2", got.etag)


async def test_the_wrapper_recognises_its_own_writes_on_the_real_server(store: S3Objects, faults: FaultyS3) -> None:
    patient = retrying(store)
    faults.lose_replies(2)
    etag = await patient.create("k", b"ours")
    faults.lose_replies(1)
    etag = await patient.replace("k", b"ours again", etag)
    await patient.replace("k", b"and again", etag)
    faults.lose_replies(1)
    with pytest.raises(Conflict):
        await patient.create("k", b"new")


async def test_a_silent_server_is_given_up_on(store: S3Objects, place: S3Place, faults: FaultyS3) -> None:
    hasty = place.at(faults.port).objects(request_seconds=0.3)
    faults.stall()
    for call in (hasty.get("k"), hasty.put("k", b""), hasty.head("k"), hasty.create("k", b"")):
        with pytest.raises(ObjectsUnavailable, match="in time"):
            await call
    faults.heal()
    await store.put("k", b"")


async def test_30_percent_of_errors_are_got_past_with_one_and_a_half_times_the_requests(
    store: S3Objects, faults: FaultyS3
) -> None:
    faults.busy = 0.3
    patient = retrying(store, RequestLimits(attempts=20, base_seconds=0.001, cap_seconds=0.02))

    async def work(number: int) -> None:
        content = b"%d" % number
        await patient.put(f"a/{number}", content)
        etag = await patient.create(f"b/{number}", content)
        await patient.replace(f"b/{number}", content + b"!", etag)
        got = await patient.get(f"b/{number}")
        assert got is not None
        assert got.content == content + b"!"
        await patient.delete(f"a/{number}")

    await asyncio.gather(*map(work, range(120)))
    needed = 5 * 120
    assert faults.harmed > 0.2 * needed
    assert faults.requests <= 1.5 * needed
    assert (patient.requests, patient.retries) == (faults.requests, faults.harmed)
    faults.heal()
    assert len(await found_in(patient, "")) == 120


async def test_an_outage_is_not_hammered(store: S3Objects, faults: FaultyS3) -> None:
    faults.busy = 1.0
    patient = retrying(store)
    ends = await asyncio.gather(*(patient.put(f"k/{n}", b"") for n in range(200)), return_exceptions=True)
    assert all(isinstance(end, ObjectsUnavailable) for end in ends)
    assert faults.requests <= 1.5 * 200
    faults.heal()
    await patient.put("k/after", b"")


async def test_a_killed_server_has_what_it_answered_for(s3_server: S3Server, place: S3Place) -> None:
    async with retrying(place.objects(), RequestLimits(attempts=50, cap_seconds=0.5)) as store:
        etags = dict(
            zip("abcdef", await asyncio.gather(*(store.put(key, key.encode()) for key in "abcdef")), strict=True)
        )
        s3_server.kill()
        with pytest.raises(ObjectsUnavailable):
            await place.objects().get("a")
        s3_server.start()
        assert {key: found.etag for key, found in (await found_in(store, "")).items()} == etags
        await store.replace("a", b"next", etags["a"])
