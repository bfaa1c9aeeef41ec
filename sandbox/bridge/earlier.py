"""For bridges that started before modules of this package were renamed.

Such a bridge imports `sandbox.bridge.terminals` and `sandbox.bridge.transfers` from here for its first terminal or
transfer. These modules must import what the bridge runs on already: its own classes, not second ones.
"""

import sys

EARLIER = {
    "sandbox.bridge.agent.agent": "sandbox.bridge.agent",
    "sandbox.bridge.agent.lines": "sandbox.bridge.lines",
    "sandbox.bridge.agent.link": "sandbox.bridge.attachment",
    "sandbox.bridge.agent.taken": "sandbox.bridge.notes",
    "sandbox.bridge.base.config": "sandbox.bridge.config",
    "sandbox.bridge.base.handover": "sandbox.bridge.handover",
    "sandbox.bridge.base.requests": "sandbox.bridge.server",
    "sandbox.bridge.standalone": "sandbox.bridge.by_hand",
    "sandbox.bridge.tree.socket": "sandbox.bridge.trees",
    "sandbox.client.agent_link": "sandbox.link",
    "sandbox.client.endpoint": "sandbox.dialling",
    "sandbox.client.files": "sandbox.tree.live",
    "sandbox.client.handshake": "sandbox.handshake",
    "sandbox.client.http1": "sandbox.http1",
    "sandbox.client.http_client": "sandbox.http_client",
    "sandbox.client.terminal_link": "sandbox.terminal.link",
    "sandbox.client.terminals": "sandbox.terminal.client",
    "sandbox.client.tree": "sandbox.tree.client",
    "sandbox.ports.terminals": "sandbox.terminal.ports",
    "sandbox.ports.tree": "sandbox.tree.ports",
    "sandbox.protocol.agent": "sandbox.wire",
    "sandbox.protocol.agent_stream": "sandbox.stream",
    "sandbox.protocol.chunk_frames": "sandbox.tree.frames",
    "sandbox.protocol.entry": "sandbox.tree.entry",
    "sandbox.protocol.terminal": "sandbox.terminal.wire",
    "sandbox.protocol.terminal_frames": "sandbox.terminal.scan",
    "sandbox.protocol.tree": "sandbox.tree.wire",
    "sandbox.protocol.values": "sandbox.ports",
    "sandbox.protocol.websocket_frames": "sandbox.framing",
    "sandbox.system.child": "sandbox.bridge.process",
    "sandbox.system.interpreter": "sandbox.interpreter",
    "sandbox.system.jail": "sandbox.tree.jail",
    "sandbox.system.kernel": "sandbox.tree.kernel",
    "sandbox.system.log": "sandbox.bridge.log",
    "sandbox.system.mapped_files": "sandbox.tree.mapped",
    "sandbox.system.problem": "sandbox.tree.problem",
    "sandbox.terminal.queries": "sandbox.terminal.replies",
    "sandbox.terminal.screen.attributes": "sandbox.terminal.screen.palette",
    "sandbox.terminal.screen.buffer": "sandbox.terminal.screen.page",
    "sandbox.terminal.screen.row_writer": "sandbox.terminal.screen.painter",
    "sandbox.terminal.screen.snapshot": "sandbox.terminal.screen.picture",
    "sandbox.terminal.screen_follower": "sandbox.terminal.painter",
    "sandbox.tree.chunker": "sandbox.tree.chunks",
    "sandbox.tree.index": "sandbox.tree.kept",
    "sandbox.tree.index_file": "sandbox.tree.cache",
    "sandbox.tree.index_store": "sandbox.tree.memory",
    "sandbox.tree.resume": "sandbox.tree.remains",
    "sandbox.tree.root_swap": "sandbox.tree.swap",
    "sandbox.tree.scan_report": "sandbox.tree.telling",
    "sandbox.tree.stat_stamp": "sandbox.tree.stamps",
}


# Limits that were added after the first bridge that may still run, with the defaults.
LATER_LIMITS = {"terminal_hang_up_seconds": 5.0, "server_start_seconds": 60.0}


def use_what_is_loaded() -> None:
    """Make the new names refer to the loaded modules, and give the bridge's limits the later members."""
    for name, earlier in EARLIER.items():
        if earlier in sys.modules:
            sys.modules.setdefault(name, sys.modules[earlier])
    from sandbox.bridge.base.config import Limits  # not earlier: from here on it is the bridge's own

    for limit, seconds in LATER_LIMITS.items():
        if not hasattr(Limits, limit):
            setattr(Limits, limit, seconds)
