"""Heads that two readers could understand differently are refused; ordinary ones are not."""

import pytest

from gateway.server import request_rules as rules
from gateway.server.admission import Refusal
from gateway.server.request_rules import RequestRefused, announces_body

HOST = (b"host", b"h")
CHUNKED = (b"transfer-encoding", b"chunked")
LENGTH = (b"content-length", b"5")


@pytest.mark.parametrize(
    ("headers", "version", "has_body"),
    [
        ([HOST], "1.1", False),
        ([HOST, (b"accept", b"*/*")], "1.1", False),
        ([], "1.0", False),
        ([HOST], "1.0", False),
        ([HOST, LENGTH], "1.1", True),
        ([LENGTH], "1.0", True),
        ([HOST, (b"content-length", b"0")], "1.1", False),
        ([CHUNKED, HOST], "1.1", True),
        ([HOST, (b"transfer-encoding", b" Chunked\t")], "1.1", True),
    ],
)
def test_whether_a_body_follows(headers: list[tuple[bytes, bytes]], version: str, has_body: bool) -> None:
    assert announces_body(headers, version=version, upgrades=False, body_bytes=5) is has_body


@pytest.mark.parametrize(
    ("headers", "version", "upgrades", "refusal"),
    [
        ([HOST], "0.9", False, rules.BAD_VERSION),
        ([HOST], "2.0", False, rules.BAD_VERSION),
        ([], "1.1", False, rules.BAD_HOST),
        ([HOST, HOST], "1.1", False, rules.BAD_HOST),
        ([HOST, HOST], "1.0", False, rules.BAD_HOST),
        ([HOST, CHUNKED], "1.0", False, rules.BAD_CODING),
        ([HOST, CHUNKED, CHUNKED], "1.1", False, rules.BAD_CODING),
        ([HOST, (b"transfer-encoding", b"gzip, chunked")], "1.1", False, rules.BAD_CODING),
        ([HOST, (b"content-length", b"6")], "1.1", False, rules.BODY_TOO_LARGE),
        ([HOST, LENGTH], "1.1", True, rules.UPGRADE_WITH_BODY),
        ([HOST, CHUNKED], "1.1", True, rules.UPGRADE_WITH_BODY),
    ],
)
def test_what_is_refused(headers: list[tuple[bytes, bytes]], version: str, upgrades: bool, refusal: Refusal) -> None:
    with pytest.raises(RequestRefused) as found:
        announces_body(headers, version=version, upgrades=upgrades, body_bytes=5)
    assert found.value.refusal is refusal


def test_an_upgrade_without_a_body_is_none_of_these() -> None:
    assert not announces_body([HOST, (b"content-length", b"0")], version="1.1", upgrades=True, body_bytes=5)
