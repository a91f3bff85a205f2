"""Entries of the catalogue: parameters, builtins with their traits, declarations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

from rlc.plan import EnvPlan, LossPlan
from rlc.records import evolve, field, frozen

if TYPE_CHECKING:
    from rlc.algo import Program
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
    allowed values, each a ``noun``. ``form``: a pattern and an example; a value of that form is
    allowed too, and required if there are no choices. ``file``: a value of the form, or one that
    matches ``file``, if that is a pattern, is the path of a file or folder from the folder of its
    recipe (:mod:`rlc.plan.paths`); ``folders``: of folders, or a pattern of them. ``many`` takes a
    list of values, ``named`` a record; an ``optional`` one also the word ``none``. ``default_of``:
    the owner of the default, if not the builtin. ``only_if``: another argument, and the values with
    which alone this one has an effect; ``implied``: another argument, and the default of this one
    if that is given. ``formerly``: earlier names, still accepted, with a warning. ``folded``: words
    that it took together with another argument, now an argument of a builtin: word -> (argument,
    builtin). ``instead``: advice for a wrong value. ``holds``: the contents of the field of rows
    that its value names. ``code``: how the Python code is called that its value names; ``calls``:
    what is called in the package or Python file that it names. ``variables``: exactly those of the
    template that it names. ``also``: another kind of which a call, or a name, is allowed.
    ``suggests``: likely names, if others are allowed too.
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
        """Return whether a value is written without quotes: it is a choice, and not of the form."""
        if not isinstance(value, str) or not value.isidentifier():
            return False
        is_open = self.form is not None and re.fullmatch(self.form[0], value) is not None
        return not is_open and value in self.all_choices()

    def names_file(self, value: object) -> TypeGuard[str]:
        """Return whether a value of this parameter is the path of a file or folder."""
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
    """Return a parameter that names Python code; a ``factory`` is called with ``args``."""
    form = (r"(.+\.py|[A-Za-z_][\w.]*):[A-Za-z_]\w*", "rewards.py:reward")
    return Param(name, "string", doc, form=form, file=r".+\.py:\w+", code=kind, **more)


def share(name: str, doc: str, default: float | None, **more: Any) -> Param:
    """Return a parameter for a number from 0 to 1."""
    return Param(name, "float", doc, default, low=0, high=1, **more)


def word(
    name: str,
    doc: str,
    choices: tuple[str, ...] | Callable[[], tuple[str, ...]],
    default: Any = REQUIRED,
    **more: Any,
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

    ``build`` makes the plan record from the arguments, an :class:`Args`. ``more`` returns the
    parameters that depend on the first argument. ``not_after`` maps a step of the same pipeline to
    the reason why this one cannot follow it. A ``word`` is written without parentheses. ``hint``:
    for an argument that it does not have. ``traits``: what others need to know of it, one class a
    kind; :mod:`rlc.catalog.index` has a typed function for each. ``example``: fields of a
    declaration with it, if its usage is not enough (:mod:`rlc.catalog.search`).
    """

    name: str
    kind: str
    doc: str
    build: Callable[[Args], Any]
    params: tuple[Param, ...] = ()
    formula: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    more: Callable[[str], Signature] | None = None
    not_after: Mapping[str, str] = field(factory=dict)
    word: bool = False
    hint: str | None = None
    traits: Any = None
    aliases: str = ""  # its names in other libraries, for suggestions
    example: str = ""

    def formulas(self) -> tuple[str, ...]:
        """Return the lines of its formula; none if it has none."""
        return self.formula() if callable(self.formula) else self.formula

    def usage(self) -> str:
        """Return the shortest way to write it, with required arguments: ``adam(learning_rate)``."""
        if self.word:
            return self.name
        return f"{self.name}({', '.join(param.name for param in self.params if param.required)})"


def builtin(
    name: str, kind: str, doc: str, build: Callable[[Args], Any], *params: Param, **more: Any
) -> Builtin:
    """Return a builtin with its parameters one after the other."""
    return Builtin(name, kind, doc, build, params, **more)


