"""The place of stored workspaces: a directory or a bucket. Read strictly; a bucket's keys print as stars. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from gateway.config.values import SecretStr, is_loopback
from sync.objects.object_keys import is_key

_WANTS = "wants file://path or s3://bucket/prefix?endpoint=https://host&region=name"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
_REGION = re.compile(r"[a-z0-9-]{1,40}", re.ASCII)
_ENDPOINT = re.compile(r"https?://(?:[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::(\d{1,5}))?/?", re.ASCII)
_ACCOUNT = re.compile(r"[0-9a-f]{32}", re.ASCII)
_KEY_ID, _SECRET, _TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
_OPTIONS = {"endpoint", "region", "allow_http", "checksum"}
_WITHOUT_CHECKSUMS = ".r2.cloudflarestorage.com"


@dataclass(frozen=True, slots=True)
class BucketKeys:
    """The keys of a bucket."""

    access_key_id: str
    secret_access_key: SecretStr
    session_token: SecretStr | None = None


@dataclass(frozen=True, slots=True)
class ObjectsUrl:
    """`kind` is file or s3. A directory uses `path` only, a bucket all other members; `endpoint`, `region` and `keys`
    are certainly set once it is `completed`."""

    kind: str
    path: Path = Path()
    bucket: str = ""
    prefix: str = ""
    endpoint: str = ""
    region: str = ""
    checksum: bool = True
    keys: BucketKeys | None = None

    def __str__(self) -> str:
        if self.kind == "file":
            return f"file://{self.path}"
        below = f"/{self.prefix}" if self.prefix else ""
        at = f"?endpoint={self.endpoint}" if self.endpoint else ""
        return f"s3://{self.bucket}{below}{at}"

    @property
    def secrets(self) -> list[str]:
        """The values that must not be printed."""
        if self.keys is None:
            return []
        token = self.keys.session_token
        return [each.get_secret_value() for each in (self.keys.secret_access_key, token) if each is not None]


def objects_url(text: str) -> ObjectsUrl:
    """Parse the address. No message repeats the value: keys may have been written into it."""
    if text.startswith("file://"):
        path = Path(text.removeprefix("file://"))
        if not path.name or "\0" in text:
            raise ValueError(_WANTS)
        return ObjectsUrl("file", path)
    try:
        parts = urlsplit(text)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), max_num_fields=10)
    except ValueError:
        raise ValueError(_WANTS) from None
    if not text.startswith("s3://") or not text.isascii() or not text.isprintable() or parts.fragment:
        raise ValueError(_WANTS)
    if "@" in parts.netloc:
        raise ValueError(f"wants no keys in the address: they are read from {_KEY_ID} and {_SECRET}")
    if not _BUCKET.fullmatch(parts.netloc):
        raise ValueError("must name a bucket: s3://bucket/prefix; 3 to 63 of a-z 0-9 . -")
    prefix = parts.path.strip("/")
    if prefix and not (is_key(prefix) and len(prefix) <= 200):
        raise ValueError("wants a prefix of A-Z a-z 0-9 . _ - with single / between, 200 at most")
    return replace(ObjectsUrl("s3", bucket=parts.netloc, prefix=prefix), **_read_options(options))


def _read_options(options: list[tuple[str, str]]) -> dict[str, Any]:
    given = dict(options)
    if len(given) < len(options) or not _OPTIONS.issuperset(given):
        raise ValueError(f"takes each of the options {', '.join(sorted(_OPTIONS))} once, and no others")
    region, endpoint = given.get("region"), given.get("endpoint")
    if region is not None and not _REGION.fullmatch(region):
        raise ValueError("wants a region such as eu-central-1, or auto")
    if given.get("allow_http", "true") not in ("true", "false"):
        raise ValueError("wants allow_http=true or false")
    if given.get("checksum", "none") not in ("sha256", "none"):
        raise ValueError("wants checksum=sha256 or none")
    if endpoint is not None:
        endpoint = _endpoint(endpoint, given.get("allow_http") == "true")
    return {"endpoint": endpoint or "", "region": region or "", "checksum": given.get("checksum") != "none"}


def _endpoint(text: str, allow_http: bool) -> str:
    match = _ENDPOINT.fullmatch(text)
    if match is None or (match[1] is not None and not 1 <= int(match[1]) <= 65535):
        raise ValueError("wants an endpoint such as https://host or http://127.0.0.1:9000, without a path")
    if text.startswith("http:") and not allow_http and not is_loopback(urlsplit(text).hostname or ""):
        raise ValueError(
            "wants an endpoint with https:// (http:// on loopback, or with &allow_http=true on a network you trust): "
            "workspaces would go over the network in the clear"
        )
    return text.rstrip("/")


def completed(url: ObjectsUrl, environ: Mapping[str, str]) -> ObjectsUrl:
    """Add to a bucket's address the parts from the environment: the keys, and the endpoint of Cloudflare R2. Raises
    ValueError if a part is missing."""
    if url.kind != "s3":
        return url
    endpoint = url.endpoint or _known_endpoint(url.region, environ.get("CF_ACCOUNT_ID", ""))
    checksum = url.checksum and not endpoint.endswith(_WITHOUT_CHECKSUMS)
    return replace(url, endpoint=endpoint, region=url.region or "auto", checksum=checksum, keys=_keys(environ))


def _known_endpoint(region: str, account: str) -> str:
    """Amazon S3's endpoint if there is a region, which R2 does not have; else the Cloudflare account's."""
    if region not in ("", "auto"):
        return f"https://s3.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")
    if not account:
        raise ValueError("needs ?region=... for Amazon S3, CF_ACCOUNT_ID for Cloudflare R2, or ?endpoint=https://host")
    if not _ACCOUNT.fullmatch(account):
        raise ValueError("cannot be found: CF_ACCOUNT_ID is not the 32 digits of a Cloudflare account")
    return f"https://{account}.r2.cloudflarestorage.com"


def _keys(environ: Mapping[str, str]) -> BucketKeys:
    found = {name: environ.get(name, "") for name in (_KEY_ID, _SECRET, _TOKEN)}
    if missing := [name for name in (_KEY_ID, _SECRET) if not found[name]]:
        raise ValueError(f"needs {' and '.join(missing)} for a bucket")
    for name, value in found.items():
        if not value.isascii() or not value.isprintable() or " " in value:
            raise ValueError(f"cannot be opened: {name} is not printable ASCII without spaces")
    token = SecretStr(found[_TOKEN]) if found[_TOKEN] else None
    return BucketKeys(found[_KEY_ID], SecretStr(found[_SECRET]), token)
