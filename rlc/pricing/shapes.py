"""Length of episodes, texts and rows, in tokens, before anything runs.

For an episode of T turns with a first prompt of p tokens, replies of r and later observations of
o tokens, the prompts are, for t = 0 … T-1,

    all           p + t (r + o)      everything so far
    observations  p + t o            all observations so far
    latest        p, then o          the latest observation only

Where each prompt extends the tokens before it, the episode is one training sequence of
``p + T r + (T-1) o`` tokens; else each turn is one, of its prompt and its reply.

Three levels: ``expected`` and ``low`` have the shares below, and end where the model's context or
a limit of the sampling leaves no room for a reply of max_tokens. ``high`` is a bound: it has as
many turns as fit with the shortest replies, each with the longest prompt that replies of max_tokens
can have led to and that leaves room for another. Where nothing limits the turns, it is infinite.
"""

from __future__ import annotations

import importlib
import json
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from itertools import islice
from math import ceil, fsum, inf
from typing import TYPE_CHECKING, Any, Literal

from rlc.catalog import (
    TINY,
    TINY_TOKENIZER,
    env_facts,
    find_builtin,
    goes_on,
    history_of,
    max_turns,
    tokenizer_of,
    trained_seats,
    with_role,
)
from rlc.data import DataError
from rlc.plan import (
    DATA,
    MAX_TURNS,
    AnyData,
    EndpointPlan,
    EnvPlan,
    ModelPlan,
    Rows,
    SamplingPlan,
    StagePlan,
    has_rows,
)
from rlc.records import evolve, frozen, values_of

if TYPE_CHECKING:
    from rlc.data import Chat

Level = Literal["low", "expected", "high"]
LEVELS: tuple[Level, ...] = ("low", "expected", "high")

CHARACTERS_PER_TOKEN = {"low": 5.0, "expected": 4.0, "high": 2.0}  # of a text that is not counted
# Of the mean of what an environment generates, or of the longest, where that is counted: others may
# be longer. In the characters it is in their number for a token.
GENERATED_SHARE = {"low": 1.0, "expected": 1.0, "high": 1.5}
FIRST_ROWS = 10_000  # of a file that are measured
_MEAN_SHARE = {"low": 0.8, "expected": 1.0}  # of their mean: few rows may be shorter than most


@frozen
class RowTokens:
    """The mean length of the rows of a file, and that of the longest: in tokens if they were
    ``counted`` by the model's tokenizer, else in characters. ``rows`` were read."""

    mean: float
    longest: int
    rows: int
    counted: bool

    def at(self, level: Level) -> int:
        """Return the assumed tokens of a row."""
        if level == "high":
            return ceil(self._tokens(self.longest, level))
        return ceil(self._tokens(self.mean, level) * _MEAN_SHARE[level])

    @property
    def expected(self) -> float:
        """Return the expected mean in tokens."""
        return self._tokens(self.mean, "expected")

    def _tokens(self, length: float, level: Level) -> float:
        return length if self.counted else length / CHARACTERS_PER_TOKEN[level]


def text_tokens(text: str, model: ModelPlan | EndpointPlan, level: Level) -> int:
    """Return the tokens of a text: counted if the tokenizer of the model is at hand, else by its
    length."""
    tokenizer = tokenizer_at_hand(_base(model))
    length = _length(text, tokenizer)
    return length if tokenizer else ceil(length / CHARACTERS_PER_TOKEN[level])


def _base(model: ModelPlan | EndpointPlan) -> str:
    return model.model if isinstance(model, EndpointPlan) else model.base


def tokenizer_at_hand(base: str) -> Any:
    """Return the tokenizer of the included model, or of a model in a folder; None for others, which
    are on a hub."""
    if tokenizer_of(base) == TINY:
        return _tokenizer_in(TINY_TOKENIZER)
    file = os.path.join(os.path.expanduser(base), "tokenizer.json")
    return _tokenizer_in(file) if os.path.isfile(file) else None


@cache
def _tokenizer_in(file: str) -> Any:
    """Return the tokenizer in a file; None if the package tokenizers is missing or cannot read
    it."""
    try:
        tokenizers = importlib.import_module("tokenizers")
        return tokenizers.Tokenizer.from_file(file)
    except Exception:  # it raises no other kind for a file that it does not know
        return None


