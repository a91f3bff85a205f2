"""What a catalogue entry is: parameters, builtins with their traits, declarations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

from rlc.plan import EnvPlan, LossPlan
from rlc.records import evolve, field, frozen

if TYPE_CHECKING:
    from rlc.algo import Builder, Program
    from rlc.data import CodeKind, Holds


REQUIRED: Any = object()  # the default of what has none

# The types of plain values, and how a message calls them.
SCALARS: Mapping[str, str] = {
    "int": "a whole number",
    "float": "a number",
    "bool": "`true` or `false`",
    "string": "a string",
    "path": "a string",  # of a value only: one that names a file, as seen from the recipe's folder
    "money": "an amount of money such as `$25`",
    "duration": "a duration such as `12h`",
    "word": "a word",
    "list": "a list",
    "record": "a record such as `{ size = 9 }`",
    "any": "a plain value",
}

# What names a folder of this machine, where the name of a model may stand too.
MODEL_FOLDER = r"[./~].*"


@frozen(eq=False)
class Param:
    """A parameter of a builtin, or a field of a declaration.

    ``type`` is one of :data:`SCALARS` or a kind of :data:`rlc.catalog.index.KINDS`. Bounds: ``low``
    and ``high`` are allowed values, ``above`` and ``below`` are not. ``choices`` are the only
    allowed values, each a ``noun``. ``form`` is a pattern and an example of it: a value of that
    form is allowed too, and without choices it must be of it. ``file``: a value of the form is the
    path of a file or folder, or one that matches ``file``, if that is a pattern; it starts at the
    folder of what names it (:mod:`rlc.plan.paths`); ``folders``: it is that of folders, or a
    pattern of them. ``many`` takes a list of them, ``named`` a
    record of them. An ``optional`` one also takes the word ``none``. ``default_of`` names what the
    default belongs to, if it is not the builtin. ``only_if`` names another argument and the values
    of it with which alone this one means anything; ``implied`` another argument, and the default
    that this one has where that is given. ``formerly`` are names that it had: they are
    still accepted, with a warning. ``folded`` are words that it took together with another
    argument, which is now an argument of a builtin: word -> (argument, builtin). ``instead``
    is advice for a wrong value.
    ``holds``: its value names a field of the rows that are read, and this is what the field holds.
    ``code``: its value names Python code, which is called like this; ``calls``: it names a package,
    or a Python file, and this is what is called in it. ``variables``: its value names
    a template, or a file with one, which uses exactly these. ``also``: a call of that other kind,
    or the name of one, may stand there too. ``suggests``: the
    names that are likely, where others may stand too.
    """

    name: str
    type: str
    doc: str
    default: Any = REQUIRED
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    noun: str = "value"
    form: tuple[str, str] | None = None
    file: bool | str = False
    folders: bool = False
    many: bool = False
    named: bool = False
    optional: bool = False
    default_of: str | None = None
    only_if: tuple[str, tuple[str, ...]] | None = None
    implied: tuple[str, Any] | None = None
    formerly: tuple[str, ...] = ()
    folded: Mapping[str, tuple[str, str]] = field(factory=dict)
    instead: str | None = None
    holds: Holds | None = None
    code: CodeKind | None = None
    calls: str | None = None
    variables: tuple[str, ...] = ()
    also: str | None = None
    suggests: Callable[[], tuple[str, ...]] | None = None

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def all_choices(self) -> tuple[str, ...]:
        return self.choices() if callable(self.choices) else self.choices

    def is_word(self, value: object) -> bool:
        """Whether a value is written without quotes: it is a choice, and no string that is open."""
        if not isinstance(value, str) or not value.isidentifier():
            return False
        is_open = self.form is not None and re.fullmatch(self.form[0], value) is not None
        return not is_open and value in self.all_choices()

    def names_file(self, value: object) -> TypeGuard[str]:
        """Whether a value of this parameter is the path of a file or folder."""
        pattern = self.form[0] if self.file is True and self.form else self.file
        if not (isinstance(pattern, str) and isinstance(value, str)):
            return False
        return value not in self.all_choices() and re.fullmatch(pattern, value) is not None


def optional(name: str, type: str, doc: str, **more: Any) -> Param:
    """Return a parameter that may be left out, or given as ``none``."""
    return Param(name, type, doc, None, optional=True, **more)


def count(name: str, doc: str, default: Any = REQUIRED, **more: Any) -> Param:
    """Return a parameter for a whole number from 1 on."""
    return Param(name, "int", doc, default, low=1, **more)


def number(name: str, doc: str, default: Any = REQUIRED, **more: Any) -> Param:
    """Return a parameter for a number."""
    return Param(name, "float", doc, default, **more)


def text(name: str, doc: str, default: Any = REQUIRED, **more: Any) -> Param:
    """Return a parameter for a string."""
    return Param(name, "string", doc, default, **more)


def code(name: str, doc: str, kind: CodeKind = "factory", **more: Any) -> Param:
    """Return a parameter for the name of something in a Python file or module. A ``factory`` is
    called with the argument ``args``, as keyword arguments."""
    form = (r"(.+\.py|[A-Za-z_][\w.]*):[A-Za-z_]\w*", "rewards.py:reward")
    return Param(name, "string", doc, form=form, file=r".+\.py:\w+", code=kind, **more)


def share(name: str, doc: str, default: float | None, **more: Any) -> Param:
    """Return a parameter for a number from 0 to 1."""
    return Param(name, "float", doc, default, low=0, high=1, **more)


def word(
    name: str, doc: str, choices: tuple[str, ...], default: Any = REQUIRED, **more: Any
) -> Param:
    """Return a parameter for one of some words."""
    return Param(name, "word", doc, default, choices=choices, **more)


@frozen(eq=False)
class Signature:
    """Parameters that depend on an argument; ``why_no_other`` explains that there are no more."""

    params: tuple[Param, ...]
    why_no_other: str | None = None


@frozen(eq=False)
class Builtin:
    """Something a recipe can call.

    ``build`` makes the plan record from the arguments, an :class:`Args`. ``more`` gives the
    parameters that depend on the first argument. ``not_after`` maps a step of the same pipeline
    to the reason why this one cannot follow it. ``word`` marks one that is written without
    parentheses. ``hint`` is said where an argument is given that it does not have.
    ``traits`` is the record of what others need to know of it, one class a kind
    (:mod:`rlc.catalog.records`); :mod:`rlc.catalog.index` has a typed function for each.
    ``example``: fields of a declaration in which it stands, where more has to be said than its
    usage does (:mod:`rlc.catalog.search`).
    """

    name: str
    kind: str
    doc: str
    build: Callable[[Args], Any]
    params: tuple[Param, ...] = ()
    formula: tuple[str, ...] = ()
    more: Callable[[str], Signature] | None = None
    not_after: Mapping[str, str] = field(factory=dict)
    word: bool = False
    hint: str | None = None
    traits: Any = None
    aliases: str = ""  # its names in other libraries, for suggestions
    example: str = ""

    def usage(self) -> str:
        """The shortest way to write it, with what it cannot do without: ``adam(learning_rate)``."""
        if self.word:
            return self.name
        return f"{self.name}({', '.join(param.name for param in self.params if param.required)})"


def builtin(
    name: str, kind: str, doc: str, build: Callable[[Args], Any], *params: Param, **more: Any
) -> Builtin:
    """A builtin with its parameters one after the other."""
    return Builtin(name, kind, doc, build, params, **more)


class Args:
    """The arguments of one call as attributes.

    Each is a value with its origin; a ``build`` puts it into the record as it is, so that the
    origin of every leaf stays known, and reads ``.data`` only to decide something.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None


