"""Runs the campaign beside all other tests, because both wait more than they work; `make test` does. The campaign's
output comes when it has ended, so that the two do not mix."""

import subprocess
import sys
from tempfile import TemporaryFile

CAMPAIGN = "tests/campaign"


def main() -> int:
    python = sys.executable
    with TemporaryFile() as kept:
        campaign = subprocess.Popen([python, "-m", "pytest", CAMPAIGN], stdout=kept, stderr=subprocess.STDOUT)
        try:
            rest = subprocess.run([python, "-m", "coverage", "run", "-m", "pytest", f"--ignore={CAMPAIGN}"])
            campaign.wait()
        finally:
            campaign.kill()
            kept.seek(0)
            sys.stdout.buffer.write(b"the campaign:\n" + kept.read())
            sys.stdout.flush()
    return rest.returncode or campaign.returncode


if __name__ == "__main__":
    sys.exit(main())
