"""Any `RLDatasetBuilder` of tinker-cookbook (0.5.8) as a source: ``cookbook("module:Builder")``.

The data set's batches are numbered through: task *n* is the *n*-th group of the first epoch, and
after the last group the next epoch begins. `get_batch(i)` must be a pure function of *i*, as the
cookbook's own resuming needs it too, so that a resumed run goes on where it stopped.

The builder's fields that the recipe decides elsewhere are filled in and may not be given: the name
of the model, that of the renderer, and the size of a group. The model's name stands for the
tokenizer of the run, whatever serves it.

Prompts come as tokens, with images and sounds among them, and replies go back as they were sampled.
What `compute_group_rewards` gives is added to an episode's last reward; where it compares episodes,
it waits for all of a group. An environment's code runs in an event loop of its own: what blocks
there holds up the other episodes of the source, but nothing else.

Members that start from different prompts, or wait for each other's moves, play with ``self_play``.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field, frozen

from rlc.envs.base import Action, AsyncEpisode, ContractError, EnvError, Observation, TaskKey
from rlc.envs.chunks import marked, shown
from rlc.envs.cookbook.data import Batches
from rlc.envs.cookbook.event_loop_thread import EventLoopThread
from rlc.envs.cookbook.game import GameEpisode
from rlc.envs.cookbook.group import Group
from rlc.envs.cookbook.history import TokenAction, TokenHistory, TokenObservation
from rlc.envs.group_rewards import require_whole
from rlc.envs.python.attributes import called, explained, load_attribute, parameter_names

_MODEL = ("model_name_for_tokenizer", "model_name")
_RENDERER = ("renderer_name",)
_GROUP = ("group_size", "train_group_size", "test_group_size")
FILLED_IN = (*_MODEL, *_RENDERER, *_GROUP)

_OPENING = 60.0  # seconds until all first observations must be there


class CookbookSource:
    """The groups of one data set, ``count`` of them. See :class:`rlc.envs.base.AsyncSource`."""

    def __init__(
        self,
        builder: str,
        args: Mapping[str, Any],
        split: str,
        size: int,
        tokenizer: Any,
        renderer: str,
        self_play: bool = False,
    ) -> None:
        """``size`` is that of the recipe's groups; with ``self_play`` the members of a group play
        with each other, and each begins when it is its turn. Raises EnvError for a builder that
        cannot be found or called, has no such data set, or makes groups of another size."""
        require_open(builder, args)
        self._target = builder
        self._self_play = self_play
        self._tokenizer = tokenizer
        self._loop = EventLoopThread()
        self.new_history: Callable[[], TokenHistory] = lambda: TokenHistory(tokenizer)
        try:
            made = _builder(builder, args, size, tokenizer, renderer)
            data = self._loop.run(_data(builder, made, split))
            self._batches = Batches(builder, data)
            self.count = self._batches.count
            self._loop.run(self._require_size(size))
        except BaseException:
            self._loop.close()
            raise

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        group = await self._loop.call(self._opened(self._batches.group(task.number)))
        try:
            return await self._episodes(group, task, members)
        except BaseException:
            for member in range(len(group.envs)):
                await group.close(member)
            raise

    async def close(self) -> None:
        self._loop.close()

    async def _episodes(
        self, group: Group, task: TaskKey, members: Sequence[int]
    ) -> list[AsyncEpisode]:
        if len(group.envs) < task.size:
            raise EnvError(_sizes(self._target, len(group.envs), task.size))
        if group.compares:
            require_whole(self._target, members, task.size)
        if self._self_play:
            return self._game(group, task, members)
        for member in set(range(len(group.envs))) - set(members):
            await group.close(member)
        starts = await self._starts([group.envs[member] for member in members])
        if any(start.tokens != starts[0].tokens for start in starts):
            raise EnvError(
                f"the members of a group of `{self._target}` start from different prompts: if "
                "they play with each other, say `self_play = true`"
            )
        return [self.episode(group, m, start) for m, start in zip(members, starts, strict=True)]

    def _game(self, group: Group, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        if len(members) < task.size:
            raise EnvError(
                f"the members of a group of `{self._target}` play with each other, so that none "
                "can be played again by itself"
            )
        return [GameEpisode(self, group, member) for member in members]

    def episode(self, group: Group, member: int, first: TokenObservation) -> AsyncEpisode:
        """A member's episode from its first prompt on."""
        return _CookbookEpisode(first, group.envs[member], group, member, self)

    async def _starts(self, envs: Sequence[Any]) -> list[TokenObservation]:
        async def all_of_them() -> list[Any]:
            async with asyncio.timeout(_OPENING):
                return await asyncio.gather(*(env.initial_observation() for env in envs))

        try:
            return [self.first(start) for start in await self.run(all_of_them())]
        except TimeoutError as error:
            raise EnvError(
                f"`{self._target}` gave no first observation in {_OPENING:g} s: if its members "
                "wait for each other's moves, say `self_play = true`"
            ) from error

    def first(self, start: Any) -> TokenObservation:
        """From what `initial_observation` gives. Raises EnvError where that is no prompt."""
        if not isinstance(start, tuple):
            raise EnvError(f"the first prompt of `{self._target}` is over its own limit of tokens")
        return self.prompt(*start)

    def prompt(self, model_input: Any, stop: Any, before: Sequence[int] = ()) -> TokenObservation:
        """A prompt as an observation; its text leaves out what the tokens ``before`` it were."""
        try:
            tokens, chunks = marked(model_input)
        except (AttributeError, TypeError) as error:
            given = type(model_input).__name__
            raise ContractError(f"`{self._target}` gave a {given}, not a prompt") from error
        known = len(before) if tokens[: len(before)] == list(before) else 0
        text = shown(tokens[known:], chunks, self._tokenizer)
        return TokenObservation(text, tokens=tuple(tokens), chunks=chunks, stop=tuple(stop or ()))

    async def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """In the loop of the environments."""
        return await self._loop.call(coroutine)

    async def _opened(self, builder: Any) -> Group:
        envs = list(await builder.make_envs())
        return Group(self._target, builder, envs, self._loop)

    async def _require_size(self, size: int) -> None:
        """One group is made and dropped, before anything is paid for."""
        builder = self._batches.group(0)
        try:
            found = len(await builder.make_envs())
        finally:
            await builder.cleanup()
        if found != size:
            raise EnvError(_sizes(self._target, found, size))


