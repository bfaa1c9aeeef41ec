"""What belongs to users, in memory. Gone when the process ends."""

import asyncio
from collections import Counter

from msgspec.structs import replace

from persistence.commit_plan import is_text
from persistence.user_record import SealedCredential, UserConfig


class MemoryUsers:
    """A UserStore that forgets."""

    def __init__(self) -> None:
        self._credentials: dict[tuple[str, str], SealedCredential] = {}
        self._configs: dict[str, UserConfig] = {}
        self._changes = 0

    async def credential(self, user_id: str, provider: str) -> SealedCredential | None:
        await asyncio.sleep(0)
        return self._credentials.get((user_id, provider))

    async def credentials(self, user_id: str) -> list[SealedCredential]:
        await asyncio.sleep(0)
        return sorted((each for each in self._credentials.values() if each.user_id == user_id), key=_provider)

    async def put_credential(self, row: SealedCredential, *, expected: int | None = None) -> int | None:
        await asyncio.sleep(0)
        place = (row.user_id, row.provider)
        there = self._credentials.get(place)
        if not is_text(*place) or (expected is not None and (there is None or there.number != expected)):
            return None
        self._changes += 1
        self._credentials[place] = replace(row, number=self._changes)
        return self._changes

    async def delete_credential(self, user_id: str, provider: str) -> bool:
        await asyncio.sleep(0)
        return self._credentials.pop((user_id, provider), None) is not None

    async def key_ids(self) -> dict[str, int]:
        await asyncio.sleep(0)
        return dict(Counter(each.key_id for each in self._credentials.values()))

    async def sealed_otherwise(self, key_id: str, *, after: int = 0, limit: int = 100) -> list[SealedCredential]:
        await asyncio.sleep(0)
        found = [each for each in self._credentials.values() if each.key_id != key_id and each.number > after]
        return sorted(found, key=_number)[: max(limit, 0)]

    async def config(self, user_id: str) -> UserConfig | None:
        await asyncio.sleep(0)
        return self._configs.get(user_id)

    async def put_config(self, config: UserConfig) -> None:
        await asyncio.sleep(0)
        if is_text(config.user_id):
            self._configs[config.user_id] = config


def _provider(row: SealedCredential) -> str:
    return row.provider


def _number(row: SealedCredential) -> int:
    return row.number
