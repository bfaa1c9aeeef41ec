"""What each metric says, and when to look: the table of docs/operations/watching.md. Pure."""

from dataclasses import dataclass

BEGIN = "<!-- metrics: written by `make tables` from gateway/telemetry/metric_docs.py -->"
END = "<!-- end of metrics -->"


@dataclass(frozen=True, slots=True)
class MetricRow:
    """Names without `holdfast_`; `alarm` is the value that calls for a person."""

    names: tuple[str, ...]
    what: str
    alarm: str = ""


ROWS = (
    MetricRow(
        ("message_seconds",),
        "histogram: received to durable",
        alarm="p99 above 1 s",
    ),
    MetricRow(
        ("answer_seconds",),
        "histogram: from a message received to its `done` stored and shown, with all that is in between: waiting for "
        "a sandbox, the agent's own time, people who are asked. A message that is never answered is not in it",
    ),
    MetricRow(
        (
            "queue_depth",
            "queue_bytes",
        ),
        "writes that are not durable anywhere",
        alarm="above 5,000",
    ),
    MetricRow(
        ("queue_oldest_age_seconds",),
        "how long the oldest of them waits",
        alarm="above 5",
    ),
    MetricRow(
        ("queue_failing",),
        "1 while no write becomes durable",
        alarm="at once",
    ),
    MetricRow(
        (
            "queue_retries",
            "queue_refused",
        ),
        "commits tried again; writes refused for room",
        alarm="growing",
    ),
    MetricRow(
        (
            "queue_batch_writes",
            "queue_commit_seconds",
        ),
        "histograms: size and time of a commit",
    ),
    MetricRow(
        (
            "queue_commits",
            "queue_committed_writes",
            "queue_coalesced",
        ),
        "work done; writes that another one made needless",
    ),
    MetricRow(
        ("queue_dead",),
        "records refused for good as they came, since the start",
        alarm="growing",
    ),
    MetricRow(
        ("dead_letters",),
        "dead letters kept; counted once a minute, up to 1,000",
        alarm="above 0",
    ),
    MetricRow(
        (
            "spool_rows",
            "spool_bytes",
            "spool_sessions",
        ),
        "Postgres: writes that wait for it",
        alarm="bytes above half of `HOLDFAST_SPOOL_BYTES`",
    ),
    MetricRow(
        ("spool_oldest_age_seconds",),
        "how long the oldest of it waits",
        alarm="above 60",
    ),
    MetricRow(
        (
            "spool_failing",
            "spool_spooling",
        ),
        "1 while Postgres does not answer; 1 while the spool is in use",
        alarm="failing for a minute",
    ),
    MetricRow(
        (
            "spool_spooled",
            "spool_replayed",
            "spool_retries",
        ),
        "writes that took the spool; those replayed; tries",
    ),
    MetricRow(
        (
            "spool_dead",
            "spool_lost",
        ),
        "accepted, then refused for good; without a place to go back to",
        alarm="growing",
    ),
    MetricRow(
        (
            "sink_waiting",
            "sink_oldest_age_seconds",
        ),
        "a service: records that were not posted yet",
        alarm="age above 60",
    ),
    MetricRow(
        (
            "sink_failing",
            "sink_failing_sessions",
        ),
        "1 while a post was not taken; in how many sessions",
        alarm="failing for a minute",
    ),
    MetricRow(
        (
            "sink_posts",
            "sink_posting",
            "sink_retries",
            "sink_rejected",
        ),
        "posts; under way; again; refused for good",
        alarm="rejected growing",
    ),
    MetricRow(
        ("trimmed_records_total",),
        "removed by retention",
    ),
    MetricRow(
        (
            "pending_records",
            "pending_bytes",
        ),
        "messages that wait for sandboxes",
    ),
    MetricRow(
        (
            "sessions_loaded",
            "viewers",
            "terminal_viewers",
            "event_viewers",
            "connections",
            "tickets",
            "links",
        ),
        "sessions, viewers and connections at the moment; unused tickets and links",
        alarm="connections near `HOLDFAST_MAX_CONNECTIONS`",
    ),
    MetricRow(
        (
            "sync_failed_sessions",
            "sync_failures_total",
        ),
        "workspaces that cannot be stored at the moment; attempts that failed",
        alarm="the first above 0: `GET .../status` says why; the log has `sync.failed`",
    ),
    MetricRow(
        (
            "sync_dirty_sessions",
            "sync_oldest_dirty_seconds",
        ),
        "workspaces with unsynced changes; how long ago the one that waits longest was synced",
        alarm="minutes",
    ),
    MetricRow(
        (
            "sync_seconds",
            "sync_generations_total",
            "sync_read_bytes_total",
            "sync_sent_bytes_total",
            "sync_chunks_total",
        ),
        "the cost of syncs: time, new generations, bytes read and sent, chunks `sent` and `reused`",
    ),
    MetricRow(
        ("restore_seconds",),
        "the cost of restores",
    ),
    MetricRow(
        ("stored_workspace_bytes",),
        "the newest snapshots of all workspaces, as users' quotas count them: counted at the start and every ten "
        "minutes, what changes here is added at once. `NaN` before the first count. With several gateways on one "
        "store each shows the whole: take `max`, not `sum`",
        alarm="the size of the bucket or the disk",
    ),
    MetricRow(
        ("sandboxes_created_total",),
        "sessions created, by `provider`: new ones, branches, archived ones created again",
    ),
    MetricRow(
        (
            "sandbox_starts_total",
            "wake_seconds",
        ),
        "by `provider`: sandboxes started; how long it took from the intent to a linked sandbox, for those that came "
        "up",
    ),
    MetricRow(
        ("orphans_removed_total",),
        "by `provider`: what sandboxes left behind and the gateway [removed](what-to-do.md#orphans); each container "
        "that ends by itself is one",
        alarm="rises without crashes",
    ),
    MetricRow(
        ("provider_up",),
        "by `provider`: 1 if it answered when it was asked last, at most some 15 s ago, 0 if not. A container engine "
        "that is silent, away or cannot be used is 0; `holdfast providers` says why, the log has "
        "`provider.unavailable`",
        alarm="0 for a minute",
    ),
    MetricRow(
        (
            "image_pulls_total",
            "image_pull_seconds",
        ),
        "by `provider`: images fetched by its engine, with their `result` (`ok`, `not_found`, `unauthorized`, "
        "`no_space`, `unreachable`, `untrusted`, `busy`, `architecture`, `timeout`, `cancelled`, `failed`), and how "
        "long that took",
        alarm=(
            "anything but `ok` and `cancelled`: the log (`image.not_pulled`) says why; `no_space`: the engine's "
            "disk is full"
        ),
    ),
    MetricRow(
        ("limit_ends_total",),
        "by `provider` and `limit` (`memory`, `pids`): agents and commands that a limit of their sandbox ended",
        alarm="growing: raise the limit, or ask what they do",
    ),
    MetricRow(
        (
            "sandboxes_running",
            "starts_under_way",
            "starts_waiting",
        ),
        "sandboxes that have a place, by `provider`; starts and re-attachments under way; those that wait for their "
        "turn or a place",
        alarm="running near `HOLDFAST_MAX_RUNNING`; waiting for minutes",
    ),
    MetricRow(
        ("reattach_seconds",),
        "histogram, by `provider`: from the gateway's start to a sandbox attached again that had run on without it. "
        "Its count is how many were",
        alarm="above 10 s",
    ),
    MetricRow(
        ("frames_relayed_total",),
        "frames of agents, passed on",
    ),
    MetricRow(
        ("agent_unknown_total",),
        "by `agent` (the core that speaks with it) and `type`: frames of agents that this version does not know; at "
        "most 64 types of each agent, then `others`",
        alarm="after an update of an agent: its new frames are not shown",
    ),
    MetricRow(
        ("agent_slowed_seconds_total",),
        "how long agents were not listened to: `HOLDFAST_MAX_AGENT_RECORDS`",
        alarm="growing",
    ),
    MetricRow(
        (
            "throttles",
            "throttled_seconds",
        ),
        "how often, and how long in all, users' sockets were not read because they had sent more than "
        "`HOLDFAST_MAX_FRAMES_PER_USER` or `HOLDFAST_MAX_INPUT_PER_USER`",
        alarm="growing: a client floods the gateway, or the settings are too low",
    ),
    MetricRow(
        ("credential_refreshes_total",),
        "OAuth tokens asked for, by `result`: refreshed, refused (its owner has to set the credential again) or away",
        alarm="refused or away growing",
    ),
    MetricRow(("model_requests_total",), "metered requests to models, by `provider`"),
    MetricRow(
        ("model_tokens_total",), "tokens of models, by `provider` and `kind`: input, output, cache_read, cache_write"
    ),
    MetricRow(("model_cost_usd_total",), "USD spent on models that have a price, by `provider`"),
    MetricRow(
        ("refusals_total",),
        "by `reason`",
        alarm="`storage_full`, `storage_unavailable`",
    ),
)


def table() -> str:
    lines = ["| metric | what | alarm |", "|---|---|---|"]
    for row in ROWS:
        names = ", ".join(f"`holdfast_{name}`" for name in row.names)
        lines.append(f"| {names} | {row.what} | {row.alarm} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"
