"""`python -m gateway` is `holdfast`."""

from gateway.cli import run

run()
