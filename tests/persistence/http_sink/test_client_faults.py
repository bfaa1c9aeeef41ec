"""What a service may answer, byte by byte, and what is made of it."""

import asyncio
import datetime
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from persistence.http_sink.client import SinkClient
from persistence.http_sink.responses import Again, RecordRefused, RecordTaken, RetryReason, Verdict
from sandbox.client.http_client import connect_tcp
from tests.support.sink import TOKEN, SinkProcess
from tests.support.waiting import until

OK = b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"messageId":1}'


class Script:
    """A service that answers the n-th request with the n-th line of its script, and counts connections. An answer
    that is split is sent in two pieces; one that ends with `EOF` ends its connection."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self.connections = 0
        self.requests: list[bytes] = []
        self.said = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self._answers:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head + await reader.readexactly(2))
                answer = self._answers.pop(0)
                for piece in answer.removesuffix(b"EOF").split(b"|"):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.01)
                self.said.set()
                if answer.endswith(b"EOF"):
                    break
        except (OSError, EOFError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def talking_to(script: Script, *, seconds: float = 10.0) -> AsyncIterator[SinkClient]:
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with SinkClient(
        f"http://127.0.0.1:{port}/base/", TOKEN, connect_tcp, connections=2, post_seconds=seconds
    ) as client:
        yield client
    server.close()
    await server.wait_closed()


async def post(client: SinkClient) -> Verdict:
    return await client.post("/x", "s.1", b"{}")


async def test_a_request_is_whole_and_a_connection_is_used_again() -> None:
    script = Script(OK, OK)
    async with talking_to(script) as client:
        assert [await post(client), await post(client)] == [RecordTaken(), RecordTaken()]
    assert script.connections == 1
    line, *headers = script.requests[0].decode().split("\r\n")
    assert line == "POST /base/x HTTP/1.1"
    assert headers[0].startswith("Host: 127.0.0.1:")
    assert {f"X-Service-Token: {TOKEN}", "Idempotency-Key: s.1", "Content-Length: 2"} < set(headers)
    assert headers[-1] == "{}"


@pytest.mark.parametrize(
    "answer",
    [
        OK,
        OK.replace(b"200", b"20|0").replace(b"message", b"mess|age"),
        b'HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"mes\r\n|a\r\nsageId":1}\r\n0\r\n\r\n',
        b'HTTP/1.1 200 OK\r\n\r\n{"messageId":1}EOF',
        b'HTTP/1.0 200 OK\r\nContent-Length: 15\r\n\r\n{"messageId":1}EOF',
        b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + OK,
        b"HTTP/1.1 100 Continue\r\n\r\n|" + OK,
        OK + b"HTTP/1.1 500 And another\r\nContent-Length: 0\r\n\r\n",
        OK + b"rubbish",
        OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
    ],
)
async def test_an_answer_is_understood_however_it_comes(answer: bytes) -> None:
    """And never taken for the answer to the next post."""
    async with talking_to(Script(answer, b"HTTP/1.1 422 no\r\nContent-Length: 1\r\n\r\nx")) as client:
        assert await post(client) == RecordTaken()
        assert await post(client) == RecordRefused("422: x")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"EOF", "closed before the answer was complete"),
        (OK[:-1] + b"EOF", "closed before the answer was complete"),
        (OK[:20] + b"EOF", "closed before the answer was complete"),
        (b"SSH-2.0-OpenSSH\r\n", "this is no HTTP answer"),
        (b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", "101"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000, "no end"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000, "no end"),
        (b"HTTP/1.1 204 None\r\n\r\n", "without a messageId"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + b"x" * 99_999, "without a messageId"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n|", "no answer within"),
        (b"", "no answer within"),
    ],
)
async def test_what_is_no_answer_is_asked_again_on_another_connection(answer: bytes, reason: str) -> None:
    script = Script(answer, OK)
    async with talking_to(script, seconds=0.5) as client:
        verdict = await post(client)
        assert isinstance(verdict, Again)
        assert reason in verdict.reason
        assert await post(client) == RecordTaken()


async def test_what_was_said_unasked_answers_nothing() -> None:
    """Servers say 408 to a connection that was idle for long."""
    unasked = OK + b"|" + OK
    script = Script(unasked, b"HTTP/1.1 422 no\r\nContent-Length: 1\r\n\r\nx")
    async with talking_to(script) as client:
        assert await post(client) == RecordTaken()
        await script.said.wait()
        assert await post(client) == RecordRefused("422: x")
    assert script.connections == 2


async def test_a_connection_closed_while_idle_is_not_used_again() -> None:
    script = Script(OK + b"EOF", OK)
    async with talking_to(script) as client:
        assert await post(client) == RecordTaken()
        await until(lambda: not client._idle[0][0].is_idle, "the close is heard")
        assert await post(client) == RecordTaken()
    assert script.connections == 2


async def test_retry_after_and_words_are_passed_on() -> None:
    words = b"HTTP/1.1 429 Slow down\r\nretry-after: 7\r\nContent-Length: %d\r\n\r\nnot so fast, %s"
    script = Script(words % (13 + len(TOKEN), TOKEN.encode()))
    async with talking_to(script) as client:
        assert await post(client) == Again(RetryReason.AWAY, "429: not so fast, ***", 7.0)


async def test_no_more_connections_than_allowed_are_open() -> None:
    script = Script(*[OK] * 20)
    async with talking_to(script) as client:
        assert await asyncio.gather(*[post(client) for _ in range(20)]) == [RecordTaken()] * 20
    assert script.connections <= 2


@pytest.mark.parametrize(
    "base", ["ftp://host", "http://", "http://user:secret@host", "http://host/a b", "http://host/?q", "http://host/#f"]
)
def test_an_address_that_is_none_is_refused_and_not_shown(base: str) -> None:
    with pytest.raises(ValueError, match="address") as refused:
        SinkClient(base, TOKEN, connect_tcp, connections=1)
    assert "secret" not in str(refused.value)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an authority that nobody knows, for 127.0.0.1, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a sink")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    private = (
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM) + key.private_bytes(*private))
    return path


async def test_a_certificate_nobody_vouches_for_is_refused_until_it_is_named(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SinkProcess(certificate=certificate) as sink:
        body = b'{"seq":1}'
        async with SinkClient(sink.url, TOKEN, connect_tcp, connections=1) as client:
            verdict = await client.post("/internal/sessions/s/messages", "s.1", body)
            assert isinstance(verdict, Again)
            assert "CERTIFICATE_VERIFY_FAILED" in verdict.reason
        assert await sink.kept() == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        async with SinkClient(sink.url, TOKEN, connect_tcp, connections=1) as client:
            assert await client.post("/internal/sessions/s/messages", "s.1", body) == RecordTaken()


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "ALL_PROXY"])
async def test_a_proxy_in_the_environment_is_not_used(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    async with talking_to(Script(OK)) as client:
        assert await post(client) == RecordTaken()