class Args:
    """The arguments of one call as attributes, each a value with its origin. A ``build`` reads
    ``.data`` only to decide something: what it puts into a record keeps its origin."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None


def as_float(value: Any) -> Any:
    """Return a value with its origin, as a float: most durations are written as whole numbers."""
    return value if value.data is None else evolve(value, data=float(value.data))


@frozen(eq=False)
class Kind:
    """A kind of thing that builtins make.

    ``step``: the kind of its pipeline stages, ``start``: what a pipeline may begin with. ``plain``
    maps types of plain values to the argument that one of them alone stands for: ``$60`` as a
    budget is ``limit(usd = $60)``. ``as_is``: the type of plain values that are of the kind
    themselves: a split is also a name. Nothing declared can stand there, so declarations may have
    the names of its builtins; nor where a kind stands ``apart``, in one field of one declaration.
    ``also``: another kind that is allowed. ``several``: an example of more than one, if allowed.
    ``named``: it has the name of its declaration in the plan. ``nameable``: it can be declared.
    ``weighted``: a number before one is its weight, `0.5 * one`. ``before_then``: the kind that may
    stand before it, with the word `then` between them.
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

    A ``reusable`` one may have parameters, an ``open`` one fields of any names. ``noun``: what it
    declares, if that is not a kind of value. ``traits``: of a stage. ``example``: fields of a
    block, or the whole of another declaration.
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
        """Return how a declaration of that name is written."""
        if self.form is not None:
            return self.form
        value, block = f"{self.kind} {name} = …", f"{self.kind} {name} {{ … }}"
        return block if self.is_block else f"{value} or {block}" if self.open else value


@frozen
class WatchedMetric:
    """A metric that a stage is about, ``of`` one of its environments or seats if that is not empty.
    ``rises``: more of it is better; None: no value is. ``parts``: the same of each environment."""

    name: str
    key: str
    rises: bool | None = True
    of: str = ""
    parts: tuple[WatchedMetric, ...] = ()

    @property
    def label(self) -> str:
        """Return its name, with what it is of."""
        return f"{self.name} {self.of}".rstrip()

    @property
    def held_out(self) -> str:
        """Return the metric of the same over examples that are held out."""
        return f"heldout/{self.key.removesuffix('/mean')}"


@frozen(eq=False)
class StageTraits:
    """Traits of a kind of stage. ``watched``: what it is about, the main metric first; none if it
    does not train. ``trains_by``: how it trains, if not by RL."""

    watched: tuple[WatchedMetric, ...] = ()
    trains_by: str | None = None


@frozen(eq=False)
class LossTraits:
    """Traits of a loss.

    ``config``: parameter -> the service's key in ``loss_fn_config``. ``clip``: a token outside the
    clip range loses its gradient, or its weight is bounded; None: it has no clip. ``bounds``: the
    parameters with the smallest and the largest ratio of that range. ``takes_stale``: it is stable
    with rollouts several steps old. ``pull``: the setting that scales a term without the advantage
    in it; None: the loss is linear in the advantages, up to their sign. ``usual_pull``: what the
    embedded engine takes where a request names no such setting; None: it is required there.
    ``reaches_prompt``: the service adds that term on every token of a datum.
    ``per_sequence``: one ratio for all tokens, of those that ``sequence_ratio_mask`` marks.
    ``sampler_logprobs``: it compares with the sampler; otherwise the advantages are ``weights``.
    ``recorded``: its datums name the sampled sequence behind every token, and the service has to
    record what it samples. ``published``: Tinker's definition is known; otherwise the formula is
    that of the embedded engine and of ``rlc serve``. ``reference``: it reads the logprobs of the
    stage's reference. ``weighted``: it is not of degree one in the advantages, so the weight of a
    sequence is an input of its own. ``forward``: it reads the trainer's logprobs before the
    gradient, in a forward pass. ``unbounded``: a recipe's own loss without its bounds on what
    depends on ``logp``; None if it has none.
    """

    config: Mapping[str, str] = field(factory=dict)
    clip: Literal["gradient", "weight"] | None = None
    bounds: tuple[str, str] | None = None
    takes_stale: bool = False
    pull: str | None = None
    usual_pull: float | None = None
    reaches_prompt: bool = False
    per_sequence: bool = False
    sampler_logprobs: bool = True
    recorded: bool = False
    published: bool = True
    reference: bool = False
    weighted: bool = False
    forward: bool = False
    unbounded: Program | None = None

    def range_of(self, loss: LossPlan) -> tuple[float, float] | None:
        """Return the smallest and the largest ratio that count; None without a clip."""
        if self.bounds is None:
            return None
        low, high = (loss.config[self.config[name]] for name in self.bounds)
        return low, high

    def ratios(self, config: Mapping[str, float]) -> tuple[list[float], list[float]]:
        """Return ratios to try the loss with on the tokens of two datums: below, inside and above
        the clip range, or around 1 without one. With one ratio for each: below, and above."""
        low, high = config.values() if self.clip else (0.8, 1.2)
        below, above = low / 2 if low > 0 else 0.25, high * 1.5
        if self.per_sequence:
            return [below], [above]
        ratios = [below, (low + high) / 2, 1.0, above]
        return ratios, ratios[::-1]


