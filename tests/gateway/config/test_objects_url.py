"""HOLDFAST_OBJECTS: what is taken, what is refused and in which words, and that no key is ever shown."""

from pathlib import Path
from random import Random
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.loading import load_settings
from gateway.config.objects_url import ObjectsUrl, completed, objects_url
from gateway.config.settings import Settings, SettingsError
from gateway.wiring.objects import check_objects, make_objects
from sync.objects.probe import PromiseBroken
from sync.objects.retrying import RequestLimits, RetryingObjects
from sync.ports import ObjectsRefused
from tests.contract.object_store import found_in
from tests.support.s3 import CarelessS3Server, S3Place

SECRET = "S3cr3t-hunter22"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET}
ACCOUNT = "0123456789abcdef0123456789abcdef"


def problem_of(text: str, **environ: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings({"HOLDFAST_OBJECTS": text, **KEYS, **environ})
    (line,) = caught.value.problems
    assert line.startswith("HOLDFAST_OBJECTS ")
    return line


@pytest.mark.parametrize(
    ("text", "path"), [("file://.holdfast/o", ".holdfast/o"), ("file:///var/o", "/var/o"), ("file:///a b/ö", "/a b/ö")]
)
def test_a_directory_is_named_by_its_path(text: str, path: str) -> None:
    url = objects_url(text)
    assert (url.kind, url.path, str(url)) == ("file", Path(path), text)
    assert completed(url, {}) == url
    assert url.secrets == []


@pytest.mark.parametrize(
    ("text", "environ", "endpoint", "region"),
    [
        ("s3://bucket?region=eu-west-1", {}, "https://s3.eu-west-1.amazonaws.com", "eu-west-1"),
        ("s3://bucket?region=cn-north-1", {}, "https://s3.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("s3://bucket", {"CF_ACCOUNT_ID": ACCOUNT}, f"https://{ACCOUNT}.r2.cloudflarestorage.com", "auto"),
        ("s3://bucket?region=auto", {"CF_ACCOUNT_ID": ACCOUNT}, f"https://{ACCOUNT}.r2.cloudflarestorage.com", "auto"),
        ("s3://bucket?region=us-west-2", {"CF_ACCOUNT_ID": ACCOUNT}, "https://s3.us-west-2.amazonaws.com", "us-west-2"),
        (f"s3://bucket?endpoint=https://{ACCOUNT}.eu.r2.cloudflarestorage.com", {}, None, "auto"),
        ("s3://bucket?endpoint=https://h&region=x-1", {"CF_ACCOUNT_ID": ACCOUNT}, "https://h", "x-1"),
        ("s3://bucket/?endpoint=http://127.0.0.1:9000/", {}, "http://127.0.0.1:9000", "auto"),
        ("s3://bucket?endpoint=http://[::1]:9000", {}, "http://[::1]:9000", "auto"),
        ("s3://bucket?endpoint=http%3A%2F%2Flocalhost", {}, "http://localhost", "auto"),
        ("s3://bucket?endpoint=http://minio:9000&allow_http=true", {}, "http://minio:9000", "auto"),
    ],
)
def test_a_bucket_is_found(text: str, environ: dict[str, str], endpoint: str | None, region: str) -> None:
    url = load_settings({"HOLDFAST_OBJECTS": text, **KEYS, **environ}).objects
    endpoint = endpoint or text.partition("endpoint=")[2]
    assert (url.kind, url.bucket, url.prefix, url.endpoint, url.region) == ("s3", "bucket", "", endpoint, region)
    assert url.keys is not None
    assert url.keys.access_key_id == "AKIAEXAMPLE"
    assert url.checksum == ("r2.cloudflarestorage.com" not in endpoint), "R2 refuses the header"


def test_a_prefix_and_a_missing_checksum_are_kept() -> None:
    url = objects_url("s3://my.bucket-1/some/where/?endpoint=https://h&checksum=none")
    assert (url.bucket, url.prefix, url.checksum) == ("my.bucket-1", "some/where", False)
    assert str(url) == "s3://my.bucket-1/some/where?endpoint=https://h"
    assert objects_url("s3://bucket?checksum=sha256").checksum


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("file://", "wants file://path or s3://"),
        ("file:///", "wants file://path"),
        ("file:x", "wants file://path"),
        ("/var/o", "wants file://path"),
        ("s3:bucket", "wants file://path"),
        ("S3://bucket", "wants file://path"),
        ("https://bucket.s3.amazonaws.com", "wants file://path"),
        ("s3://[bucket", "wants file://path"),
        ("s3://bucket#x", "wants file://path"),
        ("s3://bucket?region=é", "wants file://path"),
        ("s3://bucket?region", "wants file://path"),
        ("s3://", "must name a bucket"),
        ("s3://ab", "must name a bucket"),
        ("s3://Bucket", "must name a bucket"),
        ("s3://bucket:80", "must name a bucket"),
        ("s3://bucket/a//b", "wants a prefix"),
        ("s3://bucket/../b", "wants a prefix"),
        ("s3://bucket/a%20b", "wants a prefix"),
        (f"s3://bucket/{'x' * 150}/{'x' * 150}", "wants a prefix"),
        ("s3://bucket?regoin=eu", "options allow_http, checksum, endpoint, region once"),
        ("s3://bucket?region=a&region=b", "once"),
        ("s3://bucket?region=Mars!", "wants a region"),
        ("s3://bucket?region=", "wants a region"),
        ("s3://bucket?region=auto", "needs ?region=... for Amazon S3"),
        ("s3://bucket?endpoint=", "wants an endpoint"),
        ("s3://bucket?endpoint=host:9000", "wants an endpoint"),
        ("s3://bucket?endpoint=https://h/path", "wants an endpoint"),
        ("s3://bucket?endpoint=https://u:p@h", "wants an endpoint"),
        ("s3://bucket?endpoint=https://h:99999", "wants an endpoint"),
        ("s3://bucket?endpoint=http://minio:9000", "allow_http=true"),
        ("s3://bucket?endpoint=http://minio:9000&allow_http=false", "in the clear"),
        ("s3://bucket?endpoint=http://127.0.0.1.example", "in the clear"),
        ("s3://bucket?endpoint=https://h&allow_http=yes", "allow_http=true or false"),
        ("s3://bucket?endpoint=https://h&checksum=md5", "checksum=sha256 or none"),
        ("s3://key:secret@bucket", "wants no keys in the address"),
    ],
)
def test_a_wrong_address_is_refused_in_one_line_that_does_not_repeat_it(text: str, says: str) -> None:
    line = problem_of(text)
    assert says in line
    assert "secret" not in line


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"AWS_ACCESS_KEY_ID": ""}, "needs AWS_ACCESS_KEY_ID for a bucket"),
        ({"AWS_SECRET_ACCESS_KEY": ""}, "needs AWS_SECRET_ACCESS_KEY for a bucket"),
        ({"AWS_SECRET_ACCESS_KEY": f"{SECRET}\n"}, "AWS_SECRET_ACCESS_KEY is not printable ASCII"),
        ({"AWS_SESSION_TOKEN": f"{SECRET} {SECRET}"}, "AWS_SESSION_TOKEN is not printable ASCII"),
    ],
)
def test_missing_and_broken_keys_are_told_and_not_repeated(environ: dict[str, str], says: str) -> None:
    line = problem_of("s3://bucket?region=eu-west-1", **environ)
    assert says in line
    assert SECRET not in line


