"""What every UserStore promises. The store's test class inherits this beside the MessageStore contract."""

import pytest
from msgspec.structs import replace

from persistence.ports import MessageStore
from persistence.record import NO_USER
from persistence.user_record import SealedCredential, UserConfig


def sealed(user_id: str = "ann", provider: str = "anthropic", **other: object) -> SealedCredential:
    row = SealedCredential(user_id, provider, "api", "k1", b"\x00sealed\xff", 12.5)
    return replace(row, **other)


class UserStoreContract:
    async def test_a_credential_is_found_as_it_was_put(self, store: MessageStore) -> None:
        number = await store.users.put_credential(sealed(trouble="refused"))
        assert number
        assert await store.users.credential("ann", "anthropic") == sealed(trouble="refused", number=number)

    async def test_one_user_sees_nothing_of_another_nor_of_everybody(self, store: MessageStore) -> None:
        for user_id in ("ann", "bob", NO_USER):
            await store.users.put_credential(sealed(user_id, sealed=user_id.encode()))
        for user_id in ("ann", "bob", NO_USER):
            (found,) = await store.users.credentials(user_id)
            assert (found.user_id, found.sealed) == (user_id, user_id.encode())
            assert await store.users.credential(user_id, "anthropic") == found
        assert await store.users.credentials("eve") == []
        assert await store.users.credential("eve", "anthropic") is None
        assert await store.users.credential("ann", "openai") is None

    async def test_credentials_come_in_order_of_provider(self, store: MessageStore) -> None:
        for provider in ("openai", "anthropic", "github"):
            await store.users.put_credential(sealed(provider=provider))
        assert [each.provider for each in await store.users.credentials("ann")] == ["anthropic", "github", "openai"]

    async def test_each_change_has_a_number_of_its_own_also_after_a_deletion(self, store: MessageStore) -> None:
        numbers = [await store.users.put_credential(sealed()) for _ in range(3)]
        assert await store.users.delete_credential("ann", "anthropic")
        numbers.append(await store.users.put_credential(sealed()))
        assert sorted(set(numbers), key=lambda number: number or 0) == numbers

    async def test_what_was_changed_meanwhile_is_not_replaced(self, store: MessageStore) -> None:
        first = await store.users.put_credential(sealed())
        second = await store.users.put_credential(sealed(sealed=b"second"), expected=first)
        assert second is not None
        assert await store.users.put_credential(sealed(sealed=b"late"), expected=first) is None
        found = await store.users.credential("ann", "anthropic")
        assert found is not None
        assert (found.sealed, found.number) == (b"second", second)

    async def test_what_was_deleted_meanwhile_does_not_come_back(self, store: MessageStore) -> None:
        first = await store.users.put_credential(sealed())
        assert await store.users.delete_credential("ann", "anthropic")
        assert await store.users.put_credential(sealed(), expected=first) is None
        await store.users.put_credential(sealed(sealed=b"new"))
        assert await store.users.put_credential(sealed(), expected=first) is None
        found = await store.users.credential("ann", "anthropic")
        assert found is not None
        assert found.sealed == b"new"

    async def test_deleting_what_is_not_there_says_so(self, store: MessageStore) -> None:
        await store.users.put_credential(sealed("bob"))
        assert not await store.users.delete_credential("ann", "anthropic")
        assert await store.users.credential("bob", "anthropic") is not None

    async def test_what_another_key_has_sealed_is_found_page_by_page(self, store: MessageStore) -> None:
        for number in range(5):
            await store.users.put_credential(sealed(f"user{number}", key_id="old"))
        await store.users.put_credential(sealed(key_id="new"))
        assert await store.users.key_ids() == {"old": 5, "new": 1}
        seen, after = list[str](), 0
        while page := await store.users.sealed_otherwise("new", after=after, limit=2):
            assert len(page) <= 2
            seen += [each.user_id for each in page]
            after = page[-1].number
        assert seen == [f"user{number}" for number in range(5)]

    @pytest.mark.parametrize("name", ["a\0b", "\ud800"])
    async def test_a_name_that_is_no_text_is_nobodys(self, store: MessageStore, name: str) -> None:
        assert await store.users.put_credential(sealed(name)) is None
        assert await store.users.put_credential(sealed(provider=name)) is None
        await store.users.put_config(UserConfig(name, b"{}", 1.0))
        assert await store.users.credential(name, "anthropic") is None
        assert await store.users.credentials(name) == []
        assert await store.users.config(name) is None
        assert not await store.users.delete_credential("ann", name)
        assert await store.users.key_ids() == {}

    async def test_names_with_quotes_and_other_scripts_are_names(self, store: MessageStore) -> None:
        for user_id in ("o'hara", "Jörg", "李", "a\nb", "%", "x" * 256):
            await store.users.put_credential(sealed(user_id))
            assert [each.user_id for each in await store.users.credentials(user_id)] == [user_id]

    async def test_a_configuration_is_kept_per_user_and_replaced_as_a_whole(self, store: MessageStore) -> None:
        assert await store.users.config("ann") is None
        await store.users.put_config(UserConfig("ann", b'{"a":1}', 1.0))
        await store.users.put_config(UserConfig("bob", b"{}", 2.0))
        await store.users.put_config(UserConfig("ann", b'{"b":2}', 3.0))
        assert await store.users.config("ann") == UserConfig("ann", b'{"b":2}', 3.0)
        assert await store.users.config("bob") == UserConfig("bob", b"{}", 2.0)

    async def test_purging_a_session_leaves_what_belongs_to_its_user(self, store: MessageStore) -> None:
        await store.users.put_credential(sealed())
        await store.purge("s")
        assert len(await store.users.credentials("ann")) == 1
