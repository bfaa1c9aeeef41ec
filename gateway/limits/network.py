"""The network that a session may have. Pure.

With `outbound` a program shares the host's network, its loopback and the ports there on which other users' programs
listen. So the operator decides: a session that asks for nothing gets HOLDFAST_NETWORK, a user may ask for as much as
HOLDFAST_NETWORK_MAX, and a service for all of it. The choice is checked again at each start: a session from before the
setting, or from before it was changed, gets what is allowed now.
"""

from dataclasses import dataclass

NETWORKS = ("none", "outbound")  # the least first


@dataclass(frozen=True, slots=True)
class NetworkRule:
    given: str = "none"
    most: str = "outbound"

    def refusal(self, network: str, *, granted: bool = False, repo_url: str | None = None) -> str | None:
        """The reason why a session may not have this network; None if it may. `granted`: a service asked for it."""
        if granted or self.most == NETWORKS[-1]:
            return None
        if NETWORKS.index(network) > NETWORKS.index(self.most):
            wanted = f"network: {network}"
        elif repo_url is not None:
            wanted = "repoUrl needs network: outbound, which"
        else:
            return None
        return (
            f"{wanted} is more than users may ask for here, {self.most}: it shares the host's network; the operator "
            "can allow it (HOLDFAST_NETWORK_MAX), or let a service create the session"
        )
