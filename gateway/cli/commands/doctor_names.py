"""`holdfast doctor`: variables of other systems that are set where ours is not, as docs/coming-from.md lists them."""

from collections.abc import Mapping

from gateway.cli.commands.doctor_store import Finding
from gateway.config.settings import Settings

# Their name: our setting, and the text to write instead.
THEIRS = {
    "JWT_SECRET": ("HOLDFAST_JWT_SECRET", 'HOLDFAST_JWT_SECRET="$JWT_SECRET"'),
    "API_TOKEN": ("HOLDFAST_API_TOKEN", 'HOLDFAST_API_TOKEN="$API_TOKEN"'),
    "INTERNAL_API_TOKEN": ("HOLDFAST_INTERNAL_TOKEN", 'HOLDFAST_INTERNAL_TOKEN="$INTERNAL_API_TOKEN"'),
    "RELAY_SECRET": ("HOLDFAST_RELAY_SECRET", 'HOLDFAST_RELAY_SECRET="$RELAY_SECRET"'),
    "SANDBOX_CF_API_TOKEN": ("HOLDFAST_RELAY_SECRET", 'HOLDFAST_RELAY_SECRET="$SANDBOX_CF_API_TOKEN"'),
    "API_BASE_URL": ("HOLDFAST_STORE", 'HOLDFAST_STORE="$API_BASE_URL", if that service is to keep the messages'),
    "DEFAULT_SANDBOX_PROVIDER": ("HOLDFAST_SANDBOX", 'HOLDFAST_SANDBOX="$DEFAULT_SANDBOX_PROVIDER"'),
    "CLOUDFLARE_R2_BUCKET": (
        "HOLDFAST_OBJECTS",
        'HOLDFAST_OBJECTS="s3://$CLOUDFLARE_R2_BUCKET?region=auto", with CF_ACCOUNT_ID',
    ),
    "PI_COMMAND": ("HOLDFAST_AGENT", 'HOLDFAST_AGENT="$PI_COMMAND"'),
    "ANTHROPIC_API_KEY": (
        "HOLDFAST_SANDBOX_ENV_FILE",
        "write ANTHROPIC_API_KEY=... into a file of mode 0600, and name the file in HOLDFAST_SANDBOX_ENV_FILE",
    ),
}


def check_names(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    """One finding for each of their names that is set while ours is not. No finding contains a value."""
    return [
        Finding("names", "warn", f"{theirs} is set, but the gateway reads {ours}, which is not set", advice)
        for theirs, (ours, advice) in THEIRS.items()
        if environ.get(theirs) and ours not in settings.sources
    ]
