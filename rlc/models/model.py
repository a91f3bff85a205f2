"""Models that answer chats, opened by :func:`rlc.model`, the commands, or the summary of a run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, TypeVar

from attrs import define, evolve, field, fields, frozen

from rlc.catalog import shown_turns
from rlc.errors import Error
from rlc.models.named import named_model
from rlc.plan import ModelPlan, Plan
from rlc.runtime import ExpectationError, Observer, Summary, chat_model, in_thread, open_sampler
from rlc.runtime import resume as resume_run
from rlc.runtime import run_plan as start_plan
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
    """A service that models are opened on; to be closed."""

    client: ServiceClient
    _folder: TemporaryDirectory[str]  # of the engine, which needs one

    @classmethod
    async def of(cls, name: str, base_url: str | None, *, shared: bool) -> OpenedService:
        """Open a service by its name; ``shared``, for requests of independent programs."""
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
        """Return a model of this service; raise as :func:`open_model`."""
        chats = await chat_model(plan, await open_sampler(self.client, plan))
        return chats.going_on() if shown_turns(plan.weights) == "sampled" else chats

    async def close(self) -> None:
        if isinstance(self.client, RemoteService):
            await self.client.close("success")
        else:
            engine: Any = self.client  # which is no other service's client at the same time
            await in_thread(engine.close)
        self._folder.cleanup()


@define(eq=False)
class OpenedModel:
    """A model on a service of its own, opened by :func:`open_model`; to be closed."""

    plan: ModelPlan
    chats: ChatModel
    _service: OpenedService

    async def replies(
        self, messages: Sequence[Message], sampling: SamplingRequest, on_text: OnText | None = None
    ) -> list[SampledReply]:
        """Answer a chat; ``on_text`` is called with the text of the first reply as it comes. Raise
        ChatError for messages that the renderer cannot show, TooLongError or ServiceError."""
        prompt = self.chats.prompt(messages)
        decoder, ends = TextDecoder(self.chats.tokenizer), self.chats.chat_ends(sampling.stop)

        def on_token(token: SampledToken) -> None:
            if on_text is not None and token.sample == 0 and token.token not in ends.tokens:
                on_text(decoder.feed(token.token))

        listener = None if on_text is None else on_token
        tokens, chunks = prompt.tokens, prompt.chunks
        response = await self.chats.sample(tokens, sampling, ends, chunks, listener)
        if on_text is not None:
            on_text(decoder.finish())
        replies = [self.chats.reply(sequence, ends) for sequence in response.sequences]
        for reply in replies:
            self.chats.keep(prompt, reply.tokens, {"role": "assistant", "content": reply.text})
        return replies

    async def close(self) -> None:
        await self._service.close()


async def open_model(plan: ModelPlan, base_url: str | None = None) -> OpenedModel:
    """Open a model on a service of its own. Raise ServiceError or WeightsError if a part of it is
    not there, and EnvError if its renderer does not fit."""
    service = await OpenedService.of(plan.service, base_url, shared=False)
    try:
        return OpenedModel(plan, await service.chats(plan), service)
    except BaseException:
        await service.close()
        raise


T = TypeVar("T")


def model(
    name: str, base: str | None = None, renderer: str | None = None, base_url: str | None = None
) -> Model:
    """Return a model that answers, as `rlc chat` does.

    Args:
        name: a run (``runs/x``, its best or last state, or ``runs/x@main:20``), the folder of an
            adapter of PEFT or of a base model, a ``tinker://`` path, or a base model.
        base: its base model, where the name does not say it.
        renderer: how chats become tokens, where that is not known.
        base_url: the address of a Tinker server to use instead of the hosted service.

    Raises:
        rlc.Error: there is no such model, or its service cannot be used.

    Example::

        with rlc.model("runs/quickstart-20261121-101500") as trained:
            print(trained.chat("Guess a number between 1 and 10."))
    """
    return Model(named_model(name, base, renderer, base_url), base_url)


class Model:
    """A model that answers, made by :func:`rlc.model`; a context manager, which closes it.

    Attributes:
        name: as it was named; a run with the stage and step that it stands for.
        base: its base model.
        plan: the record of it, with renderer and service.
    """

    def __init__(self, plan: ModelPlan, base_url: str | None = None) -> None:
        """Open a model; ``base_url`` as of :func:`rlc.model`."""
        import rlc.service.engine  # noqa: F401 (before anything imports torch)

        self.plan = plan
        self._loop = _LoopThread()
        try:
            self._opened = self._loop.wait(open_model(self.plan, base_url))
        except BaseException:
            self._loop.close()
            raise

    @property
    def name(self) -> str:
        return self.plan.weights or self.plan.name

    @property
    def base(self) -> str:
        return self.plan.base

    def chat(
        self,
        text: str | Sequence[Message],
        system: str = "",
        temperature: float = 1.0,
        max_tokens: int = 512,
        seed: int | None = None,
    ) -> str:
        """Return the reply to a text, or to a chat: a list of messages with ``role`` and
        ``content``.

        Args:
            system: a system message that comes first.
            temperature: 0 for the most likely tokens.
            max_tokens: of the reply.
            seed: with which the same chat gets the same reply; None: a new one each time.

        Raises:
            rlc.Error: the chat cannot be shown to the model, is too long for it, or the service
                does not answer.
        """
        sampling = SamplingRequest(max_tokens, temperature, seed=seed)
        return self.sample(with_system(as_messages(text), system), sampling)[0].text

    def conversation(
        self, system: str = "", sampling: SamplingRequest | None = None, **settings: Any
    ) -> Conversation:
        """Return a chat of several turns, which keeps its messages; ``settings`` as for
        :meth:`sample`."""
        return Conversation(self, evolve(sampling or SamplingRequest(512), **settings), system)

    def sample(
        self,
        messages: str | Sequence[Message],
        sampling: SamplingRequest | None = None,
        count: int = 1,
        on_text: OnText | None = None,
        **settings: Any,
    ) -> list[SampledReply]:
        """Return ``count`` replies, with their tokens and logprobs. ``settings`` are those of a
        `SamplingRequest` by name, such as ``temperature = 0``. ``on_text`` is called with the text
        of the first as it comes, in another thread."""
        wanted = evolve(sampling or SamplingRequest(512), n=count, **settings)
        return self._loop.wait(self._opened.replies(as_messages(messages), wanted, on_text))

    def sample_all(
        self,
        chats: Iterable[Sequence[Message]],
        sampling: SamplingRequest | None = None,
        count: int = 1,
        on_done: Callable[[], None] = lambda: None,
        **settings: Any,
    ) -> list[list[SampledReply]]:
        """Return the replies to several chats, which are sampled side by side. With a seed, that of
        each chat is the seed plus its number. ``settings`` as for :meth:`sample`."""
        wanted = evolve(sampling or SamplingRequest(512), n=count, **settings)

        async def one(number: int, chat: Sequence[Message]) -> list[SampledReply]:
            seed = None if wanted.seed is None else wanted.seed + number
            replies = await self._opened.replies(chat, evolve(wanted, seed=seed))
            on_done()
            return replies

        async def everything() -> list[list[SampledReply]]:
            return list(await asyncio.gather(*(one(i, chat) for i, chat in enumerate(chats))))

        return self._loop.wait(everything())

    def close(self) -> None:
        """Release what the model holds; safe to call twice."""
        if self._loop.is_open:
            self._loop.wait(self._opened.close())
            self._loop.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"rlc.model({self.name!r})"


@define
class Conversation:
    """A chat of several turns. ``messages`` are those so far, without the system message."""

    model: Model
    sampling: SamplingRequest
    system: str = ""
    messages: list[Message] = field(factory=list)

    def say(self, text: str, on_text: OnText | None = None) -> SampledReply:
        """Return the reply to a text after the messages so far, which stay if it fails."""
        asked = [*self.messages, {"role": "user", "content": text}]
        seed = None if self.sampling.seed is None else self.sampling.seed + len(self.messages)
        sampling = evolve(self.sampling, seed=seed)
        (reply,) = self.model.sample(with_system(asked, self.system), sampling, 1, on_text)
        self.messages = [*asked, {"role": "assistant", "content": reply.text}]
        return reply

    def undo(self) -> None:
        """Forget the last exchange."""
        self.messages = self.messages[:-2]


def as_messages(text: str | Sequence[Message]) -> Sequence[Message]:
    """Return a chat; a text is its only message."""
    return [{"role": "user", "content": text}] if isinstance(text, str) else text


def with_system(messages: Sequence[Message], system: str) -> Sequence[Message]:
    """Return a chat that begins with a system message, unless that is empty."""
    return [{"role": "system", "content": system}, *messages] if system else messages


class _LoopThread:
    """An event loop in its own thread, so that it also runs beside that of a notebook."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="rlc-model", daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine, which is cancelled if the wait is interrupted."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @property
    def is_open(self) -> bool:
        return not self._loop.is_closed()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class NoWeightsError(Error):
    """A run without saved weights."""


