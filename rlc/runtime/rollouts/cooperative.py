"""Many coroutines that compute a little each, without holding up the event loop."""

from __future__ import annotations

import asyncio
from time import perf_counter

from attrs import define, field

from rlc.service.pending_calls import pending_call

_AT_A_TIME = 0.005  # seconds that may be computed before the loop comes round


@define(eq=False)
class EventLoopYield:
    """Before each piece of computing: ``await pace.turn()``. Where a thousand replies come at once,
    what they lead to is spread over as many rounds of the loop as it takes, in order."""

    _fresh: float = field(default=0.0, init=False)  # when the loop last came round
    _line: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    async def turn(self) -> None:
        """Gives back control until there is time for more."""
        if not self._line.locked() and self._has_time():
            return
        # Who stands in line will ask for more: a service that answers in waves is to know.
        with pending_call():
            async with self._line:
                await self._come_round()

    async def _come_round(self) -> None:
        if not self._has_time():
            await asyncio.sleep(0)
            self._fresh = perf_counter()

    def _has_time(self) -> bool:
        return perf_counter() - self._fresh < _AT_A_TIME