@frozen(eq=False)
class PreferenceTraits:
    """Traits of a loss over preferences, by what it reads. ``reference``: logprobs of a reference.
    ``labelled``: single replies with labels, otherwise pairs. ``mean``: the score of a reply is
    taken per token. ``ratings``: the inputs that the rows of the data have."""

    reference: bool
    labelled: bool
    mean: bool
    ratings: tuple[str, ...] = ()


@frozen(eq=False)
class TeacherTraits:
    """Traits of a teacher. ``targets``: its top-k tokens at each place are targets of a loss of
    their own; otherwise it scores the sampled tokens, and adds the scores to their advantages."""

    targets: bool = False


@frozen(eq=False)
class AggregateTraits:
    """Traits of an aggregation. ``over``: one weight is shared by the sequences of a batch, of a
    task, or none of them; None: every token weighs 1, so no batch has to be known.
    ``token_weight``: the expected weight of a token in the gradient, from the sequences and sampled
    tokens of an update and the argument ``length``."""

    over: Literal["batch", "task", "sequence"] | None
    token_weight: Callable[[float, float, int | None], float]

    @property
    def uniform(self) -> bool:
        """Return whether all sequences have one weight, so that any loss can be weighted."""
        return self.over in ("batch", None)


@frozen(eq=False)
class Key:
    """A variable of the environment with a key; ``instead``: what will do without it."""

    variable: str
    purpose: str = ""
    instead: str = ""


@frozen(eq=False)
class EnvFacts:
    """What is known of one environment before it is made.

    ``chars``: characters of its ``prompt`` and ``observation``, if measured, in the mean and of the
    longest; ``tokens``: those in tokens, by the name of a vocabulary. ``repeats``: so many of the
    last replies of all seats are in an observation, too. ``needs``: what it downloads when it is
    made (``hub``, ``nltk``). ``splits``: the names of its splits; None if unknown. ``tasks``: their
    number; None if unknown; ``uncounted``: it does not count them when it is made either.
    ``oracle``: there is a player that knows its answers. ``penalty``: a reason to lower a reward,
    and by how much. ``broken_in``: the library that registers it and cannot make it. ``marks``: it
    reads answers in these only, which its own prompt does not ask for. ``graders``: those that can
    tell its right answers; empty: all. ``endless``: no task is played twice. ``held_out``: its
    tasks are for tests. ``lists_moves``: a game lists the legal moves; None: only the game itself
    shows it. ``ignores``: arguments of its source without an effect on it. ``included``: rlc plays
    it without the package of its source. ``stand_in``: another of its source that is made on this
    machine, for rehearsals.
    """

    chars: Mapping[str, Sequence[int]] = field(factory=dict)
    tokens: Mapping[str, Mapping[str, Sequence[int]]] = field(factory=dict)
    repeats: int = 0
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
    included: bool = False
    stand_in: str | None = None