def tokens_of_rows(env: EnvPlan, model: ModelPlan) -> RowTokens | None:
    """Return the tokens of the prompts of an environment; None unless they are in a file that
    exists."""
    source = find_builtin("env", env.source)
    asked = [param.name for param in source.params if param.holds == "asked"] if source else []
    fields = tuple(str(env.args.get(name)) for name in asked)
    return row_tokens(env.id, (*fields, "tools"), model) if fields else None


def example_tokens(data: AnyData, model: ModelPlan) -> RowTokens | None:
    """Return the tokens of the examples in a file; None if it does not exist."""
    fields = (data.prompt, data.reply, "tools") if isinstance(data, Rows) else ()
    return None if data.file is None else row_tokens(data.file, fields, model)


def preference_tokens(data: AnyData, model: ModelPlan) -> RowTokens | None:
    """Return the tokens of the preferences in a file, each with all its replies and their prompts;
    None if it does not exist."""
    if not has_rows(data):
        return None
    whole = evolve(data, split=None, count=None, max_tokens=None, too_long="stop")
    return row_tokens(data.path, tuple(values_of(whole).items()), model, data.word)


def row_tokens(
    path: str, fields: tuple[Any, ...], model: ModelPlan | EndpointPlan, word: str = ""
) -> RowTokens | None:
    """Return the tokens of ``fields`` of the rows of a file; with a ``word`` those of the replies
    of preferences, whose record has these fields. None if the file does not exist."""
    state = file_state(path)
    return None if state is None else _measured(path, state, fields, word, _base(model))


FileState = tuple[int, int]  # by which a file that changed is known


def file_state(path: str) -> FileState | None:
    """Return the state of a file; None if there is none, as of a set that is known by name."""
    with suppress(OSError):
        stat = os.stat(path)
        return stat.st_mtime_ns, stat.st_size
    return None


@lru_cache(maxsize=64)
def _measured(
    path: str,
    state: FileState,  # noqa: ARG001 (a file that changed is measured again)
    fields: tuple[Any, ...],
    word: str,
    base: str,
) -> RowTokens | None:
    """Measure the ``fields`` of rows, without any whole rows; with a ``word`` the replies of
    preferences, whose record has these fields."""
    from rlc.data import rows_of

    replies = _replies_of(DATA[word](**dict(fields))) if word else None
    tokenizer, lengths = tokenizer_at_hand(base), list[int]()
    markup = (
        MESSAGE_TOKENS if tokenizer else round(MESSAGE_TOKENS * CHARACTERS_PER_TOKEN["expected"])
    )
    with suppress(DataError):  # the first row that cannot be read is the last: `rlc check` says it
        for row in islice(rows_of(path), FIRST_ROWS):
            if replies is not None:
                shown: Any = replies(row.fields)
            else:
                shown = {name: row.fields.get(name) for name in fields} if fields else row.fields
            if shown is not None:
                texts = sum(_length(text, tokenizer) for text in _texts(shown))
                lengths.append(texts + markup * _later_messages(shown))
    if not lengths:
        return None
    return RowTokens(fsum(lengths) / len(lengths), max(lengths), len(lengths), bool(tokenizer))


def _replies_of(data: AnyData) -> Callable[[Mapping[str, Any]], list[Any] | None]:
    """Return what finds the messages of the replies of a row; None for a row without any, or one
    that cannot be read."""
    from rlc.data import Comparison, LabelledReply, reader_of

    read = reader_of(data)

    def replies(fields: Mapping[str, Any]) -> list[Any] | None:
        with suppress(DataError):
            found = read(fields)
            if isinstance(found, Comparison):
                return [_said(found.chosen), _said(found.rejected)]
            if isinstance(found, LabelledReply):
                return [_said(found.reply)]
        return None

    return replies


def _said(chat: Chat) -> dict[str, Any]:
    return {"messages": chat.messages, "tools": chat.tools}


def _length(text: str, tokenizer: Any) -> int:
    """Return the tokens of a text; its characters if there is no tokenizer."""
    if tokenizer is None:
        return len(text)
    return len(tokenizer.encode(text, add_special_tokens=False).ids)


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a field, or in its messages without their roles, which are markup; tools
    and their calls as a prompt has them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        if value.get("role") == "tool":
            yield TOOL_MARKUP
        for name, part in value.items():
            if name in ("tools", "tool_calls") and part:
                yield json.dumps(part, default=str)
                yield TOOLS_PROMPT * (name == "tools")
            elif name != "role":
                yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
    elif value is not None:
        yield str(value)


