"""The interfaces of environments, of any library or of the user's own.

The runtime plays :class:`AsyncEpisode`s of :class:`AsyncSource`s. An environment whose calls block
has the simpler :class:`EnvSource` or :class:`NumberedSource`; its calls are made off the event
loop, several at once, but one at a time for each episode.

``python("module:factory", args = {…})`` calls the factory once for each use of the environment,
with ``args`` as keyword arguments; it returns a source of one of the three kinds:

    class Guess:
        def __init__(self, secret):
            self.secret = secret
            self.first = Observation("I think of a number from 0 to 9. Which?")

        def step(self, action):
            return Observation("", reward=float(action.strip() == self.secret), done=True)

    class Guesses:
        def group(self, seed, size):
            return [Guess(str(seed % 10)) for _ in range(size)]

Draw from a generator of your own, ``random.Random(seed)``: the global ones are shared. A source or
an episode with a method ``close()`` is closed in the end. An attribute ``count`` of a source is its
number of tasks. With ``workers(processes)`` sources and episodes are pickled.

The model sees a chat through its renderer; ``chat(instruction = …)`` adds to the first message. A
source with an attribute ``new_history``, a factory of :class:`rlc.chat.prompts.PromptBuilder`,
makes its own prompts. An episode that raises is a failed rollout, handled as the recipe's
``on_error`` says.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from attrs import evolve, field, frozen

from rlc.chat import Action as Action
from rlc.chat import ContractError as ContractError
from rlc.chat import EnvError as EnvError
from rlc.chat import Observation as Observation
from rlc.chat import Verdict as Verdict
from rlc.data import DataError, Steps, TaskFacts, as_number, called, load_attribute, read_steps


@frozen
class TaskKey:
    """A task to open. A source has tasks by ``number``, in the order of the seed ``order``, or
    picks one by ``seed``. ``size`` is the number of members of its group."""

    order: int
    number: int
    seed: int
    size: int


@runtime_checkable
class AsyncEpisode(Protocol):
    """One playable episode, already reset. ``first`` is the opening observation."""

    @property
    def first(self) -> Observation: ...

    async def play(self, action: Action) -> Observation:
        """Play one action. May raise anything, and may be cancelled: then it is over."""

    async def close(self) -> None:
        """Release what the episode holds. Always awaited; safe to call twice."""


class JoiningEpisode(ABC):
    """Base class of an :class:`AsyncEpisode` in which the members of a group play with each other.
    Calls may wait for others' moves, and ``first`` is valid after ``join``."""

    @abstractmethod
    async def join(self) -> Observation:
        """Return the opening observation, once it is this member's turn."""


