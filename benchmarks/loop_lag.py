"""How late an event loop is."""

from __future__ import annotations

import asyncio
import time
from typing import Any


async def lags(until: asyncio.Future[Any]) -> list[float]:
    """By how many seconds a timer of a millisecond came late, each time until something is done."""
    late = [0.0]
    while not until.done():
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        late.append(time.perf_counter() - before - 0.001)
    return late
