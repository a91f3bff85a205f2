"""Wrappers, the steps of a pipeline between an environment and the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlc.catalog.builtins.sources import ARGS, function
from rlc.catalog.builtins.training import CLUSTER, GROUP_SIZE, RAY, STOP
from rlc.catalog.records import (
    BOX,
    TAG,
    Args,
    Builtin,
    Param,
    WrapperTraits,
    as_float,
    builtin,
    code,
    count,
    number,
    optional,
    share,
    text,
    word,
)
from rlc.plan import MAX_TURNS, STEP_TIMEOUT, RewardPlan, RolloutsPlan, StepPlan
from rlc.records import evolve, frozen


@frozen(eq=False)
class Template:
    """A prompt around an observation that is known by name (its text: rlc.chat.prompts), with
    ``chatml`` in Qwen's chat markup. ``asks``: as of a wrapper."""

    chatml: bool = False
    asks: tuple[str, ...] = ()


TEMPLATES = {
    "qwen3_game": Template(chatml=True, asks=(BOX,)),
    "qwen3_general": Template(chatml=True, asks=(BOX,)),
    "no": Template(),
}

# A pipeline's order: tools act on the environment, an observation wrapper writes the history,
# tracking counts, and one prompt maker decides what the model sees.
_HISTORIES = ("concat", "concat_with_action", "concat_chat", "concat_chat_on_reset")

_TEMPLATE_LAST = "`template()` fills in what the model sees last, so it comes after"
_ONE_HISTORY = "one wrapper keeps the history: one of the `concat` ones in the text, or `chat()`"
_TOOL_FIRST = "a tool acts on the environment itself, so it comes before what the model sees of it"
_GAME_LAST = "`solver_judge()` turns the whole task into a game, so it comes last"
_ONCE = "once is enough"


def _wrapper(
    name: str,
    doc: str,
    traits: WrapperTraits,
    *params: Param,
    build: Callable[[Args], StepPlan | RolloutsPlan | RewardPlan] | None = None,
    before: Mapping[str, str] | None = None,
    **more: Any,
) -> Builtin:
    """Return a wrapper: by default a step with all its arguments, of which a pipeline has one. What
    comes ``before`` others, with the reasons, comes before a game too."""
    build = build or (lambda args: StepPlan(name, dict(args.values)))
    not_after = {name: _ONCE}
    if before is not None:
        not_after |= {**before, "solver_judge": _GAME_LAST}
    own = {"not_after": not_after, "traits": traits, **more}
    return builtin(name, "wrapper", doc, build, *params, **own)


def _tool(
    name: str, doc: str, asks: str, *params: Param, server: str | None = None, example: str = ""
) -> Builtin:
    before = dict.fromkeys((*_HISTORIES, "track", "chat", "template"), _TOOL_FIRST)
    traits = WrapperTraits("tool", wraps="text", server=server, scripted=True, asks=(asks,))
    return _wrapper(name, doc, traits, *params, before=before, example=example)


def _observation(name: str, doc: str, traits: WrapperTraits) -> Builtin:
    before = {
        **dict.fromkeys((*_HISTORIES, "chat"), _ONE_HISTORY),
        "template": _TEMPLATE_LAST,
        "track": "tracking comes after the history",
    }
    example = f'env = gem("game:Sudoku-v0-easy") |> {name}() |> template(qwen3_game)'
    return _wrapper(name, doc, traits, before=before, example=example)


def _workers(args: Args) -> StepPlan:
    """Return a step of workers; an executor of the user's counts as a kind."""
    own = args.executor.data is not None
    kind = evolve(args.executor, type="word", data="executor") if own else args.kind
    of_cluster = {param.name for param in _OF_CLUSTER} if kind.data != RAY else set()
    kept = {name: value for name, value in args.values.items() if name not in of_cluster}
    return StepPlan("workers", {**kept, "kind": kind})


def _curriculum(args: Args) -> StepPlan:
    """Return a step with a function that weighs tasks, or with limits of what it passes over."""
    names = ("by", "args") if args.by.data is not None else ("hopeless", "solved", "explore")
    kept = {name: args.values[name] for name in names}
    return StepPlan("curriculum", kept | ({"args": args.args} if args.args.data else {}))


def _rollouts(args: Args) -> RolloutsPlan:
    given = {n: as_float(v) if n.endswith("timeout") else v for n, v in args.values.items()}
    return RolloutsPlan(group=given.pop("group_size"), **given)


_UNWEIGHED = ("by", ("none",))  # with which alone the limits of a curriculum have an effect
_OF_CLUSTER = tuple(evolve(param, only_if=("kind", (RAY,))) for param in CLUSTER)
_USES = count("uses", "most calls in an episode", 5, high=1_000)
_PROMPT_FILE: dict[str, Any] = {"form": (r".+\.(j2|jinja)", "prompt.j2"), "file": True}
_USUAL_PROMPT = "a jinja2 file; none: the usual one"
# What templates are given.
OBSERVED, ASKED, JUDGED = ("observation",), ("problem",), ("problem", "solutions")

