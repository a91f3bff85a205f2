"""What models were asked and have answered, kept in the run folder: nothing is asked twice, neither
by a run that is resumed nor for a reply that was judged before."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Any
from weakref import WeakValueDictionary

from attrs import define, field

from rlc.envs.deadlines import Deadline, waiting
from rlc.envs.responders import ModelReply, ModelRequest, Responder
from rlc.plan.environments import Asked
from rlc.plan.models import Sampling
from rlc.runtime.journal.database import Journal
from rlc.service.interface import asking


def digest_of(question: Sequence[Any]) -> str:
    """What a question is kept under."""
    return blake2b(json.dumps(question).encode(), digest_size=20).hexdigest()


@define(eq=False)
class Answers:
    """The answers of a job, and who is asking: each question is asked once at a time, each model
    by a limited number at once."""

    journal: Journal
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(factory=WeakValueDictionary, init=False)
    _places: dict[str, asyncio.Semaphore] = field(factory=dict, init=False)

    def lock(self, question: str) -> asyncio.Lock:
        return self._locks.setdefault(question, asyncio.Lock())

    async def once(self, question: Sequence[Any], ask: Callable[[], Awaitable[str]]) -> str:
        """Return the answer to a question, of plain data; ``ask`` if it is not known."""
        key = digest_of(question)
        with asking(), waiting():  # whoever asks is not at work meanwhile
            async with self.lock(key):
                if (known := self.journal.answer(key)) is not None:
                    return known[0]
                found = await ask()
                self.journal.keep_answer(key, found, "stop")
                return found

    def places(self, asked: str, most: int) -> asyncio.Semaphore:
        return self._places.setdefault(f"{asked} {most}", asyncio.Semaphore(most))


@define(eq=False)
class ReplyCache:
    """A responder whose answers are kept. A question is all that decides about its answer: the
    model, the messages, how it is sampled, and its key."""

    inner: Responder
    answers: Answers
    asked: Asked
    most: int
    timeout: float | None

    async def reply(self, question: ModelRequest) -> ModelReply:
        model = repr(self.asked)
        messages = [dict(message) for message in question.messages]
        sampling = question.sampling
        usual = Sampling(sampling.max_tokens, sampling.temperature, stop=sampling.stop)
        parts = [model, messages, sampling.max_tokens, sampling.temperature, question.key]
        parts += [sampling.stop] if sampling.stop else []
        parts += [repr(sampling)] if sampling != usual else []
        digest = digest_of(parts)
        lock, places = self.answers.lock(digest), self.answers.places(model, self.most)
        with asking(), waiting():  # whoever asks is not at work meanwhile
            async with lock:
                if (known := self.answers.journal.answer(digest)) is not None:
                    return ModelReply(*known)
                async with places, Deadline(self.timeout, "an answer of the judge"):
                    found = await self.inner.reply(question)
                self.answers.journal.keep_answer(digest, found.text, found.stop_reason)
                return found
