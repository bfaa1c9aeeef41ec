"""A host of another network: a network namespace with a cable to this machine, and a real HTTPS server in it.

python -m tests.support.elsewhere DIRECTORY PEM KEY     is that server
"""

import contextlib
import datetime
import functools
import http.server
import ipaddress
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.waiting import blocking_until

REPOSITORY = Path(__file__).parents[2]


def needs_namespaces() -> None:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces are root's to make, with ip of iproute2")


@contextlib.contextmanager
def elsewhere(directory: Path, files: Path) -> Iterator[tuple[str, Path]]:
    """Serves `files` by HTTPS at port 443 of an address; that, and the file with its certificate, which lies in
    `directory` beside the key."""
    name, subnet = f"hf{os.getpid()}", f"10.231.{os.getpid() % 250 + 1}"
    address, here = f"{subnet}.2", f"{subnet}.1"
    pem, key = certify(directory, address)
    _ip("netns", "add", name)
    try:
        _ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", "netns", name)
        _ip("addr", "add", f"{here}/24", "dev", f"{name}a")
        _ip("link", "set", f"{name}a", "up")
        for words in (["addr", "add", f"{address}/24", "dev", f"{name}b"], ["link", "set", f"{name}b", "up"]):
            _ip("-n", name, *words)
        argv = ["ip", "netns", "exec", name, sys.executable, "-m", "tests.support.elsewhere", str(files), str(pem)]
        server = subprocess.Popen([*argv, str(key)], cwd=REPOSITORY, stdout=subprocess.PIPE)
        try:
            assert server.stdout is not None
            assert blocking_until(server.stdout.readline) == b"ready\n"
            yield address, pem
        finally:
            server.kill()
            server.wait()
            if server.stdout is not None:
                server.stdout.close()
    finally:
        _ip("netns", "del", name)


def certify(directory: Path, address: str) -> tuple[Path, Path]:
    """A certificate of its own for this address, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "elsewhere")])
    now = datetime.datetime.now(datetime.UTC)
    # By way of a proxy npm takes an address for `localhost`.
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address)), x509.DNSName("localhost")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, private = directory / "elsewhere.pem", directory / "elsewhere.key"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return pem, private


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    files, pem, key = sys.argv[1:]
    server = http.server.ThreadingHTTPServer(("", 443), functools.partial(_Quiet, directory=files))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print("ready", flush=True)  # noqa: T201
    server.serve_forever()


if __name__ == "__main__":
    main()
