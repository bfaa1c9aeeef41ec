"""What the proxy tells its gateway of refused hosts, and by what code it is known."""

from pathlib import Path

import pytest

from gateway.egress import process
from gateway.egress.messages import Denied
from gateway.egress.proxy import Denials
from sandbox.system import public_address


async def test_no_session_fills_the_log_with_hosts() -> None:
    told: list[Denied] = []
    denials = Denials(lambda denied: told.append(denied) or True)  # type: ignore[func-returns-value]
    for number in range(3000):
        denials.tell(Denied("eve", f"host{number}.example", 443, "no"))
    assert len(told) == 60
    denials.tell(Denied("ann", "example.com", 443, "no"))
    assert told[-1].session == "ann"


def test_a_proxy_of_another_idea_of_public_addresses_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = process.release()
    (tmp_path / "other.py").write_text("other")
    monkeypatch.setattr(public_address, "__file__", str(tmp_path / "other.py"))
    assert process.release() != before