def _later_messages(value: Any) -> int:
    """Return the number of messages in a field, but for the first two of each chat."""
    if isinstance(value, Mapping):
        return sum(map(_later_messages, value.values()))
    if not isinstance(value, list | tuple):
        return 0
    messages = sum(isinstance(one, Mapping) and "role" in one for one in value)
    return max(messages - 2, 0) + sum(map(_later_messages, value))


History = Literal["all", "observations", "latest"]

REPLY_SHARE: Mapping[Level, float] = {"low": 0.1, "expected": 0.5, "high": 1.0}  # of max_tokens
# Of max_tokens, for the replies of an oracle, which says no more than it has to.
ORACLE_SHARE: Mapping[Level, float] = {"low": 0.005, "expected": 0.05, "high": 1.0}
# Of the environment's limit.
TURN_SHARE: Mapping[Level, float] = {"low": 0.1, "expected": 0.5, "high": 1.0}
UNKNOWN_PROMPT = {"low": 100, "expected": 300, "high": 1_000}  # tokens, where nothing was measured
UNKNOWN_OBSERVATION = {"low": 30, "expected": 100, "high": 300}
# Of an environment whose limit is not known; the most are those after which rlc ends an episode.
UNKNOWN_TURNS = {"low": 2, "expected": 10, "high": MAX_TURNS}
# Markup around an observation; of a chat that of a question and its answer, and of each message
# more.
TEMPLATE_TOKENS = {"low": 40, "expected": 50, "high": 60}
CHAT_TOKENS = {"low": 6, "expected": 10, "high": 12}
MESSAGE_TOKENS = 5
# What a prompt says around its tools, and around the answer of one.
TOOLS_PROMPT = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{"type": "function", "function": }
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""
TOOL_MARKUP = "<tool_response>\n\n</tool_response>"
# Of the judge's instructions, around the task and its solutions.
JUDGE_TOKENS = {"low": 10, "expected": 100, "high": 300}
UNLIMITED = inf


