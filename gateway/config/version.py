"""Which Holdfast this is."""

from functools import cache


@cache
def version() -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("holdfast")
    except PackageNotFoundError:  # run from a tree that was never installed
        return "unknown"
