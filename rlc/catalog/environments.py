"""Environment sources and wrappers. Ids and signatures of GEM come from its snapshot."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

from rlc.catalog.records import Args, Builtin, Param, Signature, as_float
from rlc.plan.tree import (
    MAX_TURNS,
    STEP_TIMEOUT,
    EnvPlan,
    RewardPlan,
    RolloutsPlan,
    StepPlan,
)
from rlc.record import evolve

_PATH = os.path.join(os.path.dirname(__file__), "data", "gem.json")
_AT_LEAST_ONE = {"max_turns", "size", "max_tests", "max_workers"}

# Templates by name: the whole prompt around an observation (texts: rlc.envs.templates).
TEMPLATES = ("qwen3_game", "qwen3_general", "no")


@cache
def gem_snapshot() -> Any:
    """Written by ``python -m rlc.catalog.snapshot``."""
    with open(_PATH, encoding="utf-8") as file:
        return json.load(file)


def gem_ids() -> tuple[str, ...]:
    return tuple(gem_snapshot()["environments"])


def gem_facts(env_id: str) -> dict[str, Any]:
    """``class, args, chars`` of an environment with its class's ``params, multi_turn, needs``."""
    facts = gem_snapshot()
    environment = facts["environments"][env_id]
    return {**facts["classes"][environment["class"]], **environment}


def measured(env: EnvPlan) -> dict[str, int]:
    """Mean characters of an environment's ``prompt`` and ``observation``, where measured."""
    facts = gem_facts(env.id) if env.source == "gem" else {}
    return dict(facts.get("chars") or {})


def needs(env: EnvPlan) -> list[str]:
    """What an environment needs beyond its library."""
    return list(gem_facts(env.id)["needs"]) if env.source == "gem" else []


def is_broken(env_id: str) -> bool:
    """Whether the library itself cannot make it: nothing is missing, and yet it fails."""
    facts = gem_facts(env_id)
    return facts["chars"] is None and not facts["needs"]


def library() -> str:
    """``gem-llm 0.1.0``, the version that the snapshot was taken of."""
    return f"{gem_snapshot()['library']} {gem_snapshot()['version']}"


def _gem_signature(env_id: str) -> Signature:
    """The keyword arguments that an environment honours, with its registered values as defaults."""
    facts = gem_facts(env_id)
    params = tuple(
        Param(
            name,
            spec["type"],
            f"argument of {facts['class'].split(':')[1]}",
            facts["args"].get(name, spec["default"]),
            low=1 if name in _AT_LEAST_ONE else None,
            optional=spec.get("optional", False),
            default_of="the environment",
        )
        for name, spec in facts["params"].items()
    )
    reason = None
    if env_id.startswith("rg:"):
        reason = "GEM hands reasoning-gym no other argument: it would be dropped without a word"
    return Signature(params, reason)


# What an environment has until its stage decides: the stage's batch and sampling, and the rewards
# as they come.
UNDECIDED = RolloutsPlan(None, None, None, None, None)  # type: ignore[arg-type]
AS_THEY_COME = RewardPlan("turns", None, None, None)


def _environment(
    source: str, name: str, env_id: Any, args: dict[str, Any], max_turns: int | None
) -> EnvPlan:
    return EnvPlan(name, 1.0, source, env_id, args, (), max_turns, UNDECIDED, AS_THEY_COME)


def _gem(args: Args) -> EnvPlan:
    env_id = args.id.data
    own = {name: value for name, value in args.values.items() if name != "id"}
    return _environment("gem", _name_of(env_id), args.id, own, _max_turns(env_id, own))


def _max_turns(env_id: str, args: dict[str, Any]) -> Any:
    """1 for a single-turn environment; None where a game draws its size, and its limit with it."""
    if not gem_facts(env_id)["multi_turn"]:
        return 1
    if any(value.data is None for value in args.values()):
        return None
    return args["max_turns"]


def _name_of(env_id: str, after: str = ":") -> str:
    """``game:Sudoku-v0-easy`` as a name of the language: ``Sudoku_v0_easy``."""
    last = env_id.partition(after)[2] or env_id
    return "".join(char if char.isalnum() else "_" for char in last)


def _openreward(args: Args) -> EnvPlan:
    own = {name: value for name, value in args.values.items() if name != "id"}
    return _environment("openreward", _name_of(args.id.data, "/"), args.id, own, None)


def _problems(args: Args) -> EnvPlan:
    own = {name: value for name, value in args.values.items() if name != "data"}
    return _environment(
        "problems", os.path.basename(args.data.data).partition(".")[0], args.data, own, 1
    )