@frozen
class TrainedSummary(Summary):
    """The summary of a run, with its model."""

    def model(self, base_url: str | None = None) -> Model:
        """Return the model that the last training stage has left, as :func:`rlc.model` does.
        ``base_url`` is the address of a Tinker server to use instead of the hosted service.

        Raise rlc.Error if nothing was saved, or the model cannot be used.

        Example::

            with rlc.run("recipes/quickstart.rl").model() as trained:
                print(trained.chat("2 + 3 = ?"))
        """
        if self.weights is None:
            raise NoWeightsError(f"{self.folder} has left no weights: no step of it is saved")
        return model(self.weights, base_url=base_url)


def run_plan(
    plan: Plan,
    run_dir: str | os.PathLike[str] | None = None,
    base_url: str | None = None,
    observer: Observer | None = None,
    fresh: bool = False,
) -> TrainedSummary:
    """Run a plan that the rules have found nothing wrong with; see :func:`rlc.api.run`."""
    return _with_model(lambda: start_plan(plan, run_dir, base_url, observer, fresh))


def resume(
    run_dir: str | os.PathLike[str], base_url: str | None = None, observer: Observer | None = None
) -> TrainedSummary:
    return _with_model(lambda: resume_run(run_dir, base_url, observer))


resume.__doc__ = resume_run.__doc__


def _with_model(run: Callable[[], Summary]) -> TrainedSummary:
    def trained(summary: Summary) -> TrainedSummary:
        return TrainedSummary(*(getattr(summary, each.name) for each in fields(Summary)))

    try:
        return trained(run())
    except ExpectationError as error:
        error.summary = trained(error.summary)
        raise
