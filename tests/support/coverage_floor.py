"""`python -m tests.support.coverage_floor`: after a test run under coverage, every pure core must be covered in full.

Shells are proven by what they do to sockets, processes and files, which a percentage says little about. A core has no
such excuse: each line and each way out of each line must have been taken.
"""

import sys
from pathlib import Path

from coverage import Coverage
from coverage.exceptions import NoDataError

ROOT = Path(__file__).parents[2]
CORES = (
    "persistence/answer.py",
    "persistence/backlog.py",
    "persistence/batch.py",
    "persistence/backoff.py",
    "persistence/following.py",
    "persistence/spool_rows.py",
    "persistence/tails.py",
    "persistence/courier.py",
    "persistence/reading.py",
    "sandbox/framing.py",
    "sandbox/stream.py",
    "sandbox/wire.py",
    "sandbox/tree/entry.py",
    "sandbox/tree/wire.py",
    "sync/backoff.py",
    "sync/catalogue.py",
    "sync/history.py",
    "sync/keys.py",
    "sync/manifest.py",
    "sync/marks.py",
    "sync/pack.py",
    "sync/pointer.py",
    "sync/recovery.py",
    "sync/sealed.py",
    "sync/state.py",
    "sync/objects/budget.py",
    "sync/objects/names.py",
    "sync/objects/s3_errors.py",
    "gateway/allowance.py",
    "gateway/arrears.py",
    "gateway/backup/note.py",
    "gateway/durations.py",
    "gateway/listing.py",
    "gateway/objects_url.py",
    "gateway/pacing.py",
    "gateway/limits/fair.py",
    "gateway/limits/network.py",
    "gateway/limits/starts.py",
    "gateway/rate.py",
    "gateway/request_rules.py",
    "gateway/reserve.py",
    "gateway/room.py",
    "gateway/wire.py",
    "gateway/strict_json.py",
    "gateway/session/pending.py",
    "gateway/session/ledger.py",
    "gateway/session/debts.py",
    "gateway/session/order.py",
    "gateway/session/patience.py",
    "gateway/session/pauses.py",
    "gateway/session/shares.py",
    "gateway/session/stages.py",
    "gateway/session/state.py",
    "gateway/session/description.py",
    "gateway/session/transcript/chat.py",
    "gateway/auth/cookie.py",
    "gateway/auth/links.py",
    "gateway/auth/tickets.py",
    "gateway/http/encodings.py",
    "sandbox/handshake.py",
    "sandbox/terminal/painter.py",
    "sandbox/terminal/replies.py",
    "sandbox/terminal/ring.py",
    "sandbox/terminal/room.py",
    "sandbox/terminal/scan.py",
    "sandbox/terminal/wire.py",
    "gateway/pulse.py",
    "gateway/terminal_client.py",
    "gateway/terminal_queries.py",
    "gateway/terminal_modes.py",
    "gateway/asciicast.py",
    "gateway/returning.py",
    "gateway/commands/detach_keys.py",
    "gateway/sockets/dialects/choose.py",
    "gateway/sockets/dialects/cloudflare.py",
    "gateway/sockets/dialects/control.py",
    "gateway/sockets/dialects/jupyter.py",
    "gateway/sockets/dialects/native.py",
    "gateway/sockets/dialects/plain.py",
    "gateway/sockets/dialects/quiet.py",
    "gateway/sockets/dialects/tty.py",
    "gateway/sockets/dialects/utf8.py",
    "sandbox/terminal/screen/canvas.py",
    "sandbox/terminal/screen/cells.py",
    "sandbox/terminal/screen/charsets.py",
    "sandbox/terminal/screen/commands.py",
    "sandbox/terminal/screen/edits.py",
    "sandbox/terminal/screen/modes.py",
    "sandbox/terminal/screen/page.py",
    "sandbox/terminal/screen/painter.py",
    "sandbox/terminal/screen/palette.py",
    "sandbox/terminal/screen/picture.py",
    "sandbox/terminal/screen/reflow.py",
    "sandbox/terminal/screen/screen.py",
    "sandbox/terminal/screen/sequences.py",
    "sandbox/terminal/screen/widths.py",
)


def shortfalls(measured: Coverage) -> list[str]:
    """One line for each core that is not covered in full, or cannot be judged."""
    data = measured.get_data()
    if not data.measured_files():
        return ["no coverage data: run `coverage run -m pytest` first"]
    if not data.has_arcs():
        return ["the data is about lines only: branch coverage must be on"]
    return [f"{core}: {problem}" for core in CORES if (problem := _problem(measured, ROOT / core))]


def _problem(measured: Coverage, core: Path) -> str | None:
    if not core.is_file():
        return "does not exist; if it moved, change the list in tests/support/coverage_floor.py"
    if str(core) not in measured.get_data().measured_files():
        return "no test imported it"
    _, _, _, missing, ranges = measured.analysis2(str(core))
    branches = measured.branch_stats(str(core)).items()
    partial = sorted(line for line, (ways, taken) in branches if taken < ways and line not in missing)
    said = [f"lines not run: {ranges}"] if missing else []
    said += [f"branches not taken from lines: {', '.join(map(str, partial))}"] if partial else []
    return "; ".join(said) or None


def main() -> None:
    measured = Coverage(config_file=str(ROOT / "pyproject.toml"))
    measured.load()
    try:
        found = shortfalls(measured)
    except NoDataError as error:
        found = [str(error)]
    if found:
        sys.exit("The pure cores must be covered in full:\n  " + "\n  ".join(found))
    sys.stdout.write(f"{len(CORES)} pure cores: every line and branch covered\n")


if __name__ == "__main__":
    main()
