"""The route to models, as the settings ask for it."""

from pathlib import Path

import pytest

from gateway.config.settings import Settings, SettingsError
from gateway.egress.prices import NANO
from gateway.wiring.models import make_providers, user_cost


def test_without_files_there_are_the_built_in_providers() -> None:
    assert "anthropic" in make_providers(Settings()).by_name
    assert user_cost(Settings()) is None
    assert user_cost(Settings(budget_per_user=2.5)) == 5 * NANO // 2


def test_every_line_that_is_wrong_is_told_with_its_setting(tmp_path: Path) -> None:
    (providers := tmp_path / "providers.toml").write_text("[openai]\nx = 1\n[house]\n")
    with pytest.raises(SettingsError) as raised:
        make_providers(Settings(providers_file=providers, prices_file=tmp_path / "none"))
    first, second, third = raised.value.problems
    assert first.startswith(f"HOLDFAST_PROVIDERS_FILE {providers}: [openai] has no x")
    assert second.startswith(f"HOLDFAST_PROVIDERS_FILE {providers}: [house] is a new provider")
    assert third == f"HOLDFAST_PRICES_FILE {tmp_path / 'none'} cannot be read: No such file or directory"


def test_files_are_read(tmp_path: Path) -> None:
    (providers := tmp_path / "providers.toml").write_text('[openai]\norigin = "http://127.0.0.1:9"\n')
    (prices := tmp_path / "prices.toml").write_text("m = { input = 1, output = 2 }\n")
    found = make_providers(Settings(providers_file=providers, prices_file=prices))
    assert found.by_name["openai"].origin == "http://127.0.0.1:9"
