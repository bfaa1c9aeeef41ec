"""The list of a session's shares: numbers are given once, and a token opens the session while it is listed."""

import orjson
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from gateway.auth.shares import MOST, Share, ShareKey, Shares
from gateway.session.model.state import SessionSpec

LIFE = 100.0


class ListOfShares(RuleBasedStateMachine):
    """Against a model: every share that was ever made, and whether it should open the session."""

    def __init__(self) -> None:
        super().__init__()
        self.shares = Shares()
        self.now = 0.0
        self.known: dict[ShareKey, bool] = {}

    @rule(times=st.integers(1, 60), label=st.text(max_size=3))
    def make(self, times: int, label: str) -> None:
        for _ in range(times):
            before = self.shares
            made = before.add(f"stamp {len(self.known)}", label, now=self.now, expires_at=self.now + LIFE)
            live = len(before.live(self.now))
            assert (made is None) == (live >= MOST)
            if made is None:
                break  # the next would be the same again
            if len(made.listed) <= len(before.listed):
                self.known |= {share.key: share.expires_at > self.now for share in before.listed}
            assert made.listed[-1].label == label
            assert made.listed[-1].number == len(self.known) + 1
            self.known[made.listed[-1].key] = True
            self.shares = made

    @rule(number=st.integers(0, 200))
    def take_back(self, number: int) -> None:
        found = self.shares.find(number)
        self.shares = self.shares.without(number)
        if found is not None:
            self.known[found.key] = False
        assert self.shares.find(number) is None

    @rule(seconds=st.floats(0, 2 * LIFE))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def end(self) -> None:
        self.shares = self.shares.ended()
        self.known = dict.fromkeys(self.known, False)

    @rule()
    def restart(self) -> None:
        self.shares = SessionSpec.from_json(SessionSpec(shares=self.shares).to_json()).shares

    @invariant()
    def opens_what_is_listed(self) -> None:
        assert {share.key for share in self.shares.listed} == {key for key, opens in self.known.items() if opens}
        for key, opens in [*self.known.items()][-3:]:
            assert self.shares.opens(key) == opens
            assert not self.shares.opens(ShareKey(key.number, "another stamp"))
        assert self.shares.made == len(self.known)
        assert len(self.shares.listed) <= MOST
        assert {share.key for share in self.shares.live(self.now)} <= {share.key for share in self.shares.listed}


TestListOfShares = ListOfShares.TestCase


def test_a_spec_of_the_version_before_has_none() -> None:
    written = orjson.loads(SessionSpec(title="old").to_json())
    del written["shares"]
    assert SessionSpec.from_json(orjson.dumps(written)) == SessionSpec(title="old")


def test_what_a_session_keeps_of_its_shares_is_bounded() -> None:
    shares = Shares()
    for _ in range(2 * MOST):
        shares = shares.add("x" * 16, "\U0001f600" * 64, now=1e9, expires_at=3e9) or shares
    assert len(shares.listed) == MOST
    assert len(SessionSpec(shares=shares).to_json()) < 48 << 10


def test_a_share_has_the_key_its_token_shows() -> None:
    assert Share(3, "s", 0.0, 1.0).key == ShareKey(3, "s")


def test_what_a_newer_version_stored_of_shares_is_kept_while_shares_come_and_go() -> None:
    written = orjson.loads(SessionSpec(shares=two_shares()).to_json())
    written["shares"]["later"] = {"policy": 1}
    written["shares"]["listed"][1]["later"] = ["role"]
    spec = SessionSpec.from_json(orjson.dumps(written))
    assert orjson.loads(spec.to_json()) == written
    assert spec.shares.opens(ShareKey(2, "b"))
    more = spec.shares.without(1).add("c", "", now=3.0, expires_at=9.0)
    assert more is not None
    stored = orjson.loads(replace(spec, shares=more).to_json())["shares"]
    assert stored["later"] == {"policy": 1}
    assert [(each["number"], each.get("later")) for each in stored["listed"]] == [(2, ["role"]), (3, None)]


def two_shares() -> Shares:
    first = Shares().add("a", "", now=1.0, expires_at=9.0)
    assert first is not None
    second = first.add("b", "", now=2.0, expires_at=9.0)
    assert second is not None
    return second
