"""Advantages that a function of the user's own gives, with the state that it keeps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import define, field

from rlc.algo import Advantages, AdvantageScheme, Episodes
from rlc.catalog import functions_of
from rlc.data import AdvantageFunction
from rlc.runtime.concurrency import in_thread

STATE = ".state"  # in a step's cursor; no environment has this name


@define(eq=False)
class OwnAdvantages:
    """Calls the function for one step after the other, whatever else overlaps, so that what it
    keeps in its state does not depend on what is ready first. States are kept as JSON, by the step
    after which they hold: those after finished steps are journalled with their cursors."""

    function: AdvantageFunction
    _after: dict[int, str]
    _given: dict[int, asyncio.Event] = field(factory=dict, init=False)

    @classmethod
    def of(
        cls, scheme: AdvantageScheme, cursors: Sequence[Mapping[str, Any]]
    ) -> OwnAdvantages | None:
        """Return the function after the steps with these cursors; None for a formula."""
        code = next((code for _, code in functions_of({"advantage": scheme})), None)
        if code is None:
            return None
        state = cursors[-1][STATE] if cursors else {}
        return cls(AdvantageFunction(code), {len(cursors): json.dumps(state)})

    async def computed(self, step: int, episodes: Episodes) -> Advantages:
        """Return the advantages of a step. Raise DataError if the function fails."""
        if step - 1 not in self._after:
            await self._given.setdefault(step - 1, asyncio.Event()).wait()
        found, state = await in_thread(self._called, json.loads(self._after[step - 1]), episodes)
        self._after[step] = json.dumps(state)
        self._given.setdefault(step, asyncio.Event()).set()
        return found

    def _called(
        self, state: dict[str, Any], episodes: Episodes
    ) -> tuple[Advantages, dict[str, Any]]:
        """Call the function, unless there is no episode: then its state stays as it was."""
        turns_R = episodes.turns_R
        if not len(turns_R):
            return Advantages(np.zeros(0), np.ones(0, np.bool_), turns_R), state
        episodes.require_finite()
        advantages_N, kept_R, state = self.function(episodes.columns(), state)
        return Advantages(advantages_N, kept_R, turns_R), state

    def finish(self, step: int) -> dict[str, Any]:
        """Return the state after a step, and forget those before it."""
        for earlier in [known for known in self._after if known < step]:
            del self._after[earlier]
            self._given.pop(earlier, None)
        state: dict[str, Any] = json.loads(self._after[step])
        return state
