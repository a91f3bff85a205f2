"""The environments of the tests' OpenReward server, and the refusals before it.

    python -m openreward_environments PORT

The games of the examples, and environments with faults. Refusals (401, 402, 429, 503) come from a
layer before the server, as they do from OpenReward's own proxy.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import uvicorn
from openreward.environments import (
    Environment,
    GroupScore,
    ImageBlock,
    Message,
    Server,
    TextBlock,
    ToolCallBlock,
    ToolOutput,
    ToolResultBlock,
    terminal,
    tool,
)
from openreward_games import Guess, Number, Reverse
from openreward_servers import KEY, REFUSALS
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send


class Item(BaseModel):
    item: str
    count: int = 1


class Plain(Environment):
    """A split with three tasks and one without any."""

    @classmethod
    def list_splits(cls) -> Sequence[str]:
        return ["train", "empty"]

    @classmethod
    def list_tasks(cls, split: str) -> Sequence[Mapping[str, Any]]:
        return [{"number": number} for number in range(3 if split == "train" else 0)]

    def get_prompt(self) -> Sequence[TextBlock | ImageBlock]:
        return [TextBlock(text=f"Task {self.task_spec['number']}.")]

    @tool
    def look(self, args: Number) -> ToolOutput:
        """Look at something."""
        return ToolOutput(blocks=[TextBlock(text=f"saw {args.n}")])

    @tool
    def buy(self, args: Item) -> ToolOutput:
        """Buy something; it costs a tenth each."""
        bought = TextBlock(text=f"bought {args.count} {args.item}")
        return ToolOutput(blocks=[bought], reward=-0.1 * args.count)

    @tool
    def finish(self) -> ToolOutput:
        """End the shopping."""
        return ToolOutput(blocks=[TextBlock(text="done")], reward=1.0, finished=True)


class Shop(Plain):
    """Tools, and no terminal tool: a plain message leaves."""


class Busy(Plain):
    """Refused with 429 and 503 before it is let in; see :class:`Refusals`."""


class Locked(Plain):
    """Asks for a key."""


class Unpaid(Plain):
    """Has no credit left for anybody."""


class Broken(Plain):
    @tool
    def look(self, args: Number) -> ToolOutput:
        """Raises."""
        raise RuntimeError(f"there is no {args.n}")


class Slow(Plain):
    @tool
    async def look(self, args: Number) -> ToolOutput:
        """Answers odd numbers only; for the others it takes for ever."""
        if args.n % 2 == 0:
            await asyncio.Event().wait()
        return ToolOutput(blocks=[TextBlock(text="at last")], reward=1.0, finished=True)


# A red square, eight by eight.
PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP8z4AdMOEQH6QSAM1BAQ/oQeJvAAAA"
    "AElFTkSuQmCC"
)


class Pictures(Plain):
    """Shows a picture, and another with each look."""

    def get_prompt(self) -> Sequence[TextBlock | ImageBlock]:
        return [TextBlock(text="What is this?"), ImageBlock(data=PICTURE, mimeType="image/png")]

    @tool
    def look(self, args: Number) -> ToolOutput:
        """Another picture."""
        told = TextBlock(text=f"Picture {args.n}:")
        return ToolOutput(blocks=[told, ImageBlock(data=PICTURE, mimeType="image/png")])


class Fickle(Plain):
    """Another prompt in each session."""

    def get_prompt(self) -> Sequence[TextBlock | ImageBlock]:
        return [TextBlock(text=f"Task {id(self)}.")]


class Judged(Plain):
    """Who said most is best; no group is scored in which somebody says it is unfair."""

    async def score_group(self, candidates: Sequence[Any]) -> Sequence[GroupScore]:
        said = [
            "".join(
                block.text
                for message in candidate.messages
                for block in message.blocks
                if message.role == "assistant" and block.type == "text"
            )
            for candidate in candidates
        ]
        if "unfair" in said:
            raise RuntimeError("somebody says it is unfair")
        longest = max(map(len, said))
        return [GroupScore(reward=float(len(text) == longest)) for text in said]


class Vault(Plain):
    """Gives a point where it was handed the right secret."""

    def __init__(self, task_spec: Mapping[str, Any], secrets: dict[str, str]) -> None:
        super().__init__(task_spec, secrets)
        self.open = secrets.get("VAULT_CODE") == "open sesame"

    @terminal
    @tool
    def leave(self) -> ToolOutput:
        """Leave the vault."""
        return ToolOutput(blocks=[], reward=float(self.open), finished=True)


class Talk(Plain):
    """A conversation that is under way."""

    async def get_messages(self) -> Sequence[Message]:
        call = ToolCallBlock(id="c1", name="look", input={"n": 7})
        result = ToolResultBlock(tool_call_id="c1", blocks=[TextBlock(text="saw 7")])
        return [
            Message(role="system", blocks=[TextBlock(text="Be brief.")]),
            Message(role="user", blocks=[TextBlock(text="What is there?")]),
            Message(role="assistant", blocks=[TextBlock(text="I look."), call]),
            Message(role="user", blocks=[result, TextBlock(text="So?")]),
        ]


class Platform:
    """What of OpenReward's own interface the SDK asks for: the secrets that an environment needs,
    and where episodes are uploaded to. ``GET /v1/rollouts`` gives back what was uploaded."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        routes = [
            Route("/v1/environments/{owner}/{name}", self.environment),
            Route("/v1/environments/{owner}/{name}/required-secrets", self.secrets),
            Route("/v1/rollouts", self.upload, methods=["POST"]),
            Route("/v1/rollouts", self.uploaded),
        ]
        self.app = Starlette(routes=routes)

    async def environment(self, request: Request) -> Response:
        return JSONResponse({"id": f"id-of-{request.path_params['name']}"})

    async def secrets(self, request: Request) -> Response:
        vault = request.path_params["name"] == "Vault"
        return JSONResponse({"secrets": ["VAULT_CODE"] if vault else []})

    async def upload(self, request: Request) -> Response:
        if request.headers.get("x-api-key") != KEY:
            return JSONResponse({"detail": "no key"}, 401)
        self.events += (await request.json())["events"]
        return JSONResponse({})

    async def uploaded(self, request: Request) -> Response:
        return JSONResponse(self.events)