WRAPPERS = (
    _tool(
        "python_tool",
        "the model may run Python code, in a process with limits; the network is open to it",
        BOX,
        Param("timeout", "duration", "longest run of one piece of code", 5, above=0),
        _USES,
        number("reward_use", "reward of each call", 0.05),
        number("reward_success", "reward of each call that works", 0.25),
        word("errors", "what the model sees of an error", ("full", "last_line"), "full"),
        example=(
            'env = gem("math:Math12K")\n'
            "  |> python_tool(timeout = 5s, uses = 3)\n"
            "  |> concat_chat()\n"
            "  |> template(qwen3_general)"
        ),
    ),
    _tool(
        "search_tool",
        "the model may search, on a server",
        TAG,
        text("url", "the server", form=(r"https?://.+", "http://127.0.0.1:8000/retrieve")),
        _USES,
        count("top_k", "passages that a search gives", 3, high=100),
        Param("timeout", "duration", "longest search", 5, above=0),
        server="url",
        example=(
            'env = gem("qa:HotpotQA")\n'
            '  |> search_tool("http://127.0.0.1:8000/retrieve")\n'
            "  |> concat_chat()\n"
            "  |> template(qwen3_general)"
        ),
    ),
    _wrapper(
        "mcp_tools",
        "the model may call the tools of an MCP server",
        WrapperTraits("server_tools", wraps="chats", server="server", package="mcp", extra="mcp"),
        text(
            "server",
            "a command that starts it, a Python file, or an address of streamable HTTP",
            form=(r".+", "uvx mcp-server-time"),
            file=r"\S+\.py",
        ),
        Param("tools", "list", "names of the tools that the model may use; none: all", []),
        _USES,
        Param("timeout", "duration", "longest call", 30, above=0),
        word(
            "per",
            "who shares a server: all episodes, or none (`episode`, for tools with a state)",
            ("worker", "episode"),
            "worker",
        ),
        Param("secrets", "list", "names of variables of the environment that it is given", []),
        before={"template": "tools are shown and called in a chat, through the model's renderer"},
        example=(
            'env = rows("prompts.jsonl", grader = grade_with("rewards.py:reward"))\n'
            '  |> mcp_tools("uvx mcp-server-time", uses = 4)'
        ),
    ),
    _observation(
        "concat",
        "each observation with all earlier ones before it; every turn is a prompt of its own",
        WrapperTraits("history", wraps="text", history="observations", scripted=True),
    ),
    _observation(
        "concat_with_action",
        "like `concat()`, with the model's own actions between them",
        WrapperTraits("history", wraps="text", history="all", scripted=True),
    ),
    _observation(
        "concat_chat",
        "the history as a chat, in the tokenizer's own chat template",
        WrapperTraits("history", wraps="text", history="all", chat_template=True, scripted=True),
    ),
    _observation(
        "concat_chat_on_reset",
        "the first observation as a chat, what follows appended to it as it comes",
        WrapperTraits("history", wraps="text", history="all", chat_template=True),
    ),
    _wrapper(
        "track",
        "counts each episode's turns and rewards",
        WrapperTraits("tracking", wraps="text", scripted=True),
        before={
            "template": _TEMPLATE_LAST,
            "chat": "`chat()` makes the prompt, so it comes after",
        },
        example='env = gem("game:Sudoku-v0-easy") |> track() |> chat()',
    ),
    _wrapper(
        "template",
        "the whole prompt around an observation",
        WrapperTraits("template", wraps="text", scripted=True),
        text(
            "name",
            "name of a template, or a jinja2 file",
            choices=tuple(TEMPLATES),
            noun="template",
            variables=OBSERVED,
            **_PROMPT_FILE,
        ),
        before={
            "template": "a prompt has one template",
            "chat": "`chat()` already makes the prompt, with the model's renderer",
        },
        example='env = gem("math:Math12K") |> template(qwen3_general)',
    ),
    _wrapper(
        "chat",
        "a chat through the model's renderer",
        WrapperTraits("chat", history="all", scripted=True),
        text("instruction", "added to the first observation", ""),
        text("system", "a system message, for prompts that have none of their own", ""),
        word(
            "history",
            "what later prompts show of a reply: its sampled tokens, thinking included, so that an "
            "episode is one sequence, or what the model's template makes of it",
            ("sampled", "template"),
            "sampled",
        ),
        before={
            **dict.fromkeys((*_HISTORIES, "chat"), _ONE_HISTORY),
            "template": "`chat()` makes the prompt itself, with the model's renderer",
        },
        example='env = gem("rg:spell_backward") |> chat(instruction = "Answer in \\\\boxed{}.")',
    ),
    _wrapper(
        "solver_judge",
        "solvers answer a task, and a judge picks one of their answers; roles: solver, judge",
        WrapperTraits("game", asks=(TAG, BOX), prompt="solver_prompt", roles=("solver", "judge")),
        count("solvers", "solvers of each task", 2, high=64),
        *(
            optional(name, "string", _USUAL_PROMPT, variables=variables, **_PROMPT_FILE)
            for name, variables in (("solver_prompt", ASKED), ("judge_prompt", JUDGED))
        ),
        example=(
            "env       = problems(countdown, grader = countdown) |> solver_judge(solvers = 2)\n"
            "advantage = grpo(scope = role)"
        ),
    ),
    _wrapper(
        "rollouts",
        "how this environment's episodes are played, where it differs from the stage",
        WrapperTraits("setting"),
        evolve(GROUP_SIZE, default=None, optional=True),
        optional("temperature", "float", "of the sampling", above=0, high=10),
        optional("max_tokens", "int", "longest reply", low=1),
        optional(
            "max_failures",
            "int",
            "a group with more failed rollouts is left out; none: it never is",
            low=0,
        ),
        optional("timeout", "duration", "longest episode", above=0),
        optional(
            "turn_timeout", "duration", "longest turn: a reply with the step that follows", above=0
        ),
        Param(
            "step_timeout",
            "duration",
            "longest reset or step of the environment",
            int(STEP_TIMEOUT),
            above=0,
            optional=True,
        ),
        count("max_turns", "an episode that has not ended by then is cut short", MAX_TURNS),
        evolve(STOP, default=None, optional=True, doc="texts that end a reply, which keeps them"),
        build=_rollouts,
        not_after={},
        example=(
            'env = gem("game:Sudoku-v0-easy")\n'
            "  |> chat()\n"
            "  |> rollouts(group_size = 16, timeout = 10m)"
        ),
    ),
    _wrapper(
        "workers",
        "where an environment that blocks is played: in threads, in processes, on a Ray cluster or "
        "by an executor",
        WrapperTraits(
            "workers", wraps="blocks", package="ray", extra="ray", needed_with=("kind", RAY)
        ),
        word(
            "kind",
            "threads share one interpreter; processes and the actors of ray are for environments "
            "that compute a lot",
            ("threads", "processes", RAY),
            "threads",
            noun="kind of workers",
            only_if=("executor", ("none",)),
        ),
        optional(
            "count", "int", "most calls at a time; none: what suits the machine", low=1, high=4_096
        ),
        code(
            "executor",
            "a function of one's own that makes a concurrent.futures executor (Dask …)",
            "executor",
            default=None,
            optional=True,
        ),
        *_OF_CLUSTER,
        build=_workers,
        example='env = python("digits.py:make") |> workers(processes, count = 8)',
    ),
    _wrapper(
        "curriculum",
        "passes over tasks that were always solved, or never, when they were last played, or draws "
        "tasks by weights that a function of one's own gives them",
        WrapperTraits("curriculum", scripted=True),
        share(
            "hopeless", "at most this share of a task's rollouts solved it", 0.0, only_if=_UNWEIGHED
        ),
        share(
            "solved", "at least this share of a task's rollouts solved it", 1.0, only_if=_UNWEIGHED
        ),
        share("explore", "share of those that are played all the same", 0.1, only_if=_UNWEIGHED),
        function("by", "weights", default=None, optional=True),
        ARGS,
        build=_curriculum,
        example='env = problems("sums.jsonl", grader = math) |> curriculum(explore = 0.2)',
    ),
    _wrapper(
        "reward",
        "how the rewards of an episode's turns become its credit",
        WrapperTraits("setting"),
        word(
            "reduce",
            "one number for the episode, or one for each of its turns",
            ("sum", "mean", "max", "min", "last", "turns"),
            "sum",
            instead="or an expression such as `total - 0.001 * tokens`",
        ),
        optional(
            "nonterminal", "float", "added as a last reward if the episode did not end by itself"
        ),
        optional("low", "float", "smallest credit"),
        optional("high", "float", "largest credit"),
        optional(
            "shaped",
            "expression",
            "the credit, from the `total`, its components by name, `tokens`, `turns`, `truncated`, "
            "and statistics of these `over = group`; it may stand first, without its name",
            only_if=("reduce", ("sum", "mean", "max", "min", "last")),
        ),
        build=lambda args: RewardPlan(**args.values),
        not_after={},
        example='env = gem("game:Sudoku-v0-easy") |> chat() |> reward(sum, low = 0, high = 1)',
    ),
)
