"""A model that is open: it answers chats, token by token where its service tells them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import define

from rlc.plan.models import ModelPlan
from rlc.runtime.asked import chat_model
from rlc.runtime.concurrency import in_thread
from rlc.runtime.stages.weights import open_sampler
from rlc.service.chats.draw import Draw
from rlc.service.chats.model import ChatModel, Reply
from rlc.service.chats.prompts import Message
from rlc.service.connect import open_service
from rlc.service.interface import RemoteService, SampledToken, ServiceClient
from rlc.service.text import TextDecoder

OnText = Callable[[str], None]


@define(eq=False)
class OpenedModel:
    """Made by :func:`open_model`; ``close`` it."""

    plan: ModelPlan
    chats: ChatModel
    _service: ServiceClient
    _folder: TemporaryDirectory[str]  # of the engine, which needs one

    async def replies(
        self,
        messages: Sequence[Message],
        draw: Draw,
        on_text: OnText | None = None,
    ) -> list[Reply]:
        """Answer a chat. ``on_text`` is called with the text of the first reply as it comes: a
        service that gives only whole replies gives it at once.

        Raise ChatError if the renderer cannot show the messages, TooLongError if the context cannot
        hold the chat, and ServiceError if the service does not answer.
        """
        prompt, chunks = self.chats.prompt(messages)
        decoder, ends = TextDecoder(self.chats.tokenizer), self.chats.chat_ends(draw.stops)

        def tell(token: SampledToken) -> None:
            if on_text is not None and token.sample == 0 and token.token not in ends.tokens:
                on_text(decoder.feed(token.token))

        told = None if on_text is None else tell
        response = await self.chats.sample(prompt, draw, ends, chunks, told)
        if on_text is not None:
            on_text(decoder.finish())
        return [self.chats.reply(sequence, ends) for sequence in response.sequences]

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


async def open_model(
    plan: ModelPlan, base_url: str | None = None, *, shared: bool = False
) -> OpenedModel:
    """Open a model on its service; ``base_url`` is a server to use in place of Tinker. With
    ``shared``, it is asked by programs that know nothing of each other.

    Raise ServiceError if the service or the model is not there, WeightsError if its weights are
    not, and EnvError if its renderer does not fit.
    """
    folder, service = TemporaryDirectory(prefix="rlc-model-"), None
    try:
        service = open_service(plan.service, Path(folder.name), base_url, shared=shared)
        if isinstance(service, RemoteService) and not await service.is_rlc():
            service.separate_samples()  # there may be one random stream for all of a request
        client = await open_sampler(service, plan)
        chats = await chat_model(plan, client)
    except BaseException:
        if service is not None:
            await _close(service)
        folder.cleanup()
        raise
    return OpenedModel(plan, chats, service, folder)