def test_a_cloudflare_account_is_32_digits() -> None:
    assert "CF_ACCOUNT_ID" in problem_of("s3://bucket", CF_ACCOUNT_ID="evil.example/")
    assert load_settings({"CF_ACCOUNT_ID": "whatever"}).objects.kind == "file", "only a bucket asks for it"


def test_keys_print_as_stars() -> None:
    settings = load_settings(
        {"HOLDFAST_OBJECTS": "s3://bucket?region=eu-west-1", **KEYS, "AWS_SESSION_TOKEN": f"token-{SECRET}"}
    )
    assert SECRET not in f"{settings!r} {settings.objects} {settings.objects!r} {make_objects(settings)!r}"
    assert settings.objects.secrets == [SECRET, f"token-{SECRET}"]


@given(st.text(max_size=20))
def test_whatever_is_written_into_the_address_is_not_told(text: str) -> None:
    for address in (
        f"s3://{text}{SECRET}@bucket",
        f"s3://bucket?endpoint=https://{text}{SECRET}@h",
        f"s3://bucket?{quote(text)}={SECRET}",
        f"s4://{text}{SECRET}",
    ):
        with pytest.raises(SettingsError) as caught:
            load_settings({"HOLDFAST_OBJECTS": address, **KEYS})
        assert SECRET not in str(caught.value)


# -- what is made of it -----------------------------------------------------------------------------------------------


async def test_a_directory_becomes_a_store(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    async with make_objects(settings) as store:
        await check_objects(store, settings, pytest.fail)
        await store.put("a/b", b"x")
    assert (tmp_path / "objects" / "a" / "b").read_bytes() == b"x"


async def test_a_bucket_becomes_a_store(s3_place: S3Place) -> None:
    settings = load_settings(s3_place.environ)
    async with make_objects(settings) as store:
        await store.put("a/b", b"x")
        assert set(await found_in(s3_place.objects(), "")) == {"a/b"}
        assert (store.requests, store.retries, store.sent_bytes) == (1, 0, 1)


async def test_a_store_that_breaks_its_promises_is_refused_unless_nobody_wants_to_know() -> None:
    with CarelessS3Server() as server:
        place = server.make_bucket()
        warnings: list[str] = []
        for unchecked in ("false", "true"):
            settings = load_settings({**place.environ, "HOLDFAST_OBJECTS_UNCHECKED": unchecked})
            store = RetryingObjects(place.objects(), RequestLimits(), Random(1))
            if settings.objects_unchecked:
                await check_objects(store, settings, warnings.append)
            else:
                with pytest.raises(PromiseBroken, match="HOLDFAST_OBJECTS_UNCHECKED"):
                    await check_objects(store, settings, warnings.append)
        assert len(warnings) == 1
        assert issubclass(PromiseBroken, ObjectsRefused)


def test_an_address_that_was_not_completed_is_a_bug_not_a_store() -> None:
    with pytest.raises(AssertionError):
        make_objects(Settings(objects=ObjectsUrl("s3", bucket="bucket")))