def _factory(source: str, args: Args) -> EnvPlan:
    """An environment that Python code makes: ``module:attr``."""
    name = "builder" if source == "cookbook" else "factory"
    own = {each: value for each, value in args.values.items() if each != name}
    target = args.values[name]
    return _environment(source, _name_of(target.data), target, own, None)


def _workers(args: Args) -> StepPlan:
    """An executor of one's own is a kind of its own."""
    own = args.executor.data is not None
    kind = evolve(args.executor, type="word", data="executor") if own else args.kind
    return StepPlan("workers", {**args.values, "kind": kind})


_SPLIT = Param("split", "string", "which part of the tasks", "train")
_SHUFFLE = Param("shuffle", "bool", "in an order drawn from the seed, else as they come", True)
_SAMPLES = Param(
    "samples", "int", "the first n tasks, after shuffling; none: all", None, low=1, optional=True
)
_ATTRIBUTE = (r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", "my_package.tasks:make")
_SETS = ("train", "test")
_ARGS = Param("args", "record", "its keyword arguments", {})

# Data sets that `problems()` knows by name: tasks of each split, as published.
PROBLEM_SETS: dict[str, dict[str, int | None]] = {
    "countdown": {"train": None, "test": 1_024, "stage2": None, "stage3": None},
    "countdown_tasks": {"train": 489_340, "test": 1_024},
    "gsm8k": {"train": 7_473, "test": 1_319},
    "math": {"train": 12_000, "test": 500},
}

SOURCES = (
    Builtin(
        "gem",
        "env",
        "an environment of GEM, by its id",
        _gem,
        (Param("id", "string", "id in GEM's registry", choices=gem_ids, noun="GEM environment"),),
        more=_gem_signature,
    ),
    Builtin(
        "openreward",
        "env",
        "an environment of OpenReward, played with its tools",
        _openreward,
        (
            Param(
                "id", "string", "its name", form=(r"[\w.-]+/[\w.-]+", "GeneralReasoning/WhoDunIt")
            ),
            _SPLIT,
            _SHUFFLE,
            _SAMPLES,
            Param("variant", "string", "one of several that share the name", None, optional=True),
            Param("base_url", "string", "a server of one's own", None, optional=True),
            Param(
                "secrets",
                "list",
                "names of variables of the environment that it needs, such as OPENAI_API_KEY",
                [],
            ),
            Param("tools", "list", "names of the tools that the model may use; none: all", []),
            Param("sessions", "int", "most sessions open at a time", 64, low=1, high=100_000),
        ),
    ),
    Builtin(
        "problems",
        "env",
        "questions with answers to check: a data set by name, or the rows of a file",
        _problems,
        (
            Param(
                "data",
                "string",
                "a known data set, or a .jsonl, .csv or .parquet file",
                choices=tuple(PROBLEM_SETS),
                noun="set of problems",
                form=(r".+\.(jsonl|csv|parquet)", "problems.jsonl"),
            ),
            _SPLIT,
            Param("question", "string", "field of the question", "question"),
            Param("answer", "string", "field of the answer", "answer"),
            Param(
                "grader",
                "word",
                "how an answer is checked",
                "math",
                choices=("math", "exact", "numeric", "regex", "countdown", "python"),
                noun="grader",
            ),
            Param(
                "grade_with",
                "string",
                "the function of `grader = python`",
                None,
                form=_ATTRIBUTE,
                optional=True,
                only_if=("grader", ("python",)),
            ),
            Param(
                "pattern",
                "string",
                "finds the answer for `grader = regex`",
                None,
                optional=True,
                only_if=("grader", ("regex",)),
            ),
            _SHUFFLE,
            _SAMPLES,
            Param(
                "few_shot",
                "string",
                "a .jsonl file of solved problems that are put before each question",
                None,
                form=(r".+\.jsonl", "few_shot.jsonl"),
                optional=True,
            ),
            Param("suffix", "string", "added to each question", ""),
            Param(
                "format_coef",
                "float",
                "reward = format_coef (format − 1) + correct",
                0.1,
                low=0,
                high=10,
            ),
        ),
    ),
    Builtin(
        "cookbook",
        "env",
        "an RLDatasetBuilder of tinker-cookbook",
        lambda args: _factory("cookbook", args),
        (
            Param("builder", "string", "where the builder is", form=_ATTRIBUTE),
            _ARGS,
            Param("split", "string", "its training or its test set", "train", choices=_SETS),
            Param("self_play", "bool", "members of a group play with each other", False),
        ),
    ),
    Builtin(
        "python",
        "env",
        "an environment of one's own: a factory that gives groups of episodes",
        lambda args: _factory("python", args),
        (Param("factory", "string", "where the factory is", form=_ATTRIBUTE), _ARGS),
    ),
)

# A pipeline's order: tools act on the environment, an observation wrapper writes the history,
# tracking counts, and one prompt maker decides what the model sees.
TOOLS = ("python_tool", "search_tool")
OBSERVATIONS = ("concat", "concat_with_action", "concat_chat", "concat_chat_on_reset")
# What decides how the model sees an observation: an environment of GEM has one of them.
PROMPT_MAKERS = ("chat", "template")

_TEMPLATE_LAST = "`template()` fills in what the model sees last, so it comes after"
_ONE_HISTORY = "one wrapper keeps the history: one of the `concat` ones in the text, or `chat()`"
_TOOL_FIRST = "a tool acts on the environment itself, so it comes before what the model sees of it"
_GAME_LAST = "`solver_judge()` turns the whole task into a game, so it comes last"
_ONCE = "once is enough"


def _before(names: tuple[str, ...], reason: str) -> dict[str, str]:
    return dict.fromkeys(names, reason)


def _tool(name: str, doc: str, *params: Param) -> Builtin:
    later = (*OBSERVATIONS, "track", *PROMPT_MAKERS)
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
    )


