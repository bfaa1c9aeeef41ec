"""Objects in a bucket of Amazon S3, Cloudflare R2, MinIO, SeaweedFS, or any server with their protocol.

A request is sent once; retrying.py decides about retries. Two operations consist of many requests: a listing of its
pages, a large upload of its parts. If each lost request restarted them, they would never end on a bad day. So each
request of those is sent up to 4 times. Addresses are path-style, which all servers take. A SHA-256 goes with every
write, so that the server refuses content that changed on the way. Some servers check the one in the signature and do
not know the header for it (R2); others do the opposite (SeaweedFS).

A write answered with 409 or 5xx, or not at all, may have happened: it is ObjectsUnavailable, never Conflict.
"""

from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from obstore.exceptions import BaseError
from obstore.store import S3Store

from sync.objects.object_keys import check_key, check_prefix, is_key
from sync.objects.s3_errors import is_past_the_end, raise_unless_absent, reaction
from sync.ports import Found, Got, ObjectsRefused

if TYPE_CHECKING:
    from obstore import PutMode, PutResult
    from obstore.store import BackoffConfig, RetryConfig, S3Config, S3Credential

CONNECT_SECONDS = 5.0
REQUEST_SECONDS = 60.0  # a whole request, with its body
WHOLE_BYTES = 32 << 20  # more goes up in parts
PART_BYTES = 8 << 20  # all but the last have the same size, as R2 demands
PARTS_AT_ONCE = 4
PAGE = 1000
DRIVER_ERRORS = (BaseError, OSError)  # a 404 is FileNotFoundError


class S3Objects:
    """`endpoint` is `https://s3.eu-central-1.amazonaws.com`, `https://<account>.r2.cloudflarestorage.com` or the
    like. `prefix` is empty, or a key below which all objects are. Without `checksum` the SHA-256 is in the signature
    alone. A conditional write goes up in one request."""

    def __init__(
        self,
        bucket: str,
        *,
        endpoint: str,
        region: str,
        access_key_id: str,
        secret_access_key: str,
        session_token: str | None = None,
        prefix: str = "",
        checksum: bool = True,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        # The driver would take missing values from the environment, which only Settings may read.
        config: S3Config = {
            "endpoint": endpoint,
            "aws_endpoint_url_s3": endpoint,
            "region": region,
            "conditional_put": "etag",
            "virtual_hosted_style_request": False,
            "unsigned_payload": False,
            "skip_signature": False,
            "s3_express": False,
            "disable_bulk_delete": True,
        }
        if checksum:
            config["checksum_algorithm"] = "sha256"

        def credentials() -> "S3Credential":
            return {
                "access_key_id": access_key_id,
                "secret_access_key": secret_access_key,
                "token": session_token,
                "expires_at": None,
            }

        def store(retry: "RetryConfig") -> S3Store:
            return S3Store(
                bucket,
                prefix=prefix or None,
                config=config,
                client_options={
                    "allow_http": endpoint.startswith("http://"),
                    "connect_timeout": timedelta(seconds=min(CONNECT_SECONDS, request_seconds)),
                    "timeout": timedelta(seconds=request_seconds),
                },
                retry_config=retry,
                credential_provider=credentials,
            )

        self._once = store({"max_retries": 0})
        backoff: BackoffConfig = {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=5),
            "base": 2,
        }
        self._patient = store({"max_retries": 3, "backoff": backoff, "retry_timeout": timedelta(minutes=2)})
        self._bucket = bucket

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def put(self, key: str, content: bytes) -> str:
        if len(content) <= WHOLE_BYTES:
            return await self._write(key, content, "overwrite")
        parts = self._patient.put_async(
            check_key(key), content, use_multipart=True, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
        )
        return await self._written(key, parts)

    async def create(self, key: str, content: bytes) -> str:
        return await self._write(key, content, "create")

    async def replace(self, key: str, content: bytes, etag: str) -> str:
        return await self._write(key, content, {"e_tag": etag})

    async def get(self, key: str) -> Got | None:
        check_key(key)
        try:
            answer = await self._once.get_async(key)
            content = bytes(await answer.bytes_async())
            return Got(content, self._etag(answer.meta["e_tag"]))
        except FileNotFoundError as exc:
            raise_unless_absent(exc, self._bucket, key)
            return None
        except DRIVER_ERRORS as exc:
            raise reaction(exc, self._bucket, f"get {key}") from exc

    async def get_range(self, key: str, start: int, length: int) -> bytes | None:
        check_key(key)
        if length == 0:
            return None if await self.head(key) is None else b""
        try:
            return bytes(await self._once.get_range_async(key, start=start, length=length))
        except FileNotFoundError as exc:
            raise_unless_absent(exc, self._bucket, key)
            return None
        except DRIVER_ERRORS as exc:
            if is_past_the_end(exc):
                return b""
            raise reaction(exc, self._bucket, f"get {key}") from exc

    async def head(self, key: str) -> Found | None:
        check_key(key)
        try:
            meta = await self._once.head_async(key)
            return Found(key, meta["size"], self._etag(meta["e_tag"]))
        except FileNotFoundError:
            # The answer to HEAD has no text; the one to GET says whether the object is missing, or the bucket.
            there = await self.get(key)
            return None if there is None else Found(key, len(there.content), there.etag)
        except DRIVER_ERRORS as exc:
            raise reaction(exc, self._bucket, f"head {key}") from exc

    async def list(self, prefix: str) -> AsyncIterator[Found]:
        pages = self._patient.list(check_prefix(prefix) or None, chunk_size=PAGE)
        while True:
            try:
                page = await anext(pages)
            except StopAsyncIteration:
                return
            except DRIVER_ERRORS as exc:
                raise reaction(exc, self._bucket, f"list {prefix}") from exc
            for meta in page:
                if is_key(meta["path"]):  # objects of others may have any name
                    yield Found(meta["path"], meta["size"], meta["e_tag"] or "")

    async def delete(self, key: str) -> None:
        check_key(key)
        try:
            await self._once.delete_async(key)
        except FileNotFoundError as exc:
            raise_unless_absent(exc, self._bucket, key)
        except DRIVER_ERRORS as exc:
            raise reaction(exc, self._bucket, f"delete {key}") from exc

    async def _write(self, key: str, content: bytes, mode: "PutMode") -> str:
        return await self._written(key, self._once.put_async(check_key(key), content, mode=mode, use_multipart=False))

    async def _written(self, key: str, write: "Awaitable[PutResult]") -> str:
        try:
            return self._etag((await write)["e_tag"])
        except DRIVER_ERRORS as exc:
            raise reaction(exc, self._bucket, f"put {key}") from exc

    def _etag(self, etag: str | None) -> str:
        if not etag:
            raise ObjectsRefused(
                f"the server of bucket {self._bucket} returns no etags: nothing can be replaced safely"
            )
        return etag
