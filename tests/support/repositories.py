"""Real git repositories behind a real HTTPS server."""

import contextlib
import datetime
import functools
import http.server
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@contextlib.contextmanager
def served(root: Path) -> Iterator[tuple[str, Path]]:
    """An HTTPS server with one repository, `r.git`, made in the empty directory `root`; returns its address, and the
    directory with its certificate. Requests below `/moved` are answered with a redirect."""
    work, bare, certificates = root / "work", root / "served" / "r.git", root / "ca"
    certificates.mkdir()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", "-C", str(root)]
    for argv in (
        ["init", "-q", str(work)],
        ["-C", "work", "commit", "-q", "--allow-empty", "-m", "first"],
        ["-C", "work", "checkout", "-q", "-b", "feature/x"],
    ):
        subprocess.run([*git, *argv], check=True)
    (work / "hello.txt").write_text("hello from the branch\n")
    for argv in (
        ["-C", "work", "add", "."],
        ["-C", "work", "commit", "-q", "-m", "second"],
        ["clone", "-q", "--bare", str(work), str(bare)],
        ["-C", str(bare), "update-server-info"],
    ):
        subprocess.run([*git, *argv], check=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificates / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (root / "key.pem").write_bytes(private)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            if self.path.startswith("/moved/"):
                self.send_response(302)
                self.send_header("Location", self.path.replace("/moved/", "/", 1))
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                super().do_GET()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root / "served")))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, root / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://localhost:{server.server_port}", certificates
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