@define(eq=False)
class _CookbookEpisode:
    first: TokenObservation
    _env: Any
    _group: Group
    _member: int
    _source: CookbookSource
    _seen: TokenObservation = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._seen = self.first

    async def play(self, action: Action) -> Observation:
        """One step; after the last one, with what the group's comparison adds."""
        if not isinstance(action, TokenAction):
            raise EnvError("an environment of the cookbook takes tokens, not text")
        result = await self._source.run(self._step(action))
        metrics = {str(name): value for name, value in (result.metrics or {}).items()}
        reward = float(result.reward)
        self._group.played(self._member, self._seen, action, result)
        if result.episode_done:
            more, of_group = await self._group.graded(self._member)
            tags = {f"tag/{tag}": 1.0 for tag in self._group.tags}
            metrics = {**metrics, **of_group, **tags}
            return Observation("", reward + more, True, metrics)
        before = (*self._seen.tokens, *action.tokens)
        seen = self._source.prompt(result.next_observation, result.next_stop_condition, before)
        self._seen = evolve(seen, reward=reward, metrics=metrics)
        return self._seen

    async def close(self) -> None:
        await self._group.close(self._member)

    def _step(self, action: TokenAction) -> Coroutine[Any, Any, Any]:
        """`step` has the argument `extra` in newer environments only."""
        extra = {"stop_reason": "stop" if action.finished else "length"}
        takes = inspect.signature(self._env.step).parameters
        told = "extra" in takes or any(p.kind is p.VAR_KEYWORD for p in takes.values())
        step: Coroutine[Any, Any, Any] = self._env.step(
            list(action.tokens), **({"extra": extra} if told else {})
        )
        return step


@frozen
class _Names:
    """What a builder is told about the run."""

    model: str
    renderer: str
    size: int

    def fill(self, names: Sequence[str]) -> dict[str, Any]:
        values = {
            **dict.fromkeys(_MODEL, self.model),
            **dict.fromkeys(_RENDERER, self.renderer),
            **dict.fromkeys(_GROUP, self.size),
        }
        return {name: value for name, value in values.items() if name in names}


def require_open(target: str, args: Mapping[str, Any]) -> None:
    """Raises EnvError for arguments that the recipe decides elsewhere."""
    for name in FILLED_IN:
        if name in args:
            where = "groups" if name in _GROUP else "model"
            raise EnvError(
                f"leave `{name}` out of the args of `{target}`: it comes from the recipe's {where}"
            )


def filled_in(target: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with stand-ins for those that are filled in, to check a call by."""
    names = parameter_names(load_attribute(target))
    return {**args, **_Names("", "", 0).fill(names)}


def _builder(target: str, args: Mapping[str, Any], size: int, tokenizer: Any, renderer: str) -> Any:
    from tinker_cookbook.tokenizer_utils import register_tokenizer

    name = str(getattr(tokenizer, "name_or_path", "") or "the-model-of-the-run")
    # Its own, since it works in a thread of its own: a tokenizer cannot be used by two at a time.
    own_tokenizer = copy.deepcopy(tokenizer)
    register_tokenizer(name, lambda: own_tokenizer)
    found = load_attribute(target)
    own = _Names(name, renderer, size).fill(parameter_names(found))
    return called(target, found, {**args, **own})


async def _data(target: str, builder: Any, split: str) -> Any:
    """The data set of a split. Raises EnvError."""
    try:
        made = await builder()
    except Exception as error:
        raise EnvError(f"`{target}` failed to build its data: {explained(error)}") from error
    if not isinstance(made, tuple) or len(made) != 2:
        raise EnvError(f"`{target}` gave a {type(made).__name__}, not a training and a test set")
    data = made[0] if split == "train" else made[1]
    if data is None:
        raise EnvError(f"`{target}` has no {split} set")
    return data


def _sizes(target: str, found: int, size: int) -> str:
    return (
        f"`{target}` makes groups of {found}, and the recipe's have {size}: write "
        f"`groups(…, of = {found})`, or `samples = {found}` in an evaluation"
    )
