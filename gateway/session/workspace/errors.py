"""Why an agent may not start in its workspace."""


class NotRestored(Exception):
    """The workspace is not proven restored, so no program may run in it. The text says why and what to do."""


class NotWritten(Exception):
    """The store does not answer, and the agent may not start before it has."""
