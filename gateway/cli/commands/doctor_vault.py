"""The finding of `holdfast doctor` about credentials: whether the vault's keys open them."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

from gateway.cli.commands.doctor_store import REACH_SECONDS, Finding
from gateway.config.settings import Settings, SettingsError, kept_vault_keys
from gateway.vault.sealing import VaultKey
from gateway.vault.vault import wrong_key

KEY_IDS = "SELECT key_id, count(*) FROM credentials GROUP BY key_id"


def check_vault(settings: Settings) -> list[Finding]:
    """No finding where there is no credential, or the store cannot be read: another check reports that."""
    found = asyncio.run(_postgres(settings)) if settings.store.kind == "postgresql" else _sqlite(settings)
    if not found:
        return []
    try:
        keys = [VaultKey(each.get_secret_value()).id for each in kept_vault_keys(settings)]
    except SettingsError as error:
        return [Finding("vault", "fail", "; ".join(error.problems))]
    if alien := {key: count for key, count in found.items() if key not in keys}:
        told, _, advice = wrong_key(alien).partition(". ")
        return [Finding("vault", "fail", told, advice)]
    older = sum(count for key, count in found.items() if key != keys[0])
    told = f"{sum(found.values())} credentials; the key {keys[0]} opens them"
    if older:
        told = f"{older} of {sum(found.values())} credentials are still sealed with an older key"
        return [Finding("vault", "warn", told, "a gateway that runs seals them anew: keep the old key until then")]
    if settings.vault_key_old is not None:
        return [Finding("vault", "warn", told, "HOLDFAST_VAULT_KEY_OLD opens nothing any more: take it away")]
    return [Finding("vault", "ok", told)]


def _sqlite(settings: Settings) -> dict[str, int]:
    path: Path = settings.store.path if settings.store.kind == "sqlite" else settings.spool_path
    if not path.exists():
        return {}
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as db:
            return dict(db.execute(KEY_IDS).fetchall())
    except sqlite3.Error:  # an earlier schema, or damage, which the store's own check reports
        return {}


async def _postgres(settings: Settings) -> dict[str, int]:
    import asyncpg

    from persistence.postgres.errors import DRIVER_ERRORS

    try:
        db = await asyncpg.connect(settings.store.get_secret_value(), timeout=REACH_SECONDS, command_timeout=10)
        try:
            return {row[0]: row[1] for row in await db.fetch(KEY_IDS)}
        finally:
            db.terminate()
    except DRIVER_ERRORS:
        return {}
