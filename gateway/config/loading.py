"""Reads settings from the environment and from a file beside it. All problems are reported at once."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.config.objects_url import ObjectsUrl, completed
from gateway.config.settings import BUCKET_NAMES, KNOWN, PREFIX, PROVIDERS, Settings, SettingsError
from gateway.config.sources import ENVIRONMENT, FILE, ConfigFile, Source
from gateway.config.store_url import StoreUrl
from gateway.egress.policy import covers, read_text

EVERYWHERE = "0.0.0.0"
_TEST_PREFIX = "HOLDFAST_TEST_"  # for the test suite alone; the gateway never reads them
_NAME = re.compile(rf"{PREFIX}[A-Z][A-Z_]*")


def load_settings(environ: Mapping[str, str], file: ConfigFile | None = None) -> Settings:
    """Read `environ`, and from `file` the settings that are not in it; raise SettingsError with every problem in them.
    An empty HOLDFAST_ value counts as not set. Nothing else is read.

    A platform sets PORT to say where it sends requests, from another machine: with it, and unless the operator sets
    HOLDFAST_HOST, the gateway listens on all addresses.
    """
    problems = [_unknown(name) for name in sorted(environ) if _is_unknown(name)]
    texts, sources = _given(environ, file)
    chosen: dict[str, Any] = {}

    def read(name: str, text: str, otherwise: str = "") -> None:
        setting = KNOWN["HOLDFAST_PORT" if name == "PORT" else name]
        try:
            chosen[setting.name] = setting.metadata["read"](text)
        except ValueError as exc:
            problems.append(f"{name} {exc}{otherwise}")

    if "PORT" in environ:
        chosen["host"] = EVERYWHERE
        sources.setdefault("HOLDFAST_HOST", Source(ENVIRONMENT, "PORT"))
        if not environ.get("HOLDFAST_PORT"):
            read("PORT", environ["PORT"], "; unset it, or set HOLDFAST_PORT, which counts instead")
            texts.pop("HOLDFAST_PORT", None)  # the file's: the environment wins
            sources["HOLDFAST_PORT"] = Source(ENVIRONMENT, "PORT")
    for name, text in texts.items():
        if name in KNOWN:
            read(name, text)
    if file is not None:
        for name, value in chosen.items():
            chosen[name] = _anchored(value, sources.get(_named(name), Source()), file.path)
        chosen["config"] = file.path
    try:
        if "objects" in chosen:
            chosen["objects"] = completed(chosen["objects"], texts)
    except ValueError as exc:
        problems.append(f"HOLDFAST_OBJECTS {exc}{_about_hidden_keys(str(exc), environ, file)}")
    settings = Settings(**chosen, sources=sources)
    problems += _contradictions(settings)
    told = [*(file.problems if file is not None else ()), *(in_words(each, sources) for each in problems)]
    if told:
        raise SettingsError(told)
    return settings


def in_words(problem: str, sources: Mapping[str, Source]) -> str:
    """The problem with the file's own name and line for each setting that comes from the file."""

    def place(match: re.Match[str]) -> str:
        source = sources.get(match[0])
        return match[0] if source is None or source.kind != FILE else f"{source.name} ({source})"

    return _NAME.sub(place, problem)


def _given(environ: Mapping[str, str], file: ConfigFile | None) -> tuple[dict[str, str], dict[str, Source]]:
    """The settings that are given, by the names of the environment. A bucket's keys belong together: if one of them is
    in the environment, none is taken from the file."""
    names = [*KNOWN, *BUCKET_NAMES]
    texts = {name: environ[name] for name in names if environ.get(name)}
    sources = {name: Source(ENVIRONMENT, name) for name in texts}
    keys = set(BUCKET_NAMES[:3])
    hidden = keys if keys & texts.keys() else set()
    for name, entry in (file.entries if file is not None else {}).items():
        if name not in texts and name not in hidden:
            assert file is not None
            texts[name], sources[name] = entry.text, file.source(entry)
    return texts, sources


def _about_hidden_keys(problem: str, environ: Mapping[str, str], file: ConfigFile | None) -> str:
    """Why a key is missing although the file has it."""
    given = [name for name in BUCKET_NAMES[:3] if environ.get(name)]
    entries = file.entries if file is not None else {}
    if not given or not any(name in problem for name in entries if name in BUCKET_NAMES[:3]):
        return ""
    told = " and ".join(given)
    return f": {told} of the environment hides all keys of the file; set the others there, too, or unset {told}"


def _named(field: str) -> str:
    return PREFIX + field.upper()


