"""Certificates that tests make themselves, and TLS in front of a PostgreSQL server that was built without it."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.proxy import CuttingProxy

SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"


def self_signed(directory: Path, address: str = "127.0.0.1") -> tuple[Path, Path]:
    """A certificate for `address` and its key, as PEM files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, address)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = directory / f"{address}.crt", directory / f"{address}.key"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate_file, key_file


class PostgresTls(CuttingProxy):
    """Speaks TLS as a PostgreSQL server does, and passes everything on to the one at `port`."""

    def __init__(self, port: int, certificate: Path, key: Path) -> None:
        super().__init__(port)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self.encrypted = 0

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readexactly(len(SSL_REQUEST)) != SSL_REQUEST:
            return
        writer.write(b"S")
        try:
            await writer.start_tls(self._context)
        except OSError:
            return  # the client does not trust us
        self.encrypted += 1
        await super()._connect(reader, writer)
