"""A model that is open: it answers chats, token by token where its service tells them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import define, field, frozen

from rlc.envs.tool_chat import fitting_renderer, opening, prompt_of, text_of
from rlc.errors import Error
from rlc.plan.models import ModelPlan
from rlc.plan.records import LOCAL
from rlc.runtime.concurrency import in_thread
from rlc.runtime.stages.weights import open_sampler
from rlc.service.connect import open_service
from rlc.service.interface import RemoteService, SampledToken, SamplingClient, ServiceClient
from rlc.service.text import TextDecoder

Message = Mapping[str, Any]
OnText = Callable[[str], None]


@frozen
class Draw:
    """How replies are drawn."""

    max_tokens: int = 512
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None


@frozen
class Reply:
    """A reply of a model.

    Attributes:
        text: what it says, without any thinking.
        stop_reason: ``"stop"``, or ``"length"`` if it was cut off at ``max_tokens``.
        tokens: the sampled tokens, the one that ends the reply included.
        logprobs: the log-probability of each of them, in nats.
    """

    text: str
    stop_reason: str
    tokens: tuple[int, ...] = field(repr=False)
    logprobs: tuple[float, ...] = field(repr=False)


class TooLongError(Error):
    """A chat that the model's context cannot hold."""


@define(eq=False)
class OpenedModel:
    """Made by :func:`open_model`; ``close`` it."""

    plan: ModelPlan
    client: SamplingClient
    renderer: Any
    _service: ServiceClient
    _folder: TemporaryDirectory[str]  # of the engine, which needs one

    async def replies(
        self,
        messages: Sequence[Message],
        draw: Draw,
        count: int = 1,
        on_text: OnText | None = None,
    ) -> list[Reply]:
        """Answer a chat ``count`` times. ``on_text`` is called with the text of the first reply as
        it comes: a service that gives only whole replies gives it at once.

        Raise EnvError if the renderer cannot show the messages, TooLongError if the context cannot
        hold the chat, and ServiceError if the service does not answer.
        """
        from tinker import types

        from rlc.envs.chunks import model_input

        prompt, chunks = prompt_of(self.renderer, opening(self.renderer, messages))
        room, asked = draw.max_tokens, self.plan.context
        if asked is not None:
            room = min(room, asked - len(prompt))
        if room < 1:
            raise TooLongError(f"the chat has {len(prompt):,} tokens, and the context is {asked:,}")
        params = types.SamplingParams(
            max_tokens=room,
            temperature=draw.temperature,
            top_p=draw.top_p,
            stop=self.renderer.get_stop_sequences(),
            seed=draw.seed,
        )
        decoder = TextDecoder(self.renderer.tokenizer)

        def tell(token: SampledToken) -> None:
            if on_text is not None and token.sample == 0 and token.stop_reason != "stop":
                on_text(decoder.feed(token.token))

        client: Any = self.client
        streams = on_text is not None and self.plan.service == LOCAL
        more = {"on_token": tell} if streams else {}
        response = await client.sample(model_input(prompt, chunks), count, params, **more)
        if on_text is not None and not streams:
            for token in response.sequences[0].tokens:
                on_text(decoder.feed(token))
        if on_text is not None:
            on_text(decoder.finish())
        return [self._reply(sequence) for sequence in response.sequences]

    def _reply(self, sequence: Any) -> Reply:
        tokens = tuple(sequence.tokens)
        message, _ = self.renderer.parse_response(list(tokens))
        return Reply(text_of(message), sequence.stop_reason, tokens, tuple(sequence.logprobs or ()))

    async def close(self) -> None:
        """Release what the model holds."""
        await _close(self._service)
        self._folder.cleanup()


async def _close(service: ServiceClient) -> None:
    if isinstance(service, RemoteService):
        await service.close("success")
    else:
        engine: Any = service  # which is no other service's client at the same time
        await in_thread(engine.close)


async def open_model(plan: ModelPlan, base_url: str | None = None) -> OpenedModel:
    """Open a model on its service; ``base_url`` is a server to use in place of Tinker.

    Raise ServiceError if the service or the model is not there, WeightsError if its weights are
    not, and EnvError if its renderer does not fit.
    """
    folder, service = TemporaryDirectory(prefix="rlc-model-"), None
    try:
        service = open_service(plan.service, Path(folder.name), base_url)
        client = await open_sampler(service, plan)
        tokenizer = await in_thread(client.get_tokenizer)
        renderer = await in_thread(fitting_renderer, tokenizer, plan.renderer)
    except BaseException:
        if service is not None:
            await _close(service)
        folder.cleanup()
        raise
    return OpenedModel(plan, client, renderer, service, folder)
