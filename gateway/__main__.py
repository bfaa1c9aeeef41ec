"""`python -m gateway` is `holdfast`."""

from gateway.cli.main import run

run()
