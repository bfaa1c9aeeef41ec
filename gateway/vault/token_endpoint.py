"""One request to a provider's token endpoint."""

import asyncio
import time
from collections.abc import Callable

from gateway.vault.credential import OAuthTokens
from gateway.vault.oauth import EndpointAway, GrantRefused, OAuthClient, read_answer, request_of

ASK_SECONDS = 15.0
LARGEST_ANSWER = 64 * 1024


async def ask(
    client: OAuthClient, before: OAuthTokens, *, utcnow: Callable[[], float] = time.time
) -> OAuthTokens | GrantRefused | EndpointAway:
    """Refresh `before`. Follows no redirect: the refresh token goes nowhere else."""
    import httpx  # here, because it takes longer to import than the whole gateway without it

    kind, content = request_of(client, before.refresh)
    headers = {"content-type": kind, "accept": "application/json"}
    body = bytearray()
    try:
        async with (
            asyncio.timeout(ASK_SECONDS),
            httpx.AsyncClient(follow_redirects=False, trust_env=False, timeout=ASK_SECONDS) as http,
            http.stream("POST", client.token_url, headers=headers, content=content) as response,
        ):
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > LARGEST_ANSWER:
                    return EndpointAway(f"its answer is longer than {LARGEST_ANSWER} bytes")
    except TimeoutError:
        return EndpointAway(f"it does not answer within {ASK_SECONDS:g} s")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return EndpointAway(f"it cannot be reached: {type(error).__name__}")
    return read_answer(response.status_code, bytes(body), before, utcnow())