@frozen(eq=False)
class EpisodeShape:
    """The shape of one episode. ``extends`` says that each prompt extends the tokens before it.

    ``copies`` of it are played side by side in one rollout; ``shared`` says that its first prompt
    is the same for a whole group. No prompt is longer than ``room``, and all training sequences
    together have no more than ``most`` tokens. ``endless``: it may have any number of turns.
    """

    prompt: float
    observation: float
    turns: int
    reply: float
    history: History
    extends: bool = False
    copies: int = 1
    shared: bool = True
    room: float = UNLIMITED
    most: float = UNLIMITED
    endless: bool = False

    @property
    def one_datum(self) -> bool:
        return self.extends or self.turns == 1

    @property
    def played_turns(self) -> float:
        """Return the number of its turns, a mean where it was measured."""
        return self.turns

    @property
    def most_turns(self) -> float:
        """Return the number of its turns, without a limit if it is endless."""
        return UNLIMITED if self.endless else self.turns

    @property
    def sequences(self) -> float:
        """Return the number of its training sequences."""
        return 1 if self.one_datum else self.most_turns

    @property
    def grows(self) -> float:
        """Return by how much a prompt is longer than the one before it."""
        return self.observation + (self.reply if self.history == "all" else 0)

    @property
    def growing(self) -> int:
        """Return how many of the first turns have prompts that are shorter than ``room``, or as
        long."""
        if self.history == "latest" or self.grows == 0 or self.room == UNLIMITED:
            return self.turns
        return min(self.turns, 1 + int((self.room - self.prompt) // self.grows))

    def prompt_at(self, turn: int) -> float:
        """Return the length of the prompt of a turn, from 0 on."""
        if self.history == "latest":
            return self.prompt if turn == 0 else min(self.observation, self.room)
        return min(self.prompt + turn * self.grows, self.room)

    def prompts(self, turns: int | None = None) -> float:
        """Return the tokens of the prompts of all turns, or of the first few, together."""
        if self.endless:
            return UNLIMITED
        count = self.turns if turns is None else turns
        if self.history == "latest":
            return self.prompt + (count - 1) * self.prompt_at(1)
        growing = min(count, self.growing)
        shorter = growing * (self.prompt + self.prompt_at(growing - 1)) / 2
        return shorter + times(count - growing, self.room)

    def fresh(self) -> float:
        """Return the prompt tokens that no earlier prompt of the episode began with."""
        return self.prompts() if self.history == "latest" else self.prompt_at(self.turns - 1)

    def sampled(self) -> float:
        """Return the tokens of all replies; if each prompt has all of them, they share its room."""
        fits = self.room + self.reply if self.extends else self.most
        return min(self.most_turns * self.reply, fits)

    def datum_tokens(self) -> float:
        """Return the tokens of all its training sequences."""
        if self.one_datum:
            return (self.room if self.endless else self.prompt_at(self.turns - 1)) + self.reply
        return min(self.prompts() + self.sampled(), self.most)

    def length(self, turn: int) -> float:
        """Return the tokens of the episode up to the prompt of a turn, repeated ones once."""
        if self.extends:
            return self.prompt_at(turn)
        return self.prompts(turn + 1) + turn * self.reply


def times(count: float, tokens: float) -> float:
    """Return so many times a number of tokens: none are none, even if there is no bound of it."""
    return count * tokens if count else 0.0


@frozen(eq=False)
class MeasuredShape(EpisodeShape):
    """The means of episodes that were played; the service had a share ``cached`` of the prompts."""

    all_prompts: float = 0.0
    all_replies: float = 0.0
    all_datums: float = 0.0
    mean_sequences: float = 1.0
    mean_turns: float = 1.0
    cached: float = 0.0

    @property
    def played_turns(self) -> float:
        return self.mean_turns

    @property
    def sequences(self) -> float:
        return self.mean_sequences

    @property
    def one_datum(self) -> bool:
        return self.mean_sequences <= 1

    def prompts(self, turns: int | None = None) -> float:
        return self.all_prompts if turns is None else self.all_prompts * turns / self.mean_turns

    def fresh(self) -> float:
        return self.all_prompts * (1 - self.cached)

    def sampled(self) -> float:
        return self.all_replies

    def datum_tokens(self) -> float:
        return self.all_datums


@frozen
class MeasuredEnv(EnvPlan):
    """An environment whose episodes are known: the share ``taught`` of them that is trained on,
    that of groups of equals, and the tokens of other models for each."""

    shape: MeasuredShape | None = None
    taught: float = 1.0
    equal: float = 0.0
    asked: float | None = None


# The episodes that one rollout consists of: one, or all players of a game.
Rollout = tuple[EpisodeShape, ...]


def rollout_tokens(rollout: Rollout) -> float:
    """Return the tokens of all training sequences of a rollout."""
    return sum(one.copies * one.datum_tokens() for one in rollout)


def rollout_shape(
    env: EnvPlan,
    model: ModelPlan,
    sampling: SamplingPlan | None,
    level: Level,
    reply_share: Mapping[Level, float] = REPLY_SHARE,
) -> Rollout:
    """Return the shape of one rollout of an environment, assumed unless it was measured."""
    if isinstance(env, MeasuredEnv) and env.shape is not None:
        return (env.shape,)
    episode = _episode(env, model, level, reply_share[level])
    game = with_role(env, "game")
    if game is not None:  # solvers answer the same question; the judge reads it and all answers
        solver = evolve(episode, turns=1, copies=int(game.args["solvers"]))
        prompt = solver.prompt + solver.copies * solver.reply + JUDGE_TOKENS[level]
        return solver, evolve(solver, prompt=prompt, copies=1, shared=False)
    if env.play is not None:  # the seats of a match are sampled one by one
        episode = evolve(episode, copies=len(trained_seats(env)), shared=False)
    limits = Limits.of(env, model, sampling)
    if level != "high":  # short replies leave room for more turns, which would take more
        expected = _episode(env, model, "expected", reply_share["expected"])
        turns = min(limits.cut(one).turns for one in (episode, expected))
        return (evolve(episode, turns=turns),)
    shortest = _episode(env, model, "low", 0.0)
    assumed = 0 if "observation" in env_facts(env).chars else UNKNOWN_OBSERVATION["low"]
    shortest = evolve(
        shortest,
        prompt=0,
        observation=shortest.observation - assumed,
        turns=episode.turns,
        extends=episode.history != "latest",
    )
    turns, endless = limits.cut(shortest).turns, max_turns(env) is None
    bounded = limits.bound(evolve(episode, turns=turns, endless=endless))
    if env.agent is not None:  # each prompt is what its program writes
        bounded = evolve(bounded, prompt=bounded.room, observation=0, extends=False)
    return (bounded,)


def endless(stages: Iterable[StagePlan]) -> list[str]:
    """Return the names of the environments of stages where nothing limits the turns. A limit of
    tokens does not limit how often they are read."""
    envs = (env for stage in stages for env in stage.environments)
    return list(dict.fromkeys(env.name for env in envs if max_turns(env) is None))


def _episode(env: EnvPlan, model: ModelPlan, level: Level, reply_share: float) -> EpisodeShape:
    history = history_of(env)
    markup, per_turn = TEMPLATE_TOKENS[level], 0
    if history == "all":
        markup = per_turn = CHAT_TOKENS[level]
    prompt, observation = _text_tokens(env, model, level)
    longest, repeats = env.rollouts.max_tokens, env_facts(env).repeats
    if env.play is not None:
        longest = max(longest, env.play.max_tokens or 0)
    repeated = max(1, round(longest * reply_share))  # reply of any seat, in what all see
    first = max(0, repeats - 1) * (1 if level == "high" else 0.5)  # of the seats before it
    return EpisodeShape(
        prompt=prompt + markup + first * repeated,
        observation=observation + per_turn + repeats * repeated,
        turns=turns_allowed(env, level),
        reply=max(1, round(env.rollouts.max_tokens * reply_share)),
        history=history,
        extends=extends_prefix(env, model, unknown=level != "high"),
    )


def turns_allowed(env: EnvPlan, level: Level) -> int:
    """Return the turns of an episode that no other limit ends."""
    if (allowed := max_turns(env)) is None:
        return UNKNOWN_TURNS[level]
    return max(1, round(allowed * TURN_SHARE[level]))


def _text_tokens(env: EnvPlan, model: ModelPlan, level: Level) -> tuple[int, int]:
    """Return the tokens of the first observation, with the texts that the recipe adds, and of a
    later one: as counted for the vocabulary of the model, or by their characters."""
    facts, vocabulary = env_facts(env), tokenizer_of(model.base)
    longest, characters = level == "high", CHARACTERS_PER_TOKEN[level]
    measured = {kind: ceil(n[longest] / characters) for kind, n in facts.chars.items()}
    counted = facts.tokens.get(vocabulary or "", {})
    measured |= {kind: ceil(n[longest] * GENERATED_SHARE[level]) for kind, n in counted.items()}
    if (rows := tokens_of_rows(env, model)) is not None:
        measured["prompt"] = rows.at(level)
    added = [w.args.get(name) for w in env.wrappers for name in ("instruction", "system")]
    added.append(env.args.get("suffix"))
    if (path := env.args.get("few_shot")) and os.path.isfile(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            added.append(file.read())
    around = sum(text_tokens(f"\n{text}", model, level) for text in added if text)
    return (
        measured.get("prompt", UNKNOWN_PROMPT[level]) + around,
        measured.get("observation", UNKNOWN_OBSERVATION[level]),
    )


def extends_prefix(env: EnvPlan, model: ModelPlan, unknown: bool) -> bool:
    """Return whether each prompt extends the tokens before it, or ``unknown`` if that is not known
    of the renderer.

    A history in text is tokenised anew for each turn, so only a chat through the renderer can.
    """
    extends = goes_on(env, model.renderer)
    return unknown if extends is None else extends


@frozen(eq=False)
class Limits:
    """The limits of an episode, in tokens: a reply of up to ``reply`` tokens is not begun if it
    could break one of the others."""

    reply: int
    context: float
    prompt: float
    whole: float

    @classmethod
    def of(cls, env: EnvPlan, model: ModelPlan, sampling: SamplingPlan | None) -> Limits:
        return cls(
            reply=env.rollouts.max_tokens,
            context=model.context or UNLIMITED,
            prompt=(sampling and sampling.max_prompt_tokens) or UNLIMITED,
            whole=(sampling and sampling.max_episode_tokens) or UNLIMITED,
        )

    def cut(self, episode: EpisodeShape) -> EpisodeShape:
        """Return an episode with the turns that fit; the first always does."""
        later = range(1, episode.turns)
        fits = 1 + bisect_left(later, True, key=lambda turn: self._ends(episode, turn))
        return evolve(episode, turns=fits)

    def bound(self, episode: EpisodeShape) -> EpisodeShape:
        """Return an episode whose later prompts are no longer than these limits allow."""
        room = min(self.prompt, self.context - self.reply, self.whole - self.reply)
        most = max(self.whole, episode.prompt + episode.reply)
        return evolve(episode, room=max(room, episode.prompt), most=most)

    def _ends(self, episode: EpisodeShape, turn: int) -> bool:
        """Return whether an episode ends before a turn."""
        at = episode.prompt_at(turn)
        return (
            at > self.prompt
            or at + self.reply > self.context
            or episode.length(turn) + self.reply > self.whole
        )