class Refusals:
    """Answers 401, 402, 429 and 503 in the server's place, by the environment that is asked for.

    `busy` refuses each call and each new session so many times, and asks for no pause. That is
    more often than the SDK itself asks again.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.platform = Platform().app
        self.asked: Counter[tuple[str, str]] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/v1/"):
            await self.platform(scope, receive, send)
            return
        status = self._status(scope) if scope["type"] == "http" else None
        if status is None:
            await self.app(scope, receive, send)
            return
        response = JSONResponse({"detail": "not now"}, status, {"Retry-After": "0"})
        await response(scope, receive, send)

    def _status(self, scope: Scope) -> int | None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        deployment, path = headers.get("x-deployment", ""), scope["path"]
        if deployment == "Test/Locked" and headers.get("x-api-key") != KEY:
            return 401
        if deployment == "Test/Unpaid":
            return 402
        if deployment != "Test/Busy" or path not in ("/create", "/busy/call"):
            return None
        session = headers["x-session-id"] if path != "/create" else "any"
        request = session, path
        self.asked[request] += 1
        turn = self.asked[request] % (REFUSALS + 1)
        return (429 if turn == 1 else 503) if turn else None


FAULTY = (Busy, Locked, Unpaid, Broken, Slow, Pictures, Fickle, Judged, Vault, Talk)


def main() -> None:
    app = Refusals(Server([Guess, Reverse, Shop, *FAULTY]).app)
    port = int(sys.argv[1])
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", timeout_keep_alive=60)


if __name__ == "__main__":
    main()
