"""The route to models, as the settings ask for it, with the vault's keys."""

from pathlib import Path

from gateway.config.settings import Settings, SettingsError
from gateway.egress.prices import NANO, read_prices
from gateway.egress.providers import ModelProviders, read_providers

JOURNAL = "spent.journal"  # in the data directory


def make_providers(settings: Settings) -> ModelProviders:
    """Raises SettingsError, with a line for each problem; for the file of prices, too."""
    problems: list[str] = []
    providers = ModelProviders()
    if settings.providers_file is not None:
        try:
            providers = read_providers(settings.providers_file.read_bytes())
        except (OSError, ValueError) as error:
            problems += _told("HOLDFAST_PROVIDERS_FILE", settings.providers_file, error)
    if settings.prices_file is not None:
        try:
            read_prices(settings.prices_file.read_bytes())
        except (OSError, ValueError) as error:
            problems += _told("HOLDFAST_PRICES_FILE", settings.prices_file, error)
    if problems:
        raise SettingsError(problems)
    return providers


def user_cost(settings: Settings) -> int | None:
    """The limit of a user's spending per day, in nano-dollars."""
    return None if settings.budget_per_user is None else round(settings.budget_per_user * NANO)


def _told(setting: str, path: Path, error: OSError | ValueError) -> list[str]:
    if isinstance(error, OSError):
        return [f"{setting} {path} cannot be read: {error.strerror or error}"]
    return [f"{setting} {path}: {line}" for line in str(error).splitlines()]
