"""What a failed request to an S3 server means for the caller. Pure: the driver gives status and code in its text.

Three reactions. Conflict: the server has looked, and the condition did not hold. ObjectsRefused: it will answer the
same the next time, so a person has to change something. ObjectsUnavailable: everything else; a write may have
happened. A 429 among these is TooManyRequests: the caller waits longer before it retries.
"""

import re

from sync.ports import Conflict, ObjectsRefused, ObjectsUnavailable, TooManyRequests

_STATUS = re.compile(r"status code: (\d{3})\b")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
# 400s that concern this one transfer, not the request.
_TRANSIENT = {"RequestTimeout", "BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody", "NoSuchUpload"}
_WORDS = {
    "NoSuchBucket": "create it, or fix HOLDFAST_OBJECTS",
    "InvalidAccessKeyId": "check AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "check AWS_SECRET_ACCESS_KEY, and the region in HOLDFAST_OBJECTS",
    "NotImplemented": "if it knows no checksums, add checksum=none to HOLDFAST_OBJECTS",
    "RequestTimeTooSkewed": "set this machine's clock",
    "ExpiredToken": "renew the credentials",
    "AccessDenied": "the key needs to read, write, delete and list objects in the bucket",
}
_CAUSES = {
    "certificate": "its certificate is not trusted",
    "dns error": "its name is not found",
    "TimedOut": "it did not answer in time",
    "ConnectionRefused": "nobody listens there",
    "kind: Connect": "it cannot be reached",
}


def reaction(error: Exception, bucket: str, doing: str) -> Exception:
    """The error to raise instead of the driver's."""
    text = str(error)
    status, code = _answer(text)
    if status is None:
        if "Received redirect" in text:
            return ObjectsRefused(f"bucket {bucket} is elsewhere: check region and endpoint in HOLDFAST_OBJECTS")
        if "non-partial response" in text:
            return ObjectsRefused(f"the server of bucket {bucket} does not know ranges: use another")
        cause = next((words for sign, words in _CAUSES.items() if sign in text), "the connection was lost")
        return ObjectsUnavailable(f"{doing}: the server of bucket {bucket}: {cause}")
    told = f"{doing}: the server of bucket {bucket} answered {status}{f' {code}' if code else ''}"
    if status in (304, 412) and code != "NoSuchBucket":
        return Conflict(told)
    if status == 429:
        return TooManyRequests(told)
    if status in (408, 409) or (status >= 500 and status != 501) or code in _TRANSIENT:
        return ObjectsUnavailable(told)
    return ObjectsRefused(f"{told}; {_WORDS.get(code, 'check HOLDFAST_OBJECTS and the server')}")


def raise_unless_absent(error: Exception, bucket: str, key: str) -> None:
    """Return if a server that knows the bucket says that it has no such object. Any other 404 may come from anybody:
    if it counted as an empty store, a session with stored work would start empty."""
    _, code = _answer(str(error))
    if code != "NoSuchKey":
        raise reaction(error, bucket, f"get {key}") from error


def is_past_the_end(error: Exception) -> bool:
    return _answer(str(error))[0] == 416


def _answer(text: str) -> tuple[int | None, str]:
    status, code = _STATUS.search(text), _CODE.search(text)
    return int(status[1]) if status else None, code[1] if code else ""
