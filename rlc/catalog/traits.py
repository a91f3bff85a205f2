"""What builtins do and need, for all that handles them without knowing their names: one class for
each kind that has traits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from rlc.plan import EnvPlan, LossPlan
from rlc.records import field, frozen

if TYPE_CHECKING:
    from rlc.algo import Builder, Program


@frozen(eq=False)
class StageTraits:
    """What a kind of stage does. ``watched``: the metric that its steps are watched by; None: it
    has no steps, and changes no weights. ``rises``: more of that is better. ``trains_by``: how it
    trains, where that is not reinforcement learning.
    """

    watched: str | None = None
    rises: bool = True
    trains_by: str | None = None


@frozen(eq=False)
class LossTraits:
    """What a loss does and what it needs.

    ``config``: parameter -> the service's key in ``loss_fn_config``. ``clip``: whether a token
    outside the clip range loses its gradient, or its weight is bounded; None: it has no clip.
    ``bounds``: the parameters with the smallest and the largest ratio of that range.
    ``takes_stale``: it stays stable with rollouts several steps old. ``pull``: the setting that
    scales a term without the advantage in it, and has no default on the service; None: the loss is
    linear in the advantages, up to their sign. ``reaches_prompt``: the service adds that term on
    every token of a datum. ``per_sequence``: one ratio for all tokens, of those that
    ``sequence_ratio_mask`` marks. ``sampler_logprobs``: it compares with the sampler; otherwise the
    advantages are ``weights``.
    ``recorded``: its datums name the sampled sequence behind every token, and the service has to
    record what it samples. ``published``: Tinker's definition is known; otherwise the formula is
    that of the embedded engine and of ``rlc serve``. ``reference``: it reads the logprobs of the
    stage's reference. ``weighted``: it is not of degree one in the advantages, so the weight of a
    sequence is an input of its own. ``forward``: it reads the trainer's logprobs before the
    gradient, in a forward pass. ``unbounded``: a recipe's own loss without its bounds on what
    depends on ``logp``; None if it has none. ``written``: the loss as an expression, the node that
    a builder makes from those of its parameters.
    """

    config: Mapping[str, str] = field(factory=dict)
    clip: Literal["gradient", "weight"] | None = None
    bounds: tuple[str, str] | None = None
    takes_stale: bool = False
    pull: str | None = None
    reaches_prompt: bool = False
    per_sequence: bool = False
    sampler_logprobs: bool = True
    recorded: bool = False
    published: bool = True
    reference: bool = False
    weighted: bool = False
    forward: bool = False
    unbounded: Program | None = None
    written: Callable[[Builder, Mapping[str, int]], int] | None = None

    def range_of(self, loss: LossPlan) -> tuple[float, float] | None:
        """The smallest and the largest ratio that count; None without a clip."""
        if self.bounds is None:
            return None
        low, high = (loss.config[self.config[name]] for name in self.bounds)
        return low, high

    def ratios(self, config: Mapping[str, float]) -> tuple[list[float], list[float]]:
        """Return ratios to try the loss with on the tokens of two datums: below, inside and above
        the clip range, or around 1 if it has none. If a sequence has one ratio, one datum is below
        and the other above."""
        low, high = config.values() if self.clip else (0.8, 1.2)
        below, above = low / 2 if low > 0 else 0.25, high * 1.5
        if self.per_sequence:
            return [below], [above]
        ratios = [below, (low + high) / 2, 1.0, above]
        return ratios, ratios[::-1]


@frozen(eq=False)
class PreferenceTraits:
    """What a loss over preferences needs. ``reference``: the logprobs of a reference. ``labelled``:
    it takes single replies with their labels, otherwise pairs. ``mean``: the score of a reply is
    taken per token. ``likelihood``: it also raises the log-likelihood of the better replies, of
    the tokens of the ``reply`` or of ``all``. ``usual_beta``: what its ``beta`` is likely to be.
    """

    reference: bool = False
    labelled: bool = False
    mean: bool = False
    likelihood: Literal["reply", "all"] | None = None
    usual_beta: tuple[float, float] = (0.001, 2.0)


@frozen(eq=False)
class TeacherTraits:
    """What a teacher says. ``targets``: the top-k tokens where each was sampled, as targets
    of a loss of their own; otherwise it scores those that were sampled, and its scores are
    added to their advantages."""

    targets: bool = False


@frozen(eq=False)
class AggregateTraits:
    """What an aggregation weighs. ``over``: what shares one weight, the sequences of a batch, of
    a task, or none of them; None: every token weighs 1, so no batch has to be known.
    ``token_weight``: what a token is expected to weigh in the gradient, from the sequences and
    sampled tokens of an update and the argument ``length``.
    """

    over: Literal["batch", "task", "sequence"] | None
    token_weight: Callable[[float, float, int | None], float]

    @property
    def uniform(self) -> bool:
        """Whether all sequences have the same weight, so that any loss can be weighted."""
        return self.over in ("batch", None)


@frozen(eq=False)
class Key:
    """A variable of the environment that holds a key. ``purpose``: what it is for; ``instead``:
    what will do without it."""

    variable: str
    purpose: str = ""
    instead: str = ""


@frozen(eq=False)
class EnvFacts:
    """What is known of one environment before it is made.

    ``chars``: mean characters of its ``prompt`` and ``observation``, if measured; ``tokens``: mean
    tokens, by the name of a vocabulary. ``needs``: what
    it downloads when it is made (``hub``, ``nltk``). ``splits``: the names of its splits; None if
    they are not known. ``tasks``: how many it has, None if unknown;
    ``uncounted``: it does not count them when it is made either. ``oracle``: a player that knows
    its answers exists. ``penalty``: what it takes off a reward, for what and how much.
    ``broken_in``: the library that registers it and cannot make it. ``marks``: its reward is for
    what stands in one of these, which its own prompt does not ask for. ``graders``: those that can
    tell its right answers; empty: all. ``endless``: no task is played twice. ``held_out``: its
    tasks are there to test with. ``lists_moves``: a game says which moves are legal, and None: only
    the game itself shows it. ``ignores``: arguments of its source that have no effect on it.
    """

    chars: Mapping[str, int] = field(factory=dict)
    tokens: Mapping[str, Mapping[str, int]] = field(factory=dict)
    needs: tuple[str, ...] = ()
    splits: tuple[str, ...] | None = None
    tasks: int | None = None
    uncounted: bool = False
    oracle: bool = False
    penalty: tuple[str, float] | None = None
    broken_in: str | None = None
    marks: tuple[str, ...] = ()
    graders: tuple[str, ...] = ()
    endless: bool = False
    held_out: bool = False
    lists_moves: bool | None = None
    ignores: tuple[str, ...] = ()


@frozen(eq=False)
class SourceTraits:
    """What the environments of a source have in common.

    ``prompts``: bare ``text``, of which wrappers make prompts; a ``chat`` through the model's
    renderer, with `chat()` or without it; or prompts of its ``own``. ``numbered``: its tasks have
    numbers that stay the same. ``blocks``: its calls block, and so are made by workers; None if
    that depends on the environment. ``package`` is installed with rlc's ``extra``. ``key`` is
    needed unless the environment has a ``base_url``. ``code``: its id names Python code;
    ``decides``: those of its parameters that other parts of the recipe decide, name -> part.
    ``graded``: graders reward its replies; ``answers``: its rows have answers to compare with.
    ``fixed_groups``: it may have groups of one size only. ``unknown_turns``: why the number of
    turns may be unknown. ``boxed``: it reads answers from a box, as LaTeX writes it. ``scripted``:
    `rlc emit` writes scripts that play it. ``seats``: the roles of the seats of one of its games;
    None: its environments are no games of several. ``facts``: what is known of one of them.
    """

    prompts: Literal["text", "chat", "own"]
    numbered: bool = False
    blocks: bool | None = True
    package: str | None = None
    extra: str | None = None
    key: Key | None = None
    code: bool = False
    decides: Mapping[str, str] = field(factory=dict)
    graded: bool = False
    answers: bool = False
    fixed_groups: bool = False
    unknown_turns: str = "its limit is not known"
    boxed: bool = False
    scripted: bool = False
    seats: Callable[[EnvPlan], tuple[str, ...]] | None = None
    facts: Callable[[EnvPlan], EnvFacts] = lambda _: EnvFacts()


@frozen(eq=False)
class OpponentTraits:
    """What an opponent that is a program can play. ``needs_moves``: games that say which moves are
    legal; ``games``: those of TextArena that it knows, None if it can be any."""

    needs_moves: bool = False
    games: tuple[str, ...] | None = None


@frozen(eq=False)
class DataTraits:
    """What data to imitate needs. ``decides``: those parameters of the code that makes it that
    other parts of the recipe decide, name -> part."""

    decides: Mapping[str, str] = field(factory=dict)


# Marks around an answer, as models are asked for them.
BOX, TAG = "\\boxed{}", "<answer>"

Role = Literal[
    "tool",
    "server_tools",
    "history",
    "tracking",
    "template",
    "chat",
    "game",
    "judge",
    "curriculum",
    "workers",
    "setting",
]


@frozen(eq=False)
class WrapperTraits:
    """What a wrapper does to an environment.

    ``wraps``: the sources that it applies to: those that give bare ``text``, whose prompts are
    ``chats`` through the model's renderer, or whose calls block (``blocks``); by default all.
    ``history``: what each prompt holds of the episode so far, ``all`` of it or the ``observations``
    alone; None: the latest observation.
    ``chat_template``: it needs the tokenizer's own. ``server``: the argument with the address of a
    server that it asks. ``scripted``: `rlc emit` can write it. ``asks``: the marks around an answer
    that it tells the model to use, unless its argument ``prompt`` says something else instead.
    ``package`` is installed with rlc's ``extra``; ``needed_with``: it takes them only if this
    argument has this value. ``roles``: those of a game, of which the last decides whether a task
    is solved.
    """

    role: Role
    wraps: Literal["all", "text", "chats", "blocks"] = "all"
    history: Literal["all", "observations"] | None = None
    chat_template: bool = False
    server: str | None = None
    scripted: bool = False
    asks: tuple[str, ...] = ()
    prompt: str | None = None
    package: str | None = None
    extra: str | None = None
    needed_with: tuple[str, str] | None = None
    roles: tuple[str, ...] = ()

    def package_of(self, args: Mapping[str, Any]) -> tuple[str, str] | None:
        """The package that the wrapper with these arguments needs, and rlc's extra with it."""
        if self.package is None or self.extra is None:
            return None
        key, value = self.needed_with or ("", None)
        return None if args.get(key) != value else (self.package, self.extra)


@frozen(eq=False)
class GraderTraits:
    """What a grader does. ``compares``: it finds an answer in the reply, or none, and compares it
    with that of the row; ``marks``: it finds it in one of these alone. ``code``: its first argument
    names a function of the user's own. ``package``: what it needs, as pip calls it."""

    compares: bool = False
    marks: tuple[str, ...] = ()
    code: bool = False
    package: str | None = None


@frozen(eq=False)
class MetricTraits:
    """What a metric of evaluations is. ``share``: a number from 0 to 1. ``of_games``: it counts who
    has won, so there has to be a game."""

    share: bool = True
    of_games: bool = False


@frozen(eq=False)
class TrackerTraits:
    """What a tracker needs. ``sends``: what it writes where, with ``{stage}`` for the stage's name.
    ``source``: it takes the episodes of that source's environments."""

    package: str
    sends: str
    key: Key | None = None
    source: str | None = None
