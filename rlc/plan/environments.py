"""The records of an environment in a plan: its source, wrappers, rollouts, reward and judges."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from rlc.plan.parts import ModelState, Sampling
from rlc.records import Record, evolve, field_names, frozen

if TYPE_CHECKING:
    from rlc.algo import Program

_S = TypeVar("_S", bound=Sampling)

STEP_TIMEOUT = 120.0  # seconds that a step of an environment may take where nothing else is said
SOLVED = 1.0  # the reward from which on a task counts as solved
FORM_TRIES = 5  # of a reply to an agent that has to have a form
MAX_TURNS = 1_000  # of an episode where nothing else is said: it ends what would never end
ANY = "any"  # of a seat: each in turn


@frozen
class StepPlan(Record):
    """One stage of an ``env`` pipeline: ``concat()``, ``chat(instruction = "…")``."""

    name: str
    args: dict[str, Any]


@frozen
class RolloutsPlan(Record):
    """How an environment's episodes are played.

    Seconds: ``timeout`` bounds one episode, ``turn_timeout`` a reply with the step that follows,
    ``step_timeout`` one reset or step of the environment. None: no bound. Waiting for a free place
    counts for none of them.
    """

    group: int  # rollouts of each task
    temperature: float
    max_tokens: int  # of one reply
    max_failures: int | None  # a group with more failed rollouts is left out; None: never
    timeout: float | None
    turn_timeout: float | None = None
    step_timeout: float | None = STEP_TIMEOUT
    max_turns: int = MAX_TURNS  # an episode that has not ended by then is cut short
    stop: tuple[str, ...] = ()  # texts that end a reply

    def sampling(self, stage: _S) -> _S:
        """Return how replies are sampled: as the stage says, but for what is said here."""
        return evolve(stage, **{name: getattr(self, name) for name in OF_EACH_ENVIRONMENT})

    def sampled(self, sampling: Sampling) -> RolloutsPlan:
        """Return these rollouts with their replies sampled in another way."""
        return evolve(self, **{name: getattr(sampling, name) for name in OF_EACH_ENVIRONMENT})


OF_EACH_ENVIRONMENT = tuple(  # the settings of sampling that each environment may decide
    one for one in field_names(Sampling) if one in field_names(RolloutsPlan)
)


@frozen
class RewardPlan(Record):
    """From the rewards of an episode's turns to what it is credited with.

    ``nonterminal``, where given, is appended as a last reward if the episode did not end by
    itself; ``reduce`` then makes one number, or ``turns`` keeps one for each turn; ``shaped`` makes
    another of the one number; ``low`` and ``high`` limit the result.
    """

    reduce: Literal["turns", "sum", "mean", "max", "min", "last"]
    nonterminal: float | None
    low: float | None
    high: float | None
    shaped: Program | None = None


@frozen
class GraderPlan(Record):
    """One part of the reward of a reply: ``weight`` times what a grader says of it.

    ``name`` is that of its metric, ``grader`` that of the builtin.
    """

    name: str
    weight: float
    grader: str
    args: dict[str, Any]


TEXT_FILE = r"[^\n]+\.(md|txt)"  # where a text may stand too: a rubric, a system message


def is_text_file(text: str) -> bool:
    """Return whether a text of a plan is the path of a file with the text."""
    return re.fullmatch(TEXT_FILE, text) is not None


@frozen
class EndpointPlan(Record):
    """A model behind OpenAI's chat completions at ``url``. ``key`` is the variable of the
    environment with its key (None: it needs none); prices are USD per million tokens, None if they
    are unknown, as ``context`` is, in tokens."""

    url: str
    model: str
    key: str | None
    prompt_price: float | None
    reply_price: float | None
    context: int | None


Asked = ModelState | EndpointPlan


@frozen
class JudgePlan(Record):
    """A model that judges by a rubric: a text, or the path of one.

    Its scores from ``low`` (worst) to ``high`` (best) count as 0 to 1. ``criteria`` is the field of
    a row with criteria of its own, ``prompt`` the template of the question, None for the usual one.
    It is asked up to ``attempts`` times until it answers in its form; ``concurrency`` questions are
    open at once, each for up to ``timeout`` seconds. ``stand_in``: of a rehearsal, whose model
    cannot judge: what it does not say is drawn.
    """

    name: str
    weight: float
    rubric: str
    model: Asked
    low: float
    high: float
    criteria: str | None
    prompt: str | None
    temperature: float
    max_tokens: int
    attempts: int
    concurrency: int
    timeout: float
    stand_in: bool = False


@frozen
class RewardModelPlan(Record):
    """What a preference stage has learnt, as a judge: ``beta`` times the logprob of a reply under
    its weights (``model``) less that under the ``reference`` of its loss, with ``mean`` over the
    number of the reply's tokens. A check fills in what the stage says, None until then."""

    name: str
    weight: float
    model: ModelState
    reference: ModelState | None
    beta: float | None
    mean: bool | None


