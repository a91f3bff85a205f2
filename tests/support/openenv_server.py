"""A real OpenEnv server: ``openenv_server.py PORT``, run where openenv is installed."""

from __future__ import annotations

import random
import sys
from typing import Any

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation


class Guess(Action):
    message: str
    loud: bool = False


class Seen(Observation):
    text: str
    tries: int


class Guessing(Environment):
    """A number to guess, drawn from the seed."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.number, self.tries, self.top = 0, 0, 0

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, top: int = 9, **_: Any
    ) -> Seen:
        self.number, self.tries, self.top = random.Random(seed).randint(0, top), 0, top
        return Seen(text=f"A number from 0 to {top}. Which? ({self.number})", tries=0)

    def step(self, action: Guess, timeout_s: float | None = None, **_: Any) -> Seen:
        if action.message == "crash":
            raise RuntimeError("the table fell over")
        self.tries += 1
        right = action.message.strip() == str(self.number)
        text = "Right." if right else "No" + "!" * action.loud
        reward = 1.0 if right else -0.1
        return Seen(text=text, tries=self.tries, reward=reward, done=right)

    @property
    def state(self) -> State:
        return State(step_count=self.tries)


class Restless(Guessing):
    """It does not heed the seed."""

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, top: int = 10**9, **_: Any
    ) -> Seen:
        return super().reset(None, episode_id, top)


class Calculating(MCPEnvironment):
    """Two numbers from the seed, which a tool adds; the answer ends the episode."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        mcp = FastMCP("sums")
        self.numbers, self.done = (0, 0), False

        @mcp.tool()
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        @mcp.tool()
        def answer(value: int) -> str:
            self.done = True
            return "Right." if value == sum(self.numbers) else "No."

        super().__init__(mcp)

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **_: Any
    ) -> Observation:
        numbers = random.Random(seed)
        self.numbers, self.done = (numbers.randint(0, 9), numbers.randint(0, 9)), False
        return Observation(done=False, reward=None, metadata={"numbers": self.numbers})

    def _step_impl(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:
        raise ValueError("call a tool")

    async def step_async(self, action: Action, timeout_s: float | None = None, **_: Any) -> Any:
        seen = await super().step_async(action, timeout_s)
        seen.done, seen.reward = self.done, float(self.done)
        return seen

    @property
    def state(self) -> State:
        return State()


if __name__ == "__main__":
    if "tools" in sys.argv:
        app = create_fastapi_app(
            Calculating, CallToolAction, CallToolObservation, max_concurrent_envs=2
        )
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
        sys.exit()
    made = Restless if "restless" in sys.argv else Guessing
    app = create_fastapi_app(made, Guess, Seen, max_concurrent_envs=2)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
