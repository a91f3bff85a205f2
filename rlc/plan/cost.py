"""Tokens and dollars of a plan, before anything runs.

For an episode of T turns with a first prompt of p tokens, replies of r and later observations of
o tokens, the prompts are

    chat                p + t (r + o)      each turn extends the tokens before it
    concat, template    p + t o            observations only, a prompt of its own each turn
    template            p, then o          the latest observation only

for t = 0 … T-1. Sampling prefills every prompt; what extends an earlier one, or is shared by a
group, can come from the service's cache. Training is billed for every token of a datum: one datum
of p + T r + (T-1) o for a chat, else one of prompt and reply for each turn.

Three estimates: ``high`` has every reply at max_tokens, every episode at its last turn and no
cache hit; ``expected`` and ``low`` have the shares below and a cache that never misses.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Literal

from attrs import asdict, frozen

from rlc.catalog.environments import max_turns, measured
from rlc.catalog.models import Price
from rlc.catalog.prices import part_cost, price_of
from rlc.plan.tree import BatchPlan, EnvPlan, Plan, TrainPlan

Level = Literal["low", "expected", "high"]
LEVELS: tuple[Level, ...] = ("low", "expected", "high")
History = Literal["chat", "concat", "latest"]

REPLY_SHARE = {"low": 0.1, "expected": 0.5, "high": 1.0}  # of max_tokens
TURN_SHARE = {"low": 0.1, "expected": 0.5, "high": 1.0}  # of the environment's limit
CHARACTERS_PER_TOKEN = 4
UNKNOWN_PROMPT, UNKNOWN_OBSERVATION = 300, 100  # tokens, where nothing was measured
UNKNOWN_TURNS = 20
TEMPLATE_TOKENS, CHAT_TOKENS = 50, 10  # markup around an observation


@frozen
class Tokens:
    """Tokens by the kinds that a service bills."""

    prefill: float = 0.0
    cached: float = 0.0
    sample: float = 0.0
    train: float = 0.0

    def __add__(self, other: Tokens) -> Tokens:
        mine, theirs = asdict(self), asdict(other)
        return Tokens(**{kind: mine[kind] + theirs[kind] for kind in mine})

    def __mul__(self, factor: float) -> Tokens:
        return Tokens(**{kind: tokens * factor for kind, tokens in asdict(self).items()})


@frozen
class Episode:
    """The shape of one episode, in tokens and turns."""

    prompt: float
    observation: float
    turns: int
    reply: float
    history: History

    @property
    def one_datum(self) -> bool:
        return self.history == "chat"

    def prompts(self) -> list[float]:
        """The length of each turn's prompt."""
        if self.history == "latest":
            return [self.prompt] + [self.observation] * (self.turns - 1)
        grows = self.observation + (self.reply if self.history == "chat" else 0)
        return [self.prompt + turn * grows for turn in range(self.turns)]

    def fresh(self) -> float:
        """Prompt tokens that no earlier prompt of the episode began with."""
        return sum(self.prompts()) if self.history == "latest" else self.prompts()[-1]

    def datum_tokens(self) -> float:
        if self.one_datum:
            return self.prompts()[-1] + self.reply
        return sum(self.prompts()) + self.turns * self.reply


@frozen
class Estimate:
    """Tokens of something and their price in USD; None where a price is unknown."""

    tokens: Tokens
    dollars: dict[str, float | None]

    @property
    def total(self) -> float | None:
        known = [value for value in self.dollars.values() if value is not None]
        return sum(known) if len(known) == len(self.dollars) else None


@frozen
class StageCost:
    """Estimates of one step of a stage, by level."""

    stage: str
    steps: int
    free: bool
    datum: str  # "episode", "turn" or "episode or turn"
    step: dict[Level, Estimate]
    assumptions: tuple[str, ...]

    def total(self, level: Level) -> float | None:
        """USD of all steps."""
        step = self.step[level].total
        return None if step is None else step * self.steps


def plan_cost(plan: Plan) -> tuple[StageCost, ...]:
    """The cost of each stage."""
    return tuple(stage_cost(stage) for stage in plan.stages)


def total_cost(stages: tuple[StageCost, ...], level: Level) -> float | None:
    """USD of the whole plan; None where any price is unknown."""
    totals = [stage.total(level) for stage in stages]
    known = [total for total in totals if total is not None]
    return sum(known) if len(known) == len(totals) else None


def stage_cost(stage: TrainPlan) -> StageCost:
    """The cost of one stage, with what had to be assumed."""
    price = price_of(stage.model.base, stage.model.service)
    steps: dict[Level, Estimate] = {
        level: priced(step_tokens(stage, level), price) for level in LEVELS
    }
    datums = sorted({"episode" if _history(env) == "chat" else "turn" for env in stage.envs})
    return StageCost(
        stage=stage.name,
        steps=stage.steps,
        free=stage.model.service == "local",
        datum=" or ".join(datums),
        step=steps,
        assumptions=tuple(_assumptions(stage)),
    )