@frozen(eq=False)
class PolicyRequest:
    """A conversation to reply to, with the functions that the reply may call, in OpenAI's form."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()


@frozen(eq=False)
class PolicyReply:
    """A reply of the policy, as a message in OpenAI's form and as it was sampled.

    Attributes:
        message: what the next request has as the assistant's message.
        turn: the number of the reply in its episode, from 0.
        tokens: the sampled tokens, the one that ends the reply included.
        logprobs: the log-probability of each of them, in nats.
        cut_off: whether it is known not to be complete.
        prompt: the tokens before it, a negative number for each place of an image.
    """

    message: Mapping[str, Any]
    turn: int
    tokens: Sequence[int] = field(repr=False)
    logprobs: Sequence[float] = field(repr=False)
    cut_off: bool = False
    prompt: Sequence[int] = field(default=(), repr=False)


class PolicyClient(Protocol):
    """The policy, as a program that owns its loop asks it."""

    async def reply(self, request: PolicyRequest) -> PolicyReply:
        """Return a reply. Raise EnvError if the conversation cannot be shown to the model, or a
        limit of the recipe ends the episode."""


class AgentEndpoint(Protocol):
    """Where one run of an agent asks the model: ``url`` is that of Anthropic's API, and with
    ``/v1`` behind it that of OpenAI's; ``policy`` answers in the loop of the runtime."""

    @property
    def url(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def policy(self) -> PolicyClient: ...

    def transcript(self) -> Sequence[Mapping[str, Any]]:
        """Return the messages of the conversation that was answered last, with the answer."""


class RunningEpisode(ABC):
    """Base class of an agent's episode; its ``first`` observation is the task."""

    first: Observation

    @abstractmethod
    async def run(self, endpoint: AgentEndpoint) -> Observation:
        """Run the agent to its end, or until cancelled; return the last observation."""

    @abstractmethod
    async def close(self) -> None:
        """Release what the episode holds. Safe to call twice."""


@runtime_checkable
class AsyncSource(Protocol):
    """Makes episodes. It waits for a free place within ``with rlc.envs.deadlines.waiting():``,
    which stops the clock of every deadline around it."""

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        """Return episodes of these members of a task, all in one initial state, from which a member
        that is opened again starts too. If this fails, the source closes what it has opened."""

    async def close(self) -> None:
        """Release what the source holds; safe to call twice."""


class Episode(Protocol):
    """One playable episode of an environment that blocks, already reset."""

    @property
    def first(self) -> Observation: ...

    def step(self, action: str) -> Observation:
        """Play one action. Raise what the environment raises."""


@runtime_checkable
class EnvSource(Protocol):
    """Makes groups of episodes that block."""

    def group(self, seed: int, size: int) -> list[Episode]:
        """Return ``size`` episodes of the task that ``seed`` picks, all in one initial state."""


@runtime_checkable
class NumberedSource(Protocol):
    """Makes groups of episodes that block from a list of tasks, gone through by number."""

    def numbered(self, order: int, number: int, size: int) -> list[Episode]:
        """Return ``size`` episodes of task ``number`` (0, 1, …); ``order`` seeds the shuffling."""


BlockingSource = EnvSource | NumberedSource


@runtime_checkable
class Closable(Protocol):
    """A source or an episode that blocks and holds something."""

    def close(self) -> None:
        """Release what it holds."""


@runtime_checkable
class CountedSource(Protocol):
    """A source of the user's own with a number of tasks."""

    count: int


@runtime_checkable
class PromptingSource(Protocol):
    """A source of the user's own that makes its own prompts."""

    def new_history(self) -> Any: ...


def validated(seen: Any) -> Observation:
    """Return an observation with plain, finite floats and booleans, or raise ContractError."""
    if not isinstance(seen, Observation):
        raise ContractError(f"the environment gave a {type(seen).__name__}, not an Observation")
    if type(seen.text) is not str:
        raise ContractError(f"the observation is a {type(seen.text).__name__}, not text")
    if not isinstance(seen.about, TaskFacts | None):
        raise ContractError(f"`about` of an observation is a {type(seen.about).__name__}")
    return evolve(
        seen,
        reward=None if seen.reward is None else _number("the reward", seen.reward),
        metrics={name: _number(f"the metric `{name}`", v) for name, v in seen.metrics.items()},
        components={
            name: (float(weight), _number(f"the component `{name}`", value))
            for name, (weight, value) in seen.components.items()
        },
        steps=None if seen.steps is None else _steps(seen.steps),
        done=bool(seen.done),
        truncated=bool(seen.truncated),
    )


def _steps(given: Any) -> Steps:
    try:
        return read_steps(given)
    except DataError as error:
        raise ContractError(f"process rewards of an observation: {error.what}") from error


def _number(what: str, value: Any) -> float:
    number = as_number(value)
    if number is None:
        raise ContractError(f"{what} is a {type(value).__name__}, not a number")
    if not math.isfinite(number):
        raise ContractError(f"{what} is {number}, not a finite number")
    return number


def make_source(factory: str, args: Mapping[str, Any]) -> AsyncSource | BlockingSource:
    """Call a factory. Raise EnvError if that fails, or does not return a source."""
    source = called(factory, load_attribute(factory), args)
    is_class = isinstance(source, type)
    if is_class or not isinstance(source, AsyncSource | EnvSource | NumberedSource):
        kind = "a class" if is_class else f"a thing of the type {type(source).__name__}"
        raise EnvError(
            f"`{factory}` gave {kind}, not a source: it needs a method `group(seed, size)`, or "
            "`numbered(order, number, size)`, or `open(task, members)` with `close()`"
        )
    return source
