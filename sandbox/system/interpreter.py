"""The path of this Python, valid from every directory.

`sys.executable` begins at the process's first working directory if it was found through a relative entry of PATH, and
keeps the `..` of a relative command. A sandbox has another working directory, and in a container the directories
before a `..` do not exist. Links are kept: a virtual environment is known by the path of its own link to Python.
"""

import os
import sys

PYTHON = os.path.abspath(sys.executable)
