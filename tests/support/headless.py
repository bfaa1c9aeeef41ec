"""A program whose first thread has ended while another goes on, as one looks that was killed and is not dead yet.

The kernel shows it as a zombie, and it has its files, its locks and its memory until the last thread has ended.
"""

import sys
from pathlib import Path

_SCRIPT = """
import ctypes, sys, threading, time

def go_on():
    while open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    {then}
    time.sleep(600)

threading.Thread(target=go_on).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def headless(then: str) -> list[str]:
    """The command of a program whose first thread ends; the others then run `then`."""
    return [sys.executable, "-c", _SCRIPT.replace("{then}", then)]


def looks_dead(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
