"""A model that is open: it answers chats, token by token where its service tells them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import define

from rlc.plan import ModelPlan
from rlc.runtime import chat_model, in_thread, open_sampler
from rlc.service import (
    ChatModel,
    Message,
    RemoteService,
    SampledReply,
    SampledToken,
    SamplingRequest,
    ServiceClient,
    TextDecoder,
    open_service,
)

OnText = Callable[[str], None]


@define(eq=False)
class OpenedService:
    """A service that models are asked over; ``close`` it."""

    client: ServiceClient
    _folder: TemporaryDirectory[str]  # of the engine, which needs one

    @classmethod
    async def of(cls, name: str, base_url: str | None, *, shared: bool) -> OpenedService:
        """Open a service by its name. With ``shared``, it is asked by programs that know nothing
        of each other."""
        folder = TemporaryDirectory(prefix="rlc-model-")
        try:
            client = open_service(name, Path(folder.name), base_url, shared=shared)
        except BaseException:
            folder.cleanup()
            raise
        opened = cls(client, folder)
        try:
            if isinstance(client, RemoteService) and not await client.is_rlc():
                client.separate_samples()  # there may be one random stream for all of a request
        except BaseException:
            await opened.close()
            raise
        return opened

    async def chats(self, plan: ModelPlan) -> ChatModel:
        """Return what answers chats with a model of this service; raise as :func:`open_model`."""
        return await chat_model(plan, await open_sampler(self.client, plan))

    async def close(self) -> None:
        """Release what the service holds."""
        if isinstance(self.client, RemoteService):
            await self.client.close("success")
        else:
            engine: Any = self.client  # which is no other service's client at the same time
            await in_thread(engine.close)
        self._folder.cleanup()


@define(eq=False)
class OpenedModel:
    """Made by :func:`open_model`; ``close`` it."""

    plan: ModelPlan
    chats: ChatModel
    _service: OpenedService

    async def replies(
        self,
        messages: Sequence[Message],
        sampling: SamplingRequest,
        on_text: OnText | None = None,
    ) -> list[SampledReply]:
        """Answer a chat. ``on_text`` is called with the text of the first reply as it comes: a
        service that gives only whole replies gives it at once.

        Raise ChatError if the renderer cannot show the messages, TooLongError if the context cannot
        hold the chat, and ServiceError if the service does not answer.
        """
        prompt, chunks = self.chats.prompt(messages)
        decoder, ends = TextDecoder(self.chats.tokenizer), self.chats.chat_ends(sampling.stop)

        def tell(token: SampledToken) -> None:
            if on_text is not None and token.sample == 0 and token.token not in ends.tokens:
                on_text(decoder.feed(token.token))

        told = None if on_text is None else tell
        response = await self.chats.sample(prompt, sampling, ends, chunks, told)
        if on_text is not None:
            on_text(decoder.finish())
        return [self.chats.reply(sequence, ends) for sequence in response.sequences]

    async def close(self) -> None:
        """Release what the model holds."""
        await self._service.close()


async def open_model(plan: ModelPlan, base_url: str | None = None) -> OpenedModel:
    """Open a model on a service of its own; ``base_url`` is a server to use in place of Tinker.

    Raise ServiceError if the service or the model is not there, WeightsError if its weights are
    not, and EnvError if its renderer does not fit.
    """
    service = await OpenedService.of(plan.service, base_url, shared=False)
    try:
        return OpenedModel(plan, await service.chats(plan), service)
    except BaseException:
        await service.close()
        raise
