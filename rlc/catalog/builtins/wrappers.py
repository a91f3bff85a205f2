"""Wrappers, the steps of a pipeline between an environment and the model."""

from __future__ import annotations

from attrs import evolve

from rlc.catalog.builtins.training import FORMER_GROUP_SIZES
from rlc.catalog.records import ATTRIBUTE, Args, Builtin, Param, as_float
from rlc.catalog.traits import WrapperTraits
from rlc.plan.environments import MAX_TURNS, STEP_TIMEOUT, RewardPlan, RolloutsPlan, StepPlan

# Templates by name: the whole prompt around an observation (texts: rlc.envs.templates), and
# whether it is written in ChatML, Qwen's chat markup.
TEMPLATES = {"qwen3_game": True, "qwen3_general": True, "no": False}

# A pipeline's order: tools act on the environment, an observation wrapper writes the history,
# tracking counts, and one prompt maker decides what the model sees.
_HISTORIES = ("concat", "concat_with_action", "concat_chat", "concat_chat_on_reset")

_TEMPLATE_LAST = "`template()` fills in what the model sees last, so it comes after"
_ONE_HISTORY = "one wrapper keeps the history: one of the `concat` ones in the text, or `chat()`"
_TOOL_FIRST = "a tool acts on the environment itself, so it comes before what the model sees of it"
_GAME_LAST = "`solver_judge()` turns the whole task into a game, so it comes last"
_ONCE = "once is enough"


def _before(names: tuple[str, ...], reason: str) -> dict[str, str]:
    return dict.fromkeys(names, reason)


def _tool(name: str, doc: str, *params: Param, server: str | None = None) -> Builtin:
    later = (*_HISTORIES, "track", "chat", "template")
    return Builtin(
        name,
        "wrapper",
        doc,
        lambda args: StepPlan(name, dict(args.values)),
        params,
        not_after={
            **_before(later, _TOOL_FIRST),
            name: _ONCE,
            "solver_judge": _GAME_LAST,
        },
        traits=WrapperTraits("tool", wraps="text", server=server),
    )


def _observation(name: str, doc: str, traits: WrapperTraits) -> Builtin:
    return Builtin(
        name,
        "wrapper",
        doc,
        lambda _: StepPlan(name, {}),
        not_after={
            **_before((*_HISTORIES, "chat"), _ONE_HISTORY),
            "template": _TEMPLATE_LAST,
            "track": "tracking comes after the history",
            "solver_judge": _GAME_LAST,
        },
        traits=traits,
    )


def _workers(args: Args) -> StepPlan:
    """Workers; an executor of the user's counts as a kind."""
    own = args.executor.data is not None
    kind = evolve(args.executor, type="word", data="executor") if own else args.kind
    return StepPlan("workers", {**args.values, "kind": kind})


def _rollouts(args: Args) -> RolloutsPlan:
    given = {n: as_float(v) if n.endswith("timeout") else v for n, v in args.values.items()}
    return RolloutsPlan(group=given.pop("group_size"), **given)


_USES = Param("uses", "int", "most calls in an episode", 5, low=1, high=1_000)
_PROMPT_FILE = (r".+\.(j2|jinja)", "prompt.j2")

