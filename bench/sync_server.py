"""The S3 server of bench/sync.py. The server itself counts the requests to each bucket."""

import re
import urllib.request
from dataclasses import dataclass

from tests.support.s3 import S3Server, free_ports

_SAMPLE = re.compile(r'SeaweedFS_s3_(\w+)\{bucket="([^"]+)".*\} (\S+)')


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of a bucket. Bytes are those of bodies."""

    received: int = 0
    sent: int = 0
    requests: int = 0

    def __sub__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.received - other.received, self.sent - other.sent, self.requests - other.requests)


class CountingS3Server(S3Server):
    def traffic(self, bucket: str) -> Traffic:
        totals = {"bucket_traffic_received_bytes_total": 0, "bucket_traffic_sent_bytes_total": 0, "request_total": 0}
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=10) as answer:
            for line in answer.read().decode().splitlines():
                sample = _SAMPLE.match(line)
                if sample is not None and sample[2] == bucket and sample[1] in totals:
                    totals[sample[1]] += int(float(sample[3]))
        return Traffic(*totals.values())

    def _choose_ports(self) -> None:
        super()._choose_ports()
        (self._metrics_port,) = free_ports(1)

    def _command(self) -> list[str]:
        return [*super()._command(), f"-metricsPort={self._metrics_port}"]
