"""Which limits this host can hold contained sandboxes to, and the control groups that do."""

import secrets
from pathlib import Path

from sandbox.ports.resources import ResourceLimits
from sandbox.ports.sandbox import SandboxFailed
from sandbox.providers.cgroups import groups
from sandbox.providers.cgroups.files import LIMITED_BY
from sandbox.providers.cgroups.groups import Group, Groups, NoGroups
from sandbox.providers.local import processes
from sandbox.providers.local.host import LocalHost
from sandbox.providers.local.isolation import Started
from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.sandbox import group_of, runs_at

_TRUSTED = "sandboxes of level trusted have no limits: install bubblewrap for level contained"


class LimitControl:
    """`operator`: the limits in settings. `root`: the mount point of control groups. Before `open`, and without it,
    no limit can be enforced."""

    def __init__(self, host: LocalHost, operator: ResourceLimits, root: Path) -> None:
        self._host = host
        self._operator = operator
        self._root = root
        self._groups: Groups | None = None
        self.problem: str | None = _TRUSTED

    def open(self) -> None:
        """Check the abilities of this host, and remove the groups of gone sandboxes. Blocks."""
        try:
            self._groups = groups.find(groups.tag(self._host.data_dir), root=self._root)
            self.problem = None
        except NoGroups as exc:
            self.problem = f"control groups cannot be used here: {exc}"
        self._remove_orphans()

    def close(self) -> None:
        if self._groups is not None:
            self._groups.close()

    @property
    def unenforced(self) -> str | None:
        """The operator's limits that are not enforced, and why; None if all are."""
        return self._unheld(self._operator, "HOLDFAST_LIMIT_{}")

    def check(self, limits: ResourceLimits) -> None:
        """Raise SandboxFailed, for the user, if a session's own limit cannot be enforced. The operator was told about
        those in settings."""
        own = {name: getattr(limits, name) for name in LIMITED_BY}
        own = {name: None if limit == getattr(self._operator, name) else limit for name, limit in own.items()}
        if told := self._unheld(ResourceLimits(**own), "limits.{}"):
            raise SandboxFailed(told)

    def make(self, home: SandboxHome, limits: ResourceLimits) -> Group | None:
        """A new group for a new sandbox, if it has an enforceable limit. Raises OSError."""
        self._host.limits.begin(home.session_id)
        if self._groups is None or not limits.any or self._groups.lacking(limits):
            return None
        # No two starts share a name, so removing the remains of one does not harm the next.
        return self._groups.make(f"{Path(home.socket).stem}-{secrets.token_hex(4)}", limits)

    def join(self, group: Group, started: Started) -> None:
        """Move a bridge that still waits for its configuration into its group, with the processes that contain it.
        Its first process goes first: its later children are in the group. Raises OSError."""
        group.join([started.first.pid, started.process.pid])
        group.join(each.pid for each in processes.children(started.first.pid))

    def _unheld(self, limits: ResourceLimits, name: str) -> str | None:
        wanted = [each for each in LIMITED_BY if getattr(limits, each) is not None]
        if not wanted:
            return None
        reason = self.problem
        if self._groups is not None:
            wanted = self._groups.lacking(limits)
            reason = "the gateway may not use the kernel's controllers for it"
        named = ", ".join(name.format(each.upper() if name.isupper() else each) for each in wanted)
        return f"{named} cannot be enforced: {reason}" if wanted else None

    def _remove_orphans(self) -> None:
        """A gateway that was killed leaves groups of sandboxes that have ended since, or never became one."""
        running: set[str] = set()
        for entry in (self._host.data_dir / "sandboxes").iterdir():
            try:
                home = self._host.home(entry.name)
            except ValueError:
                continue
            if (group := group_of(home)) is None:
                continue
            if runs_at(home):
                running |= {directory.name for directory in group.directories}
            else:
                groups.end(group)
        if self._groups is not None:
            for name in self._groups.names() - running:
                groups.end(self._groups.named(name))
