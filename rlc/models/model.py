"""Models from Python: :func:`rlc.model` opens one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from threading import Thread
from types import TracebackType
from typing import Any, TypeVar

from attrs import define, evolve, field

from rlc.models.named import named_model
from rlc.models.opened import OnText, open_model
from rlc.plan import ModelPlan
from rlc.service import Message, SampledReply, SamplingRequest

T = TypeVar("T")


def model(
    name: str,
    base: str | None = None,
    renderer: str | None = None,
    base_url: str | None = None,
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
        plan: all that is known of it.
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
        self, system: str = "", sampling: SamplingRequest | None = None
    ) -> Conversation:
        """Return a chat of several turns, which remembers what was said."""
        return Conversation(self, sampling or SamplingRequest(512), system)

    def sample(
        self,
        messages: str | Sequence[Message],
        sampling: SamplingRequest | None = None,
        count: int = 1,
        on_text: OnText | None = None,
    ) -> list[SampledReply]:
        """Return ``count`` replies, with their tokens and logprobs. ``on_text`` is called with the
        text of the first as it comes, in another thread."""
        wanted = evolve(sampling or SamplingRequest(512), n=count)
        return self._loop.wait(self._opened.replies(as_messages(messages), wanted, on_text))

    def sample_all(
        self,
        chats: Iterable[Sequence[Message]],
        sampling: SamplingRequest | None = None,
        count: int = 1,
        on_done: Callable[[], None] = lambda: None,
    ) -> list[list[SampledReply]]:
        """Return the replies to several chats, which are sampled side by side. With a seed, that of
        each chat is the seed plus its number."""
        wanted = evolve(sampling or SamplingRequest(512), n=count)

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"rlc.model({self.name!r})"


@define
class Conversation:
    """A chat that goes on. ``messages`` are what was said so far, the system message aside."""

    model: Model
    sampling: SamplingRequest
    system: str = ""
    messages: list[Message] = field(factory=list)

    def say(self, text: str, on_text: OnText | None = None) -> SampledReply:
        """Return the reply to a text, after all that was said before. If it fails, nothing was
        said."""
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
    """A chat; a text is what its user says."""
    return [{"role": "user", "content": text}] if isinstance(text, str) else text


def with_system(messages: Sequence[Message], system: str) -> Sequence[Message]:
    """A chat that begins with a system message, if there is any."""
    return [{"role": "system", "content": system}, *messages] if system else messages


class _LoopThread:
    """An event loop in a thread of its own, so that it also runs beside that of a notebook."""

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
