"""Models that answer inside of environments, and are not trained there: judges, opponents.

They may be behind OpenAI's chat completions, wherever those are: such an endpoint is asked again
while it is busy.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field, frozen

from rlc.chat import Chunks, EnvError
from rlc.plan import Asked, EndpointPlan, ModelState, Sampling

if TYPE_CHECKING:
    import httpx

Message = Mapping[str, Any]


@frozen
class ModelRequest:
    """A chat to answer, whose messages have a ``role`` and a ``content``. ``key`` names its random
    stream under the seed of the run: the same messages under the same key get the same reply."""

    messages: Sequence[Message]
    sampling: Sampling
    key: tuple[str | int, ...]


@frozen
class ModelReply:
    """A reply without thinking, and why it ended: ``"stop"``, or ``"length"`` if cut off."""

    text: str
    stop_reason: str


class Responder(Protocol):
    """A model that answers chats."""

    async def reply(self, question: ModelRequest) -> ModelReply:
        """Raise ServiceError without an answer, EnvError if the model cannot be shown the chat."""


class Responders(Protocol):
    """Makes responders."""

    def __call__(
        self, asked: Asked, most: int | None = None, timeout: float | None = None
    ) -> Responder:
        """Return the responder of a model. With ``most``, at most that many replies are requested
        at once, and each is kept for the run, also for later processes. ``timeout``: seconds for
        one reply."""

    async def logprob(
        self, model: ModelState, tokens: Sequence[int], chunks: Chunks, said: Sequence[int]
    ) -> float:
        """Return the logprob, in nats, of the tokens of a sequence at the places ``said``, under a
        model. Kept for the rest of the run, as replies are."""


class NoResponders:
    """Responders of an environment without models."""

    def __call__(self, asked: Asked, *_: Any, **__: Any) -> Responder:
        name = asked.model if isinstance(asked, EndpointPlan) else asked.model.name
        raise EnvError(f"the model `{name}` cannot be asked here")

    async def logprob(self, model: ModelState, *_: Any) -> float:
        raise EnvError(f"the model `{model.model.name}` cannot be asked here")


no_responders = NoResponders()


TRIES = 6
BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds between two tries
REACH_SECONDS = 10.0  # for the first look at an endpoint
_SHOWN = 200
_NEW_LENGTH = "max_completion_tokens"


class EndpointError(EnvError):
    """An endpoint that does not answer."""

    cause = "endpoint"


@define(eq=False)
class EndpointResponder:
    """A :class:`Responder` at an endpoint; ``used`` is called with the tokens of prompt and reply.
    Which reply a seed gives is up to the endpoint."""

    plan: EndpointPlan
    seconds: float
    used: Callable[[int, int], None]
    _length: str = field(default="max_tokens", init=False)  # as the endpoint calls it
    _opened: httpx.AsyncClient | None = field(default=None, init=False)

    async def reply(self, question: ModelRequest) -> ModelReply:
        """Raise EndpointError if there is no answer after :data:`TRIES` tries, or a refusal."""
        seed = random.Random(repr(question.key)).randrange(2**31)
        body: dict[str, Any] = {
            "model": self.plan.model,
            "messages": [dict(message) for message in question.messages],
            "temperature": question.sampling.temperature,
            "seed": seed,
        }
        if question.sampling.stop:
            body["stop"] = list(question.sampling.stop)
        answer = await self._posted(body, question.sampling.max_tokens, random.Random(seed))
        try:
            choice, usage = answer["choices"][0], answer.get("usage") or {}
            text, stop = choice["message"]["content"] or "", choice.get("finish_reason")
            tokens = int(usage.get("prompt_tokens", 0)), int(usage.get("completion_tokens", 0))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            what = f"{self._name} answered in another form: {answer!r:.200}"
            raise EndpointError(what) from error
        self.used(*tokens)
        return ModelReply(str(text), "length" if stop == "length" else "stop")

    async def _posted(
        self, body: Mapping[str, Any], max_tokens: int | None, draw: random.Random
    ) -> dict[str, Any]:
        import httpx

        why = ""
        for number in range(TRIES):
            try:
                given = body if max_tokens is None else {**body, self._length: max_tokens}
                response = await self._client.post("chat/completions", json=given)
            except httpx.TransportError as error:
                why, after = f"{type(error).__name__}: {error}", None
            else:
                if response.status_code == 200:
                    try:
                        answer = response.json()
                    except ValueError as error:
                        said = self._said(response)
                        raise EndpointError(f"{self._name} answered no JSON: {said}") from error
                    return answer if isinstance(answer, dict) else {}
                why, after = self._said(response), response.headers.get("retry-after")
                if "max_completion_tokens" in response.text and self._length != _NEW_LENGTH:
                    self._length = _NEW_LENGTH  # as newer models have it
                    continue
                if response.status_code not in BUSY:
                    raise EndpointError(f"{self._name} refuses: {why}")
            if number + 1 < TRIES:
                await asyncio.sleep(pause(number, after, draw))
        raise EndpointError(f"{self._name} did not answer in {TRIES} tries; the last: {why}")

    def _said(self, response: httpx.Response) -> str:
        """Return the status and the start of the body, without the key, which some repeat."""
        text = " ".join(response.text.split())
        if key := key_of(self.plan):
            text = text.replace(key, "…")
        return f"{response.status_code} {text[:_SHOWN]}".strip()

    @property
    def _name(self) -> str:
        return f"the endpoint {self.plan.url} ({self.plan.model})"

    @property
    def _client(self) -> httpx.AsyncClient:
        import httpx

        if self._opened is None:
            self._opened = httpx.AsyncClient(
                base_url=f"{self.plan.url.rstrip('/')}/",
                headers=headers(self.plan),
                timeout=httpx.Timeout(self.seconds),
                limits=httpx.Limits(max_connections=None),
            )
        return self._opened

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.aclose()


def pause(number: int, after: str | None, draw: random.Random) -> float:
    """Return the seconds before another try: as the endpoint says, else twice as long each time."""
    try:
        return min(max(float(after or ""), 0.0), LONGEST_PAUSE)
    except ValueError:
        return float(min(FIRST_PAUSE * 2**number, LONGEST_PAUSE) * draw.uniform(0.5, 1.0))


def key_of(plan: EndpointPlan) -> str | None:
    return (os.environ.get(plan.key) or "").strip() or None if plan.key else None


def headers(plan: EndpointPlan) -> dict[str, str]:
    key = key_of(plan)
    return {"Authorization": f"Bearer {key}"} if key else {}


def endpoint_problems(plan: EndpointPlan) -> Iterator[str]:
    """Yield a sentence if an endpoint, its key or its model cannot be used. Nothing is paid for."""
    import httpx

    name = f"the endpoint {plan.url}"
    if plan.key and key_of(plan) is None:
        yield f"{name} needs {plan.key} in the environment or in .env, and it is not set"
        return
    try:
        models = f"{plan.url.rstrip('/')}/models"
        found = httpx.get(models, headers=headers(plan), timeout=REACH_SECONDS)
        if found.status_code in (401, 403):
            with_key = f" in {plan.key}" if plan.key else "; `key` names the variable with one"
            yield f"{name} refuses the key{with_key} ({found.status_code})"
        elif found.status_code == 200 and not _lists(found, plan.model):
            one = httpx.get(f"{models}/{plan.model}", headers=headers(plan), timeout=REACH_SECONDS)
            if one.status_code == 404:
                yield f"{name} has no model `{plan.model}`"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        yield f"{name} cannot be reached: {type(error).__name__}: {error}"


def _lists(response: httpx.Response, model: str) -> bool:
    """Return whether a list of models has one, or cannot be read."""
    try:
        known = [item["id"] for item in response.json()["data"]]
    except (ValueError, KeyError, TypeError):
        return True
    return model in known
