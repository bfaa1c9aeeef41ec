"""A disk whose power can be cut: unsynced data are gone, as on a real one."""

import os
import shutil
import subprocess
from pathlib import Path

SIZE = 64 << 20
NO_WRITEBACK = "commit=300"  # data that nobody syncs are not written for so long


class Disk:
    """An ext4 image, mounted at `path`. `power_cut` replaces the memory's state by the image.

    If this user may not mount, `real` is False and `path` is a plain directory.
    """

    def __init__(self, directory: Path) -> None:
        self._image = directory / "disk.img"
        self.path = directory / "disk"
        self.path.mkdir()
        self.real = False

    def __enter__(self) -> "Disk":
        self._image.touch()
        os.truncate(self._image, SIZE)
        made = subprocess.run(["mkfs.ext4", "-q", "-F", self._image], capture_output=True, check=False)
        self.real = made.returncode == 0 and self._mount().returncode == 0
        return self

    def __exit__(self, *_: object) -> None:
        if self.real:
            self._unmount()

    def snapshot(self) -> Path:
        """The disk's content if the power went now."""
        copy = self._image.with_suffix(".cut")
        shutil.copyfile(self._image, copy)
        return copy

    def become(self, snapshot: Path) -> None:
        """Come up with that content. Nobody may use it meanwhile."""
        self._unmount()
        snapshot.replace(self._image)
        assert self._mount().returncode == 0

    def _mount(self) -> subprocess.CompletedProcess[bytes]:
        mount = ["mount", "-o", f"loop,{NO_WRITEBACK}", str(self._image), str(self.path)]
        return subprocess.run(mount, capture_output=True, check=False)

    def _unmount(self) -> None:
        subprocess.run(["umount", self.path], check=True)