def _observation(name: str, doc: str) -> Builtin:
    return Builtin(
        name,
        "wrapper",
        doc,
        lambda _: StepPlan(name, {}),
        not_after={
            **_before((*OBSERVATIONS, "chat"), _ONE_HISTORY),
            "template": _TEMPLATE_LAST,
            "track": "tracking comes after the history",
            "solver_judge": _GAME_LAST,
        },
    )


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
    ),
    _observation(
        "concat",
        "each observation with all earlier ones before it; every turn is a prompt of its own",
    ),
    _observation(
        "concat_with_action", "like `concat()`, with the model's own actions between them"
    ),
    _observation("concat_chat", "the history as a chat, in the tokenizer's own chat template"),
    _observation(
        "concat_chat_on_reset",
        "the first observation as a chat, what follows appended to it as it comes",
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
                choices=TEMPLATES,
                noun="template",
                form=_PROMPT_FILE,
            ),
        ),
        not_after={
            "template": "a prompt has one template",
            "chat": "`chat()` already makes the prompt, with the model's renderer",
            "solver_judge": _GAME_LAST,
        },
    ),
    Builtin(
        "chat",
        "wrapper",
        "a chat through the model's renderer: each turn extends the tokens before it",
        lambda args: StepPlan("chat", {"instruction": args.instruction}),
        (Param("instruction", "string", "added to the first observation", ""),),
        not_after={
            **_before((*OBSERVATIONS, "chat"), _ONE_HISTORY),
            "template": "`chat()` makes the prompt itself, with the model's renderer",
            "solver_judge": _GAME_LAST,
        },
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
                optional=True,
            ),
            Param(
                "judge_prompt",
                "string",
                "a jinja2 file; none: the usual one",
                None,
                form=_PROMPT_FILE,
                optional=True,
            ),
        ),
        not_after={"solver_judge": _ONCE},
    ),
    Builtin(
        "rollouts",
        "wrapper",
        "how this environment's episodes are played, where it differs from the stage",
        lambda args: RolloutsPlan(
            **{n: as_float(v) if n.endswith("timeout") else v for n, v in args.values.items()}
        ),
        (
            Param("group", "int", "rollouts of each task", None, low=1, high=1_024, optional=True),
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
                form=_ATTRIBUTE,
                optional=True,
            ),
        ),
        not_after={"workers": _ONCE},
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
    ),
)


def max_turns(env: EnvPlan) -> int | None:
    """Most replies in an episode, tools included; None where unknown."""
    uses = sum(int(w.args["uses"]) for w in env.wrappers if w.name in TOOLS)
    limit = env.rollouts.max_turns
    if env.max_turns is None:
        return limit if limit < MAX_TURNS else None
    return min(env.max_turns + uses, limit)


def task_count(env: EnvPlan) -> int | None:
    """How many tasks an environment has; None where that is unknown, or there is no end."""
    samples = env.args.get("samples")
    if samples is not None:
        return int(samples)
    if env.source == "problems":
        return PROBLEM_SETS.get(env.id, {}).get(env.args["split"])
    return None