@frozen
class ComparerPlan(Record):
    """A ``function`` of the user's own as a judge of pairs: it says which of two replies is
    better."""

    name: str
    weight: float
    function: str


AnyJudge = JudgePlan | RewardModelPlan | ComparerPlan


@frozen
class JudgingPlan(Record):
    """What judges an environment's episodes: ``judged`` each alone, with a ``score``, or
    ``compared`` those of a group, by their ``ranking`` or in pairs. With ``whole`` the whole
    conversation is judged, else its last reply."""

    name: str
    judges: tuple[AnyJudge, ...]
    by: Literal["score", "ranking", "pairwise"]
    whole: bool


@frozen
class PastPlan(Record):
    """A stage's own weights, as they were after the last step that is a multiple of ``every``."""

    every: int


@frozen
class ScriptPlan(Record):
    """An opponent that is a program, the builtin ``player``: with a ``function`` of the user's own,
    that, called with ``args`` beside what the seat sees."""

    player: str
    function: str | None
    args: dict[str, Any]


OUTCOMES = ("win", "draw", "loss")  # of a match, for a seat: metrics, one of which is 1


@frozen
class PlayPlan(Record):
    """Who plays the seats of a game.

    With an ``opponent``, the stage's own ``past``, or a ``script``, it has all seats but those of
    the role ``seat``, which alone are trained; ``any``: one seat of a match is, each in turn. With
    none of them the policy that is trained has all seats. A model samples its replies with
    ``temperature`` and at most ``max_tokens``; None: as the policy does.
    """

    opponent: ModelState | None
    past: PastPlan | None
    seat: str | None
    temperature: float | None
    max_tokens: int | None
    script: ScriptPlan | None = None

    @property
    def is_self_play(self) -> bool:
        return self.opponent is None and self.past is None and self.script is None


@frozen
class AgentPlan(Record):
    """A program that owns its loop: the function ``program``, called with ``args`` as keyword
    arguments, or a ``command``, run in ``folder`` with the ``secrets`` of the environment that it
    names. Up to ``concurrency`` run at once. Where there are no graders its ``reward`` is what it
    gives as its ``result``, or the ``exit_status`` of a command.
    """

    program: str | None
    command: list[str] | None
    args: dict[str, Any]
    folder: str
    reward: Literal["result", "exit_status"]
    concurrency: int
    secrets: list[str] | None = None

    @property
    def called(self) -> str:
        """Return what is called, for people."""
        return self.program or " ".join(self.command or ())


@frozen
class EnvPlan(Record):
    """One environment of a mixture. ``args`` are the source's own keyword arguments; ``graders``
    is empty where the environment rewards by itself; ``judging`` adds what judges say.
    ``play``: who plays a game of several seats. ``agent``: the program that works on its tasks.
    """

    name: str
    weight: float
    source: str
    id: str
    args: dict[str, Any]
    wrappers: tuple[StepPlan, ...]
    max_turns: int | None  # what the environment itself allows; None if unknown
    rollouts: RolloutsPlan
    reward: RewardPlan
    graders: tuple[GraderPlan, ...] = ()
    play: PlayPlan | None = None
    judging: tuple[JudgingPlan, ...] = ()
    agent: AgentPlan | None = None

    @property
    def played(self) -> str:
        """Return what is played, in a few words: ``gem game:Sudoku-v0``."""
        by = "" if self.agent is None else f"agent {self.agent.called} on "
        return f"{by}{self.source} {self.id}"