def priced(tokens: Tokens, price: Price | None) -> Estimate:
    """Tokens with their price."""
    prices = asdict(price) if price else dict.fromkeys(asdict(tokens))
    parts = {kind: part_cost(count, prices[kind]) for kind, count in asdict(tokens).items()}
    return Estimate(tokens, parts)


def step_tokens(stage: TrainPlan, level: Level) -> Tokens:
    """Tokens of one step: each environment has its share of the tasks."""
    total_weight = sum(env.weight for env in stage.envs)
    total = Tokens()
    for env in stage.envs:
        episode = env_episode(env, stage.sampling.max_tokens, level)
        tokens = batch_tokens(stage.batch, episode, cached=level != "high")
        total += tokens * (env.weight / total_weight)
    return total


def batch_tokens(batch: BatchPlan, episode: Episode, cached: bool) -> Tokens:
    """Tokens of one batch of like episodes; with ``cached`` the cache never misses."""
    groups, size = float(batch.count), batch.size
    train = groups * size * episode.datum_tokens()
    if batch.kind == "turns":
        groups, size = _episodes_played(batch, episode.turns, worst=not cached), 1
        train = _trained_turns(batch, episode, groups)
    everything = groups * size * sum(episode.prompts())
    fresh = everything
    if cached:  # the members of a group share the first prompt
        fresh = groups * (size * episode.fresh() - (size - 1) * episode.prompt)
    sample = groups * size * episode.turns * episode.reply
    return Tokens(fresh, everything - fresh, sample, train)


def env_episode(env: EnvPlan, max_tokens: int, level: Level) -> Episode:
    """The assumed shape of an episode."""
    chars = measured(env)
    prompt = chars.get("prompt", UNKNOWN_PROMPT * CHARACTERS_PER_TOKEN)
    observation = chars.get("observation", UNKNOWN_OBSERVATION * CHARACTERS_PER_TOKEN)
    history = _history(env)
    instruction = sum(len(str(wrapper.args.get("instruction", ""))) for wrapper in env.wrappers)
    markup = CHAT_TOKENS if history == "chat" else TEMPLATE_TOKENS
    per_turn = CHAT_TOKENS if history == "chat" else 0
    return Episode(
        prompt=ceil((prompt + instruction) / CHARACTERS_PER_TOKEN) + markup,
        observation=ceil(observation / CHARACTERS_PER_TOKEN) + per_turn,
        turns=max(1, round((max_turns(env) or UNKNOWN_TURNS) * TURN_SHARE[level])),
        reply=max(1, round(max_tokens * REPLY_SHARE[level])),
        history=history,
    )


def _history(env: EnvPlan) -> History:
    names = {wrapper.name for wrapper in env.wrappers}
    if "chat" in names:
        return "chat"
    return "concat" if "concat" in names else "latest"


def _episodes_played(batch: BatchPlan, turns: int, worst: bool) -> float:
    """Whole waves of parallel episodes until there are enough turns; at worst one turn is
    missing, and a whole wave is played for it."""
    parallel = batch.parallel or 1
    if worst:
        return parallel + (batch.count - 1) / turns
    return ceil(batch.count / (parallel * turns)) * parallel


def _trained_turns(batch: BatchPlan, episode: Episode, episodes: float) -> float:
    """A random choice of turns; a chat's datum holds the whole episode whatever is chosen."""
    if episode.one_datum:
        return min(episodes, batch.count) * episode.datum_tokens()
    return batch.count * episode.datum_tokens() / episode.turns


def _assumptions(stage: TrainPlan) -> Iterator[str]:
    yield f"low, expected, high: replies of {_shares(REPLY_SHARE)} of max_tokens"
    if any(env.max_turns != 1 for env in stage.envs):
        yield f"low, expected, high: episodes of {_shares(TURN_SHARE)} of the turns allowed"
    yield "low and expected: prompts shared by a group or kept from earlier turns are cached"
    yield "every rollout is trained on; checkpoint storage is not counted"
    for env in stage.envs:
        yield from _env_assumptions(env, stage.sampling.max_tokens)


def _env_assumptions(env: EnvPlan, max_tokens: int) -> Iterator[str]:
    chars = measured(env)
    episode = env_episode(env, max_tokens, "high")
    how = f"{chars['prompt']:,} characters" if chars else "not measured, assumed"
    yield f"{env.name}: a first prompt of about {episode.prompt:g} tokens ({how})"
    if max_turns(env) == 1:
        return
    if env.max_turns is None:
        yield f"{env.name}: at most {UNKNOWN_TURNS} turns (the game draws its own limit)"
    how = f"{chars['observation']:,} characters" if "observation" in chars else "not measured"
    yield f"{env.name}: later observations of about {episode.observation:g} tokens ({how})"


def _shares(shares: dict[str, float]) -> str:
    return ", ".join(f"{share:.0%}" for share in shares.values())
