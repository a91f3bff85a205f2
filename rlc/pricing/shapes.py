"""How long episodes are, in tokens and turns, before anything runs.

For an episode of T turns with a first prompt of p tokens, replies of r and later observations of
o tokens, the prompts are, for t = 0 … T-1,

    all           p + t (r + o)      everything so far
    observations  p + t o            all observations so far
    latest        p, then o          the latest observation only

Where each prompt extends the tokens before it, the episode is one training sequence of
``p + T r + (T-1) o`` tokens; else each turn is one, of its prompt and its reply.

Three levels: ``high`` has every reply at max_tokens and every episode at its last turn, and covers
whatever else the limits allow; ``expected`` and ``low`` have the shares below. No episode outgrows
the model's context or the limits of the sampling.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Mapping
from math import ceil
from typing import Literal

from rlc.catalog import (
    env_facts,
    history_of,
    makes_text,
    max_turns,
    renderer_keeps_prefix,
    tokenizer_of,
    trained_seats,
    with_role,
)
from rlc.plan import EnvPlan, ModelPlan, SamplingPlan
from rlc.pricing.texts import CHARACTERS_PER_TOKEN, Level, text_tokens, tokens_of_rows
from rlc.records import evolve, frozen

History = Literal["all", "observations", "latest"]

REPLY_SHARE: Mapping[Level, float] = {"low": 0.1, "expected": 0.5, "high": 1.0}  # of max_tokens
# Of max_tokens, for the replies of an oracle, which says no more than it has to.
ORACLE_SHARE: Mapping[Level, float] = {"low": 0.005, "expected": 0.05, "high": 1.0}
# Of the environment's limit.
TURN_SHARE: Mapping[Level, float] = {"low": 0.1, "expected": 0.5, "high": 1.0}
UNKNOWN_PROMPT = {"low": 100, "expected": 300, "high": 1_000}  # tokens, where nothing was measured
UNKNOWN_OBSERVATION = {"low": 30, "expected": 100, "high": 300}
UNKNOWN_TURNS = 20
# Markup around an observation.
TEMPLATE_TOKENS = {"low": 40, "expected": 50, "high": 60}
CHAT_TOKENS = {"low": 6, "expected": 10, "high": 12}
# Of the judge's instructions, around the task and its solutions.
JUDGE_TOKENS = {"low": 10, "expected": 100, "high": 300}
_UNLIMITED = 2**53


@frozen(eq=False)
class EpisodeShape:
    """The shape of one episode. ``extends`` says that each prompt extends the tokens before it.

    ``copies`` of it are played side by side in one rollout; ``shared`` says that its first prompt
    is the same for a whole group.
    """

    prompt: float
    observation: float
    turns: int
    reply: float
    history: History
    extends: bool = False
    copies: int = 1
    shared: bool = True

    @property
    def one_datum(self) -> bool:
        return self.extends or self.turns == 1

    def prompt_at(self, turn: int) -> float:
        """Length of the prompt of a turn, from 0 on."""
        if self.history == "latest":
            return self.prompt if turn == 0 else self.observation
        grows = self.observation + (self.reply if self.history == "all" else 0)
        return self.prompt + turn * grows

    def prompts(self, turns: int | None = None) -> float:
        """Tokens of the prompts of all turns, or of the first few, together."""
        count = self.turns if turns is None else turns
        if self.history == "latest":
            return self.prompt + (count - 1) * self.observation
        return count * (self.prompt + self.prompt_at(count - 1)) / 2

    def fresh(self) -> float:
        """Prompt tokens that no earlier prompt of the episode began with."""
        return self.prompts() if self.history == "latest" else self.prompt_at(self.turns - 1)

    def sampled(self) -> float:
        return self.turns * self.reply

    def datum_tokens(self) -> float:
        """Tokens of all its training sequences."""
        if self.one_datum:
            return self.prompt_at(self.turns - 1) + self.reply
        return self.prompts() + self.sampled()

    def length(self, turn: int) -> float:
        """Tokens of the episode once the prompt of a turn is there, repeated ones once."""
        if self.extends:
            return self.prompt_at(turn)
        return self.prompts(turn + 1) + turn * self.reply


# The episodes that one rollout consists of: one, or all players of a game.
Rollout = tuple[EpisodeShape, ...]


def rollout_shapes(
    env: EnvPlan,
    model: ModelPlan,
    sampling: SamplingPlan | None,
    level: Level,
    reply_share: Mapping[Level, float] = REPLY_SHARE,
) -> tuple[Rollout, ...]:
    """The assumed shapes of one rollout of an environment: one, or those that ``high`` covers.

    Where an episode of longest replies meets a limit before its last turn, more turns with shorter
    replies sample less and read more.
    """
    episode = _episode(env, model, level, reply_share[level])
    game = with_role(env, "game")
    if game is not None:  # solvers answer the same question; the judge reads it and all answers
        solver = evolve(episode, turns=1, copies=int(game.args["solvers"]))
        prompt = solver.prompt + solver.copies * solver.reply + JUDGE_TOKENS[level]
        return ((solver, evolve(solver, prompt=prompt, copies=1, shared=False)),)
    if env.play is not None:  # the seats of a match are sampled one by one
        episode = evolve(episode, copies=len(trained_seats(env)), shared=False)
    limits = Limits.of(env, model, sampling)
    longest = limits.cut(episode)
    if level != "high" or longest.turns == episode.turns:
        return ((longest,),)
    return (longest,), (limits.cut(evolve(episode, reply=limits.reply_for(episode))),)


def rollout_shape(
    env: EnvPlan, model: ModelPlan, sampling: SamplingPlan | None, level: Level
) -> Rollout:
    """The first of :func:`rollout_shapes`: that with the longest replies."""
    return rollout_shapes(env, model, sampling, level)[0]


def _episode(env: EnvPlan, model: ModelPlan, level: Level, reply_share: float) -> EpisodeShape:
    history = history_of(env)
    markup, per_turn = TEMPLATE_TOKENS[level], 0
    if history == "all":
        markup = per_turn = CHAT_TOKENS[level]
    prompt, observation = _text_tokens(env, model, level)
    return EpisodeShape(
        prompt=prompt + markup,
        observation=observation + per_turn,
        turns=max(1, round((max_turns(env) or UNKNOWN_TURNS) * TURN_SHARE[level])),
        reply=max(1, round(env.rollouts.max_tokens * reply_share)),
        history=history,
        extends=extends_prefix(env, model, unknown=level != "high"),
    )


def _text_tokens(env: EnvPlan, model: ModelPlan, level: Level) -> tuple[int, int]:
    """Tokens of the first observation, with what the recipe puts around it, and of a later one.

    They were counted for the vocabulary of the model, or follow from characters that were.
    """
    facts, vocabulary = env_facts(env), tokenizer_of(model.base)
    measured = {kind: ceil(n / CHARACTERS_PER_TOKEN[level]) for kind, n in facts.chars.items()}
    measured |= facts.tokens.get(vocabulary or "", {})
    if (rows := tokens_of_rows(env, model)) is not None:
        measured["prompt"] = rows.at(level)
    added = [w.args.get(name) for w in env.wrappers for name in ("instruction", "system")]
    added += [env.args.get("suffix"), _few_shot(env)]
    around = sum(text_tokens(f"\n{text}", model, level) for text in added if text)
    return (
        measured.get("prompt", UNKNOWN_PROMPT[level]) + around,
        measured.get("observation", UNKNOWN_OBSERVATION[level]),
    )


def _few_shot(env: EnvPlan) -> str:
    """The solved problems before each question; empty if there are none that can be read."""
    path = env.args.get("few_shot")
    if not path or not os.path.isfile(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def extends_prefix(env: EnvPlan, model: ModelPlan, unknown: bool) -> bool:
    """Return whether each prompt extends the tokens before it, or ``unknown`` if that is not known
    of the renderer.

    A history in text is tokenised anew for each turn, so only a chat through the renderer can.
    """
    if makes_text(env):
        return False
    keeps = renderer_keeps_prefix(model.renderer)
    return unknown if keeps is None else keeps


@frozen(eq=False)
class Limits:
    """The limits of an episode, in tokens: a reply of up to ``reply`` tokens is not begun if it
    could break one of the others."""

    reply: int
    context: int
    prompt: int
    whole: int

    @classmethod
    def of(cls, env: EnvPlan, model: ModelPlan, sampling: SamplingPlan | None) -> Limits:
        return cls(
            reply=env.rollouts.max_tokens,
            context=model.context or _UNLIMITED,
            prompt=(sampling and sampling.max_prompt_tokens) or _UNLIMITED,
            whole=(sampling and sampling.max_episode_tokens) or _UNLIMITED,
        )

    def cut(self, episode: EpisodeShape) -> EpisodeShape:
        """The episode with the turns that fit; the first always does."""
        later = range(1, episode.turns)
        fits = 1 + bisect_left(later, True, key=lambda turn: self._ends(episode, turn))
        return evolve(episode, turns=fits)

    def reply_for(self, episode: EpisodeShape) -> int:
        """The longest reply with which all its turns fit; one token where none does."""
        last = episode.turns - 1

        def too_long(reply: int) -> bool:
            return self._ends(evolve(episode, reply=reply), last)

        return max(1, bisect_left(range(1, self.reply), True, key=too_long))

    def _ends(self, episode: EpisodeShape, turn: int) -> bool:
        """Return whether an episode ends before a turn."""
        at = episode.prompt_at(turn)
        return (
            at > self.prompt
            or at + self.reply > self.context
            or episode.length(turn) + self.reply > self.whole
        )