@frozen(eq=False)
class SourceTraits:
    """Traits of the environments of a source.

    ``prompts``: bare ``text``, of which wrappers make prompts; a ``chat`` through the model's
    renderer, with `chat()` or without it; or prompts of its ``own``, which are ``tokens`` where rlc
    does not render its messages. ``numbered``: its tasks have
    permanent numbers. ``blocks``: its calls block, so workers make them; None if that depends on
    the environment. ``package`` is installed with rlc's ``extra``. ``key`` is needed unless the
    environment has a ``base_url``. ``code``: its id names Python code, or, ``tasksets``, a module
    that lists what it has; ``decides``: its parameters that other parts of the recipe decide, name
    -> part; ``offers``: those that are given to what needs them. ``graded``: graders reward its
    replies;
    ``answers``: its rows have answers to compare with. ``fixed_groups``: it may have groups of one
    size only. ``unknown_turns``: why the number of turns may be unknown. ``boxed``: it reads
    answers from LaTeX's box. ``scripted``: `rlc emit` writes scripts that play it. ``seats``: the
    roles of the seats of one of its games; None: it has no games of several. ``facts``: what is
    known of one of its environments.
    """

    prompts: Literal["text", "chat", "own"]
    tokens: bool = False
    numbered: bool = False
    blocks: bool | None = True
    package: str | None = None
    extra: str | None = None
    key: Key | None = None
    code: bool = False
    tasksets: bool = False
    decides: Mapping[str, str] = field(factory=dict)
    offers: tuple[str, ...] = ()
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
    """Traits of an opponent that is a program. ``needs_moves``: it plays games that list the legal
    moves; ``games``: the games of TextArena that it knows; None if it plays any."""

    needs_moves: bool = False
    games: tuple[str, ...] | None = None


@frozen(eq=False)
class DataTraits:
    """Traits of data to imitate. ``decides``: as of :class:`SourceTraits`."""

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
    """Traits of a wrapper.

    ``wraps``: the sources that it applies to: with bare ``text``, with ``chats`` through the
    model's renderer, or with calls that block (``blocks``). ``history``: a prompt has ``all`` of
    the episode so far, or its ``observations``; None: the latest one. ``chat_template``: it needs
    that of the tokenizer. ``server``: the argument with the address of its server. ``scripted``:
    `rlc emit` can write it. ``asks``: the marks around an answer that it tells the model to use,
    unless its argument ``prompt`` is given. ``package`` is installed with rlc's ``extra``;
    ``needed_with``: only if this argument has this value. ``roles``: of a game; the last decides
    whether a task is solved.
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
        """Return the package that it needs with these arguments, and rlc's extra with it."""
        if self.package is None or self.extra is None:
            return None
        key, value = self.needed_with or ("", None)
        return None if args.get(key) != value else (self.package, self.extra)


@frozen(eq=False)
class GraderTraits:
    """Traits of a grader. ``compares``: it finds an answer in the reply, or none, and compares it
    with that of the row; ``marks``: it looks in these only. ``code``: its first argument names a
    function of the user's own. ``package``: the one that it needs, as pip calls it."""

    compares: bool = False
    marks: tuple[str, ...] = ()
    code: bool = False
    package: str | None = None


@frozen(eq=False)
class MetricTraits:
    """Traits of a metric of evaluations. ``share``: from 0 to 1. ``of_games``: it counts wins."""

    share: bool = True
    of_games: bool = False


@frozen(eq=False)
class TrackerTraits:
    """Traits of a tracker. ``sends``: what it writes where, with ``{stage}`` for the stage's name.
    ``source``: it takes the episodes of that source's environments. ``scripted``: scripts of
    `rlc emit` send their metrics there."""

    package: str
    sends: str
    key: Key | None = None
    source: str | None = None
    scripted: bool = False
