"""The progress of a pull, from the engine's reports. Pure.

Docker reports for each layer how much is there, then how much is unpacked. Podman reports the begin and the end of a
layer, and its bytes if it takes long. A pull makes progress when a layer does. Messages alone do not count: an engine
that waits for a registry to come back counts the seconds aloud.
"""

from collections.abc import Mapping
from typing import Any

from sandbox.ports.progress import ImagePull

MOST_LAYERS = 1000
_STEPS = (
    "Pulling fs layer",
    "Waiting",
    "Downloading",
    "Verifying Checksum",
    "Download complete",
    "Extracting",
    "Pull complete",
    "Already exists",
)
_THERE = _STEPS.index("Download complete")


class PullProgress:
    def __init__(self, image: str) -> None:
        self.view = ImagePull(image)
        self._steps: dict[str, int] = {}
        self._got: dict[str, tuple[int, int]] = {}  # bytes that are there, and how many it will be
        self._unpacked: dict[str, int] = {}

    def heard(self, message: Mapping[str, Any]) -> bool:
        """Whether the pull has come further by this message."""
        layer, said = message.get("id"), message.get("status")
        if not isinstance(layer, str) or said not in _STEPS:
            return False
        if layer not in self._steps and len(self._steps) >= MOST_LAYERS:
            return False
        further = self._step(layer, _STEPS.index(said))
        current, total = _numbers(message.get("progressDetail"))
        if said == "Downloading":
            further |= self._downloaded(layer, current, total)
        elif said == "Extracting" and current > self._unpacked.get(layer, 0):
            self._unpacked[layer] = current
            further = True
        if further:
            self._look()
        return further

    def _step(self, layer: str, step: int) -> bool:
        if step <= self._steps.get(layer, -1):
            return False
        self._steps[layer] = step
        if step >= _THERE and layer in self._got:
            _, total = self._got[layer]
            self._got[layer] = (total, total)
        return True

    def _downloaded(self, layer: str, current: int, total: int) -> bool:
        before, _ = self._got.get(layer, (0, 0))
        if current <= before:  # a restarted layer makes no progress until it is beyond its old place
            return False
        self._got[layer] = (current, max(current, total))
        return True

    def _look(self) -> None:
        self.view = ImagePull(
            self.view.image,
            layers=sum(step >= _THERE for step in self._steps.values()),
            of_layers=len(self._steps),
            bytes=sum(got for got, _ in self._got.values()),
            of_bytes=sum(total for _, total in self._got.values()),
        )


def _numbers(detail: Any) -> tuple[int, int]:
    found = detail if isinstance(detail, dict) else {}
    current, total = found.get("current"), found.get("total")
    return (_size(current), _size(total))


def _size(value: Any) -> int:
    return value if isinstance(value, int) and 0 < value < 1 << 50 else 0
