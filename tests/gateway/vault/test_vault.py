"""The vault on a store in memory, and a real token endpoint."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.vault import refresh
from gateway.vault.credential import EVERYBODY, MOST_PER_USER, ApiKey, Credential, OAuthTokens, Value
from gateway.vault.errors import NeedsCredential, RefreshUnavailable, TooManyCredentials
from gateway.vault.refresh import Refresher
from gateway.vault.rows import CredentialRows
from gateway.vault.sealing import Keyring, VaultKey
from gateway.vault.token_endpoint import ask
from gateway.vault.vault import Vault
from persistence.errors import StoreUnavailable
from persistence.memory import MemoryStore
from tests.support.faults import Fault, FlakyStore
from tests.support.token_endpoint import TokenEndpoint
from tests.support.waiting import until

OLD, NEW = VaultKey("old" * 12), VaultKey("new" * 12)


class Bench:
    """A vault, what is under it, and a clock that is moved by hand."""

    def __init__(self, endpoint: TokenEndpoint) -> None:
        self.endpoint = endpoint
        self.store = FlakyStore(MemoryStore())
        self.results: list[str] = []
        self.ahead = 0.0
        self.vault = self.open(Keyring(OLD))

    def open(self, keys: Keyring) -> Vault:
        self.rows = CredentialRows(self.store.users, keys, utcnow=self.now)
        clients = {"anthropic": self.endpoint.client}
        return Vault(self.rows, Refresher(self.rows, clients, ask, told=self.results.append))

    def now(self) -> float:
        return time.time() + self.ahead

    def tokens(self, seconds: float = 60.0, refresh: str = "refresh-0") -> OAuthTokens:
        return OAuthTokens("access-0", refresh, int((self.now() + seconds) * 1000))

    async def put(self, value: Value, user_id: str = "ann", provider: str = "anthropic") -> None:
        await self.vault.put(user_id, provider, value)

    async def token(self, user_id: str = "ann", provider: str = "anthropic") -> str | None:
        found = await self.vault.find(user_id, provider)
        return found.token if found else None

    async def found(self) -> Credential:
        found = await self.vault.find("ann", "anthropic")
        assert found is not None
        return found


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(refresh, "REST_SECONDS", 0.0)
    async with TokenEndpoint() as endpoint:
        bench = Bench(endpoint)
        async with bench.store:
            yield bench


# -- what is found ----------------------------------------------------------------------------------------------------


async def test_a_users_own_credential_comes_before_everybodys(bench: Bench) -> None:
    assert await bench.token() is None
    await bench.put(ApiKey("everybodys"), EVERYBODY)
    assert (await bench.token(), await bench.token("bob")) == ("everybodys", "everybodys")
    await bench.put(ApiKey("anns"))
    assert (await bench.token(), await bench.token("bob")) == ("anns", "everybodys")
    assert await bench.vault.delete("ann", "anthropic")
    assert not await bench.vault.delete("ann", "anthropic")
    assert await bench.token() == "everybodys"
    assert [await bench.vault.has("ann", name) for name in ("anthropic", "openai")] == [True, False]


async def test_what_is_listed_has_no_value(bench: Bench) -> None:
    await bench.put(ApiKey("sk-canary"))
    await bench.put(bench.tokens(), provider="openai")
    listed = await bench.vault.list("ann")
    assert [(each.provider, each.kind, each.trouble) for each in listed] == [
        ("anthropic", "api", ""),
        ("openai", "oauth", ""),
    ]
    assert "canary" not in repr(listed)
    assert await bench.vault.list("bob") == []


async def test_a_user_may_have_only_so_many(bench: Bench) -> None:
    for number in range(MOST_PER_USER):
        await bench.put(ApiKey("k"), provider=f"p{number}")
    with pytest.raises(TooManyCredentials, match="delete one first"):
        await bench.put(ApiKey("k"))
    await bench.put(ApiKey("again"), provider="p0")
    await bench.put(ApiKey("k"), "bob")


async def test_while_the_store_is_away_what_was_read_last_goes_on(bench: Bench) -> None:
    await bench.put(ApiKey("k"))
    assert await bench.token() == "k"
    bench.store.outage = Fault.AWAY
    assert await bench.token() == "k"
    with pytest.raises(StoreUnavailable):
        await bench.token("bob")
    bench.store.outage = None
    assert await bench.token("bob") is None


async def test_a_row_that_was_moved_to_another_user_does_not_open(bench: Bench) -> None:
    await bench.put(ApiKey("anns"))
    row = await bench.store.users.credential("ann", "anthropic")
    assert row is not None
    await bench.store.users.put_credential(replace(row, user_id="eve"))
    with pytest.raises(NeedsCredential, match="damaged"):
        await bench.token("eve")


# -- refreshing -------------------------------------------------------------------------------------------------------


async def test_tokens_are_refreshed_five_minutes_before_they_end(bench: Bench) -> None:
    await bench.put(bench.tokens(seconds=330))
    assert await bench.token() == "access-0"
    assert bench.endpoint.asked == []
    bench.ahead = 31
    assert [await bench.token(), await bench.token()] == ["access-1", "access-1"]
    assert [each["refresh_token"] for each in bench.endpoint.asked] == ["refresh-0"]
    bench.ahead += 3600
    assert await bench.token() == "access-2"
    assert bench.endpoint.asked[-1] == {
        "grant_type": "refresh_token",
        "refresh_token": "refresh-1",
        "client_id": "holdfast-test",
    }
    assert bench.results == ["refreshed", "refreshed"]


async def test_many_who_ask_at_once_make_one_request(bench: Bench) -> None:
    await bench.put(bench.tokens())
    bench.endpoint.gate.clear()
    asking = [asyncio.create_task(bench.token()) for _ in range(50)]
    await until(lambda: bench.endpoint.asked)
    asking.append(asyncio.create_task(bench.token()))
    asking[0].cancel()
    bench.endpoint.gate.set()
    assert set(await asyncio.gather(*asking[1:])) == {"access-1"}
    assert len(bench.endpoint.asked) == 1


async def test_one_that_its_provider_refused_is_renewed_once(bench: Bench) -> None:
    await bench.put(bench.tokens(seconds=3600))
    used = await bench.found()
    renewed = await asyncio.gather(*(bench.vault.renew(used) for _ in range(5)))
    assert {each.token for each in renewed} == {"access-1"}
    assert (await bench.vault.renew(used)).token == "access-1"
    assert len(bench.endpoint.asked) == 1


async def test_a_key_that_was_refused_comes_back_until_another_is_set(bench: Bench) -> None:
    await bench.put(ApiKey("one"))
    used = await bench.found()
    assert (await bench.vault.renew(used)).token == "one"
    await bench.put(ApiKey("two"))
    assert (await bench.vault.renew(used)).token == "two"
    await bench.vault.delete("ann", "anthropic")
    with pytest.raises(NeedsCredential, match="removed"):
        await bench.vault.renew(used)


async def test_a_refused_refresh_is_told_and_not_asked_again_until_it_is_set_anew(bench: Bench) -> None:
    await bench.put(bench.tokens())
    bench.endpoint.answers.append((400, {"error": "invalid_grant"}))
    for _ in range(3):
        with pytest.raises(NeedsCredential, match="refused to refresh it: it answers 400 invalid_grant; set it again"):
            await bench.token()
    assert len(bench.endpoint.asked) == 1
    assert (await bench.vault.list("ann"))[0].trouble == await bench.vault.trouble("ann", "anthropic")
    assert "invalid_grant" in await bench.vault.trouble("ann", "anthropic")
    await bench.put(bench.tokens(seconds=3600))
    assert await bench.vault.trouble("ann", "anthropic") == ""
    assert await bench.token() == "access-0"


async def test_everybodys_is_for_the_operator_to_set_again(bench: Bench) -> None:
    await bench.put(bench.tokens(), EVERYBODY)
    bench.endpoint.answers.append((401, b"no"))
    with pytest.raises(NeedsCredential, match="the operator has to set it again") as refused:
        await bench.token()
    assert refused.value.is_for_everybody


@pytest.mark.parametrize("answer", [(500, b""), (302, b""), (200, b"x" * 100_000), (200, b"[1]"), (429, {})])
async def test_while_the_endpoint_fails_tokens_are_used_to_their_end(bench: Bench, answer: tuple[int, Any]) -> None:
    await bench.put(bench.tokens(seconds=60))
    bench.endpoint.answers.extend([answer, answer])
    assert await bench.token() == "access-0"
    bench.ahead = 61
    with pytest.raises(RefreshUnavailable, match="have ended and cannot be refreshed now"):
        await bench.token()
    assert await bench.token() == "access-3"
    assert bench.results == ["away", "away", "refreshed"]


async def test_an_endpoint_that_nobody_serves_is_away(bench: Bench) -> None:
    await bench.put(bench.tokens())
    await bench.endpoint.__aexit__(None, None, None)
    assert await bench.token() == "access-0"
    assert bench.results == ["away"]


async def test_after_an_attempt_it_rests(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "REST_SECONDS", 3600.0)
    await bench.put(bench.tokens(seconds=60))
    bench.endpoint.answers.append((503, b""))
    assert [await bench.token() for _ in range(20)] == ["access-0"] * 20
    assert len(bench.endpoint.asked) == 1


async def test_attempts_that_rest_no_more_are_forgotten(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "MOST_ATTEMPTS", 1)
    for user in ("ann", "bob", "eve"):
        await bench.put(bench.tokens(), user)
        assert await bench.token(user)
    assert len(bench.vault._refresher._attempts) <= 1


@pytest.mark.parametrize(("provider", "refresh"), [("anthropic", ""), ("openai", "refresh-0")])
async def test_tokens_that_cannot_be_refreshed_are_used_to_their_end(bench: Bench, provider: str, refresh: str) -> None:
    await bench.put(bench.tokens(seconds=60, refresh=refresh), provider=provider)
    assert await bench.token(provider=provider) == "access-0"
    bench.ahead = 61
    with pytest.raises(NeedsCredential, match="its access token has ended"):
        await bench.token(provider=provider)
    assert bench.endpoint.asked == []


async def test_what_a_person_sets_meanwhile_is_not_overwritten(bench: Bench) -> None:
    await bench.put(bench.tokens())
    bench.endpoint.gate.clear()
    asking = asyncio.create_task(bench.token())
    await until(lambda: bench.endpoint.asked)
    await bench.put(ApiKey("set meanwhile"))
    bench.endpoint.gate.set()
    assert await asking == "set meanwhile"
    assert await bench.token() == "set meanwhile"


async def test_what_is_deleted_meanwhile_stays_deleted(bench: Bench) -> None:
    await bench.put(bench.tokens())
    bench.endpoint.gate.clear()
    asking = asyncio.create_task(bench.token())
    await until(lambda: bench.endpoint.asked)
    await bench.vault.delete("ann", "anthropic")
    bench.endpoint.gate.set()
    with pytest.raises(NeedsCredential, match="removed"):
        await asking
    assert await bench.token() is None


async def test_a_refusal_of_what_was_replaced_meanwhile_is_nobodys(bench: Bench) -> None:
    """Another gateway that shares the store refreshed first: the refresh token that this one has is spent."""
    await bench.put(bench.tokens())
    bench.endpoint.gate.clear()
    bench.endpoint.answers.append((400, {"error": "invalid_grant"}))
    asking = asyncio.create_task(bench.token())
    await until(lambda: bench.endpoint.asked)
    await bench.put(bench.tokens(seconds=3600, refresh="refresh-other"))
    bench.endpoint.gate.set()
    assert await asking == "access-0"
    assert await bench.vault.trouble("ann", "anthropic") == ""


async def test_fresh_tokens_that_the_store_does_not_take_are_used_and_stored_later(bench: Bench) -> None:
    await bench.put(bench.tokens())
    bench.endpoint.gate.clear()
    asking = asyncio.create_task(bench.token())
    await until(lambda: bench.endpoint.asked)
    bench.store.outage = Fault.AWAY
    bench.endpoint.gate.set()
    assert [await asking, await bench.token()] == ["access-1", "access-1"]
    bench.store.outage = None
    async with bench.vault:
        pass
    assert (await bench.open(Keyring(OLD)).find("ann", "anthropic")) is not None
    assert await bench.token() == "access-1"
    assert len(bench.endpoint.asked) == 1


async def test_the_end_waits_for_a_refresh_under_way(bench: Bench) -> None:
    await bench.put(bench.tokens())
    bench.endpoint.gate.clear()
    async with bench.vault:
        asking = asyncio.create_task(bench.token())
        await until(lambda: bench.endpoint.asked)
        asyncio.get_running_loop().call_later(0.01, bench.endpoint.gate.set)
    bench.vault = bench.open(Keyring(OLD))
    assert [await asking, await bench.token()] == ["access-1", "access-1"]


# -- keys -------------------------------------------------------------------------------------------------------------


async def test_a_wrong_key_is_told_and_changes_nothing(bench: Bench) -> None:
    await bench.put(ApiKey("k"))
    before = await bench.store.users.credential("ann", "anthropic")
    bench.vault = bench.open(Keyring(NEW))
    with pytest.raises(NeedsCredential, match="another vault key"):
        await bench.token()
    assert "1 credentials are sealed with another vault key" in await bench.vault.locked()
    assert "another vault key" in (await bench.vault.list("ann"))[0].trouble
    assert await bench.vault.reseal() == (0, 1)
    assert await bench.store.users.credential("ann", "anthropic") == before
    bench.vault = bench.open(Keyring(OLD))
    assert (await bench.token(), await bench.vault.locked()) == ("k", "")


async def test_with_two_keys_everything_is_sealed_anew_and_then_one_is_enough(bench: Bench) -> None:
    for number in range(205):
        await bench.put(ApiKey(f"k{number}"), f"user{number}")
    row = await bench.store.users.credential("user1", "anthropic")
    assert row is not None
    await bench.store.users.put_credential(replace(row, trouble="refused"), expected=row.number)
    bench.vault = bench.open(Keyring(NEW, [OLD]))
    assert await bench.vault.reseal() == (205, 0)
    bench.vault = bench.open(Keyring(NEW))
    assert await bench.vault.locked() == ""
    assert [await bench.token(f"user{number}") for number in (0, 204)] == ["k0", "k204"]
    assert await bench.vault.trouble("user1", "anthropic") == "refused"


@pytest.mark.parametrize("cut", [2, 5, 9])
async def test_sealing_anew_goes_on_where_it_was_cut_off(bench: Bench, cut: int) -> None:
    for number in range(10):
        await bench.put(ApiKey(f"k{number}"), f"user{number}")
    bench.vault = bench.open(Keyring(NEW, [OLD]))
    bench.store.faults = {bench.store.calls + cut: Fault.AWAY}
    with pytest.raises(StoreUnavailable):
        await bench.vault.reseal()
    assert [await bench.token(f"user{number}") for number in range(10)] == [f"k{number}" for number in range(10)]
    sealed, left = await bench.vault.reseal()
    assert (sealed, left) == (10 - (cut - 2), 0)
    assert await bench.store.users.key_ids() == {NEW.id: 10}
