"""Arguments that several commands take, and the exit codes."""

import argparse

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


def session_id(text: str) -> str:
    """An id becomes part of a path: `..` would name another one."""
    from gateway.auth.policy import valid_session_id

    if not valid_session_id(text):
        shown = ascii(text[:40]) + ("..." if len(text) > 40 else "")
        raise argparse.ArgumentTypeError(f"{shown} is no session id: 1 to 128 of A-Z a-z 0-9 _ -, no _ or - first")
    return text


def add_url(command: argparse.ArgumentParser) -> None:
    command.add_argument("--url", help="where the gateway is (default: the one on this data directory)")


def token_text(text: str) -> str:
    """An empty text is a shell variable that is not set: the command must not use the API token instead."""
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise argparse.ArgumentTypeError("this is no token" if text else "it is empty")
    return text
