"""aioboto3's part in bench/objects.py. It runs in its own interpreter, without Holdfast.

It reads lines of JSON, [doing, size, count], and answers each with [wall seconds, CPU seconds]. Keys come from the
usual AWS variables.
"""

import asyncio
import json
import os
import sys
import time
from typing import Any

import uvloop

REGION = "us-east-1"


async def main(endpoint: str, bucket: str, at_once: int) -> None:
    import aioboto3  # type: ignore[import-not-found]
    from botocore.config import Config  # type: ignore[import-not-found]

    config = Config(
        max_pool_connections=at_once,
        retries={"max_attempts": 0},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"},
    )
    session = aioboto3.Session(region_name=REGION)
    async with session.client("s3", endpoint_url=endpoint, config=config) as client:
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            doing, size, count = json.loads(line)
            sys.stdout.write(json.dumps(await work(client, bucket, at_once, doing, size, count)) + "\n")
            sys.stdout.flush()


async def work(client: Any, bucket: str, at_once: int, doing: str, size: int, count: int) -> list[float]:
    content = os.urandom(size)
    slots = asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        async with slots:
            key = f"theirs/{size}/{number}"
            if doing == "put":
                await client.put_object(Bucket=bucket, Key=key, Body=content)
            else:
                answer = await client.get_object(Bucket=bucket, Key=key)
                await answer["Body"].read()

    began, cpu_began = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(one, range(count)))
    return [time.perf_counter() - began, time.process_time() - cpu_began]


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
