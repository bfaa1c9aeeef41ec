"""The network that a session may have. Pure.

Programs reach hosts by a proxy, which asks what the session may have (gateway/egress/policy.py): nothing, every public
host, or a list of hosts. A session that asks for nothing gets HOLDFAST_NETWORK, a user may ask for as much as
HOLDFAST_NETWORK_MAX, and a service for all. The choice is checked again at each start: a session from before the
setting, or from before it was changed, gets what is allowed now.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from gateway.egress.policy import BadHost, Network, covers, host_name, read_text

NETWORKS = ("none", "outbound")  # the named ones; the others are lists


@dataclass(frozen=True, slots=True)
class NetworkRule:
    """Both as settings have them."""

    given: str = "none"
    most: str = "outbound"

    def refusal(self, network: str, *, granted: bool = False, repo_url: str | None = None) -> str | None:
        """The reason why a session may not have this network; None if it may. `granted`: a service asked for it."""
        most = read_text(self.most)
        if granted or most.everything:
            return None
        if not covers(most, read_text(network)):
            wanted = f"network: {network}"
        elif repo_url is not None and not _may_clone(most, repo_url):
            wanted = "repoUrl needs network: outbound, which"
        else:
            return None
        return (
            f"{wanted} is more than users may ask for here, {self.most}; the operator can allow it "
            "(HOLDFAST_NETWORK_MAX), or let a service create the session"
        )


def _may_clone(most: Network, repo_url: str) -> bool:
    """Whether users may reach the repository's host themselves."""
    try:
        url = urlsplit(repo_url)
        return most.allows(host_name(url.hostname or ""), url.port or 443)
    except (BadHost, ValueError):
        return False


def way_out(network: str) -> str:
    """For a provider: whether a sandbox is to have a way out at all."""
    return "none" if network == "none" else "outbound"