def as_float(value: Any) -> Any:
    """A value with its origin, as a float: durations are written as whole numbers mostly."""
    return value if value.data is None else evolve(value, data=float(value.data))


@frozen(eq=False)
class Kind:
    """A kind of thing that builtins make.

    ``step`` is the kind of its pipeline stages, ``start`` what a pipeline may begin with.
    ``plain`` maps types of plain values to what one of them alone stands for: ``$60`` as a
    budget is ``limit(usd = $60)``. ``as_is``: the type of plain values that are such a thing
    themselves: a split is also a name. Nothing declared can stand there, so declarations may have
    the names of its builtins; nor where a kind stands ``apart``, in one field of one declaration.
    ``also``: the kind of what else may stand there.
    ``several``: an example of more than one where several may stand. ``named``: what is declared
    has the name of its declaration in the plan. ``nameable``: it can be declared at all.
    ``weighted``: a number before one is its weight, `0.5 * one`. ``before_then``: the kind of what
    may stand before it, with the word `then` between them.
    """

    name: str
    noun: str  # with its article: "an environment"
    example: str
    step: str | None = None
    start: str = ""
    plain: Mapping[str, str] = field(factory=dict)
    as_is: str | None = None
    several: str | None = None
    apart: bool = False
    also: str | None = None
    named: bool = False
    nameable: bool = True
    weighted: bool = False
    before_then: str | None = None


@frozen(eq=False)
class Declaration:
    """A declaration: a block with fields, or ``kind name = value`` with a value of ``value``, or in
    a ``form`` of its own, without a name.

    Those that are ``reusable`` may have parameters. Of an ``open`` one the fields may have any
    names. ``noun``: what it declares, where that is not a kind of value. ``traits``: of a stage.
    ``example``: fields of one, or one as a whole where that is not a block.
    """

    kind: str
    doc: str
    fields: tuple[Param, ...] = ()
    value: str | None = None
    aliases: str = ""  # what other tools call it, for suggestions
    form: str | None = None
    reusable: bool = True
    open: bool = False
    noun: str | None = None
    traits: StageTraits | None = None
    example: str = ""

    @property
    def is_block(self) -> bool:
        return self.value is None and self.form is None

    def written(self, name: str = "name") -> str:
        """How a declaration of that name is written."""
        if self.form is not None:
            return self.form
        return f"{self.kind} {name} {{ … }}" if self.value is None else f"{self.kind} {name} = …"


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
