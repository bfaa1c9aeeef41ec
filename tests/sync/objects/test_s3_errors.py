"""What a failed request means. The texts are as the driver writes them."""

import pytest

from sync.objects.s3_errors import is_past_the_end, raise_unless_absent, reaction
from sync.ports import Conflict, ObjectsRefused, ObjectsUnavailable, TooManyRequests


def answered(status: int, code: str = "") -> Exception:
    body = f'<?xml version="1.0"?>\n<Error><Code>{code}</Code><Message>m</Message></Error>' if code else ""
    return Exception(
        f"Generic S3 error: Error performing PUT http://h/bucket/k in 1ms - Server returned non-2xx status code: "
        f"{status} Something: {body}\n\nDebug source:\nGeneric {{ status: {status} }}"
    )


def broke(cause: str) -> Exception:
    return Exception(f"Generic S3 error: Error performing GET http://h/b/k in 3ms - HTTP error: error\n\n{cause}")


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (answered(412, "PreconditionFailed"), Conflict, "412 PreconditionFailed"),
        (answered(304), Conflict, "304"),
        (answered(412, "NoSuchBucket"), ObjectsRefused, "create it"),
        (answered(409, "ConditionalRequestConflict"), ObjectsUnavailable, "409"),
        (answered(408), ObjectsUnavailable, "408"),
        (answered(429, "SlowDown"), TooManyRequests, "429 SlowDown"),
        (answered(500, "InternalError"), ObjectsUnavailable, "500"),
        (answered(503, "SlowDown"), ObjectsUnavailable, "503"),
        (answered(400, "XAmzContentSHA256Mismatch"), ObjectsUnavailable, "Mismatch"),
        (answered(400, "RequestTimeout"), ObjectsUnavailable, "RequestTimeout"),
        (answered(404, "NoSuchUpload"), ObjectsUnavailable, "NoSuchUpload"),
        (answered(501, "NotImplemented"), ObjectsRefused, "501"),
        (answered(400, "InvalidRequest"), ObjectsRefused, "HOLDFAST_OBJECTS"),
        (answered(403, "InvalidAccessKeyId"), ObjectsRefused, "AWS_ACCESS_KEY_ID"),
        (answered(403, "SignatureDoesNotMatch"), ObjectsRefused, "AWS_SECRET_ACCESS_KEY"),
        (answered(403, "RequestTimeTooSkewed"), ObjectsRefused, "clock"),
        (answered(403, "AccessDenied"), ObjectsRefused, "list objects"),
        (answered(403), ObjectsRefused, "403"),
        (answered(400, "ExpiredToken"), ObjectsRefused, "renew"),
        (answered(404, "NoSuchBucket"), ObjectsRefused, "create it"),
        (broke("kind: Connect, ConnectionRefused"), ObjectsUnavailable, "nobody listens"),
        (broke("kind: Connect, dns error"), ObjectsUnavailable, "name is not found"),
        (broke("kind: Timeout, TimedOut"), ObjectsUnavailable, "in time"),
        (broke("invalid peer certificate: UnknownIssuer"), ObjectsUnavailable, "certificate"),
        (broke("kind: Connect"), ObjectsUnavailable, "cannot be reached"),
        (broke("kind: Request, IncompleteMessage"), ObjectsUnavailable, "connection was lost"),
        (Exception("Received redirect without LOCATION, incorrectly configured region"), ObjectsRefused, "region"),
        (Exception("Received non-partial response when range requested"), ObjectsRefused, "ranges"),
    ],
)
def test_each_failure_has_one_reaction_and_words_for_it(error: Exception, kind: type[Exception], says: str) -> None:
    told = reaction(error, "bucket", "put k")
    assert type(told) is kind
    assert says in str(told)
    assert "\n" not in str(told)
    assert "bucket" in str(told)


def test_only_a_404_that_says_so_is_an_absent_object() -> None:
    raise_unless_absent(answered(404, "NoSuchKey"), "bucket", "k")
    for elsewhere in (answered(404), answered(404, "NoSuchBucket"), answered(404, "Whatever")):
        with pytest.raises(ObjectsRefused) as caught:
            raise_unless_absent(elsewhere, "bucket", "k")
        assert caught.value.__cause__ is elsewhere


def test_a_range_past_the_end_is_known() -> None:
    assert is_past_the_end(answered(416, "InvalidRange"))
    assert not is_past_the_end(answered(404, "NoSuchKey"))
    assert not is_past_the_end(broke("kind: Connect"))