def _anchored(value: Any, source: Source, file: Path) -> Any:
    """A relative path in a file starts where the file is."""
    if source.kind != FILE:
        return value
    match value:
        case Path():
            return file.parent / value
        case StoreUrl(kind="sqlite"):
            return StoreUrl(f"sqlite:///{file.parent / value.path}")
        case ObjectsUrl(kind="file"):
            return replace(value, path=file.parent / value.path)
    return value


def _is_unknown(name: str) -> bool:
    return name.startswith(PREFIX) and not name.startswith(_TEST_PREFIX) and name not in KNOWN


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, KNOWN, n=1)
    return f"{name} is no setting" + (f"; did you mean {near[0]}?" if near else "")


def _contradictions(settings: Settings) -> list[str]:
    return [
        *_not_built(settings),
        *_provider_problems(settings),
        *_identity_problems(settings),
        *(
            ["HOLDFAST_SYNC_MAX_WAIT must not be shorter than HOLDFAST_SYNC_DEBOUNCE"]
            if settings.sync_max_wait < settings.sync_debounce
            else []
        ),
        *_network_problems(settings),
        *_gone_problems(settings),
    ]


def _network_problems(settings: Settings) -> list[str]:
    if covers(read_text(settings.network_max), read_text(settings.network)):
        return []
    given, most = settings.network, settings.network_max
    why = "" if settings.loopback_only else ", which is its default where others can reach the gateway"
    return [f"HOLDFAST_NETWORK is {given} and HOLDFAST_NETWORK_MAX {most}{why}: set HOLDFAST_NETWORK_MAX={given}, too"]


def _not_built(settings: Settings) -> list[str]:
    """Each line names the scheme only: the rest of an address may carry a password."""
    problems = []
    if settings.redis:
        problems.append("HOLDFAST_REDIS: running on many nodes is not built yet; unset it")
    if settings.limit_disk is not None:
        told = "no sandbox can be held to it; unset it, and bound the file system of HOLDFAST_DATA_DIR instead"
        problems.append(f"HOLDFAST_LIMIT_DISK: {told}")
    return problems


def _provider_problems(settings: Settings) -> list[str]:
    problems = []
    for name in dict.fromkeys((settings.sandbox, *settings.providers)):
        told = "HOLDFAST_SANDBOX" if name == settings.sandbox else "HOLDFAST_PROVIDERS"
        if name == "cloudflare":
            problems.append(f"{told}: cloudflare is not built yet; use local or docker")
        elif name not in PROVIDERS:
            problems.append(f"{told} wants {' or '.join(PROVIDERS)}")
    if problems:
        return problems
    if settings.sandbox not in settings.providers:
        problems.append(f"HOLDFAST_PROVIDERS lacks {settings.sandbox}: add it, or change HOLDFAST_SANDBOX")
    from sandbox.providers.container.image import is_gvisor

    if settings.sandbox == "docker" and settings.network != "none" and is_gvisor(settings.docker_runtime or None):
        told = "containers of gVisor have no way out yet; use none with HOLDFAST_DOCKER_RUNTIME"
        problems.append(f"HOLDFAST_NETWORK: {told}={settings.docker_runtime}")
    return problems


def _gone_problems(settings: Settings) -> list[str]:
    here = "HOLDFAST_SANDBOX" if settings.providers == (settings.sandbox,) else "HOLDFAST_PROVIDERS"
    return [
        f"HOLDFAST_GONE_PROVIDERS names {name}, which {here} says is here: leave it out"
        for name in settings.providers
        if name in settings.gone_providers
    ]


def _identity_problems(settings: Settings) -> list[str]:
    problems = []
    if settings.jwt_jwks_url and not (settings.jwt_issuer and settings.jwt_audience):
        problems.append("HOLDFAST_JWT_JWKS_URL needs HOLDFAST_JWT_ISSUER and HOLDFAST_JWT_AUDIENCE")
    if settings.jwt_jwks_url and settings.jwt_secret:
        problems.append("set HOLDFAST_JWT_SECRET or HOLDFAST_JWT_JWKS_URL, not both")
    given = [
        s.get_secret_value()
        for s in (settings.jwt_secret, settings.api_token, settings.internal_token, settings.relay_secret)
        if s is not None
    ]
    if settings.vault_key_old and not settings.vault_key:
        problems.append("HOLDFAST_VAULT_KEY_OLD needs HOLDFAST_VAULT_KEY, the new one")
    if len(set(given)) < len(given):
        names = "HOLDFAST_JWT_SECRET, HOLDFAST_API_TOKEN, HOLDFAST_INTERNAL_TOKEN, HOLDFAST_RELAY_SECRET"
        problems.append(f"two of {names} are the same: change one")
    return problems