WRAPPERS = (
    _tool(
        "python_tool",
        "the model may run Python code, in a process with limits; the network is open to it",
        Param("timeout", "duration", "longest run of one piece of code", 5, above=0),
        _USES,
        Param("reward_use", "float", "reward of each call", 0.05),
        Param("reward_success", "float", "reward of each call that works", 0.25),
        Param(
            "errors",
            "word",
            "what the model sees of an error",
            "full",
            choices=("full", "last_line"),
        ),
    ),
    _tool(
        "search_tool",
        "the model may search, on a server",
        Param(
            "url", "string", "the server", form=(r"https?://.+", "http://127.0.0.1:8000/retrieve")
        ),
        _USES,
        Param("top_k", "int", "passages that a search gives", 3, low=1, high=100),
        Param("timeout", "duration", "longest search", 5, above=0),
        server="url",
    ),
    _observation(
        "concat",
        "each observation with all earlier ones before it; every turn is a prompt of its own",
        WrapperTraits("history", wraps="text", history="observations", scripted=True),
    ),
    _observation(
        "concat_with_action",
        "like `concat()`, with the model's own actions between them",
        WrapperTraits("history", wraps="text", history="all"),
    ),
    _observation(
        "concat_chat",
        "the history as a chat, in the tokenizer's own chat template",
        WrapperTraits("history", wraps="text", history="all", chat_template=True),
    ),
    _observation(
        "concat_chat_on_reset",
        "the first observation as a chat, what follows appended to it as it comes",
        WrapperTraits("history", wraps="text", history="all", chat_template=True),
    ),
    Builtin(
        "track",
        "wrapper",
        "counts each episode's turns and rewards",
        lambda _: StepPlan("track", {}),
        not_after={
            "track": _ONCE,
            "template": _TEMPLATE_LAST,
            "chat": "`chat()` makes the prompt, so it comes after",
            "solver_judge": _GAME_LAST,
        },
        traits=WrapperTraits("tracking", wraps="text"),
    ),
    Builtin(
        "template",
        "wrapper",
        "the whole prompt around an observation",
        lambda args: StepPlan("template", {"name": args.name}),
        (
            Param(
                "name",
                "string",
                "name of a template, or a jinja2 file",
                choices=tuple(TEMPLATES),
                noun="template",
                form=_PROMPT_FILE,
                file=True,
            ),
        ),
        not_after={
            "template": "a prompt has one template",
            "chat": "`chat()` already makes the prompt, with the model's renderer",
            "solver_judge": _GAME_LAST,
        },
        traits=WrapperTraits("template", wraps="text", scripted=True),
    ),
    Builtin(
        "chat",
        "wrapper",
        "a chat through the model's renderer: each turn extends the tokens before it",
        lambda args: StepPlan("chat", {"instruction": args.instruction}),
        (Param("instruction", "string", "added to the first observation", ""),),
        not_after={
            **_before((*_HISTORIES, "chat"), _ONE_HISTORY),
            "template": "`chat()` makes the prompt itself, with the model's renderer",
            "solver_judge": _GAME_LAST,
        },
        traits=WrapperTraits("chat", history="all", scripted=True),
    ),
    Builtin(
        "solver_judge",
        "wrapper",
        "solvers answer a task, and a judge picks one of their answers; roles: solver, judge",
        lambda args: StepPlan("solver_judge", dict(args.values)),
        (
            Param("solvers", "int", "solvers of each task", 2, low=1, high=64),
            Param(
                "solver_prompt",
                "string",
                "a jinja2 file; none: the usual one",
                None,
                form=_PROMPT_FILE,
                file=True,
                optional=True,
            ),
            Param(
                "judge_prompt",
                "string",
                "a jinja2 file; none: the usual one",
                None,
                form=_PROMPT_FILE,
                file=True,
                optional=True,
            ),
        ),
        not_after={"solver_judge": _ONCE},
        traits=WrapperTraits("game"),
    ),
    Builtin(
        "rollouts",
        "wrapper",
        "how this environment's episodes are played, where it differs from the stage",
        _rollouts,
        (
            Param(
                "group_size",
                "int",
                "rollouts of each task",
                None,
                low=1,
                high=1_024,
                optional=True,
                formerly=FORMER_GROUP_SIZES,
            ),
            Param("temperature", "float", "of the sampling", None, above=0, high=10, optional=True),
            Param("max_tokens", "int", "longest reply", None, low=1, optional=True),
            Param(
                "max_failures",
                "int",
                "a group with more failed rollouts is left out; none: it never is",
                None,
                low=0,
                optional=True,
            ),
            Param("timeout", "duration", "longest episode", None, above=0, optional=True),
            Param(
                "turn_timeout",
                "duration",
                "longest turn: a reply with the step that follows",
                None,
                above=0,
                optional=True,
            ),
            Param(
                "step_timeout",
                "duration",
                "longest reset or step of the environment",
                int(STEP_TIMEOUT),
                above=0,
                optional=True,
            ),
            Param(
                "max_turns",
                "int",
                "an episode that has not ended by then is cut short",
                MAX_TURNS,
                low=1,
            ),
        ),
        traits=WrapperTraits("setting"),
    ),
    Builtin(
        "workers",
        "wrapper",
        "where an environment that blocks is played: in threads, in processes, or by an executor",
        _workers,
        (
            Param(
                "kind",
                "word",
                "threads share one interpreter; processes are for environments that compute a lot",
                "threads",
                choices=("threads", "processes"),
                noun="kind of workers",
                only_if=("executor", ("none",)),
            ),
            Param(
                "count",
                "int",
                "most calls at a time; none: what suits the machine",
                None,
                low=1,
                high=4_096,
                optional=True,
            ),
            Param(
                "executor",
                "string",
                "a function of one's own that makes a concurrent.futures executor (Ray, Dask …)",
                None,
                form=ATTRIBUTE,
                optional=True,
            ),
        ),
        not_after={"workers": _ONCE},
        traits=WrapperTraits("workers", wraps="blocks"),
    ),
    Builtin(
        "curriculum",
        "wrapper",
        "passes over tasks that were always solved, or never, when they were last played",
        lambda args: StepPlan("curriculum", dict(args.values)),
        (
            Param(
                "hopeless",
                "float",
                "at most this share of a task's rollouts solved it",
                0.0,
                low=0,
                high=1,
            ),
            Param(
                "solved",
                "float",
                "at least this share of a task's rollouts solved it",
                1.0,
                low=0,
                high=1,
            ),
            Param(
                "explore",
                "float",
                "share of those that are played all the same",
                0.1,
                low=0,
                high=1,
            ),
        ),
        not_after={"curriculum": _ONCE},
        traits=WrapperTraits("curriculum", wraps="numbered"),
    ),
    Builtin(
        "reward",
        "wrapper",
        "how the rewards of an episode's turns become its credit",
        lambda args: RewardPlan(args.reduce, args.nonterminal, args.low, args.high),
        (
            Param(
                "reduce",
                "word",
                "one number for the episode, or one for each of its turns",
                "sum",
                choices=("sum", "mean", "max", "min", "last", "turns"),
            ),
            Param(
                "nonterminal",
                "float",
                "added as a last reward if the episode did not end by itself",
                None,
                optional=True,
            ),
            Param("low", "float", "smallest credit", None, optional=True),
            Param("high", "float", "largest credit", None, optional=True),
        ),
        traits=WrapperTraits("setting"),
    ),
)
