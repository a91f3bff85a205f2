"""Environment sources, and the splits of their rows."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from rlc.catalog.builtins.graders import CORRECT, finds_answers, marks_read
from rlc.catalog.facts import (
    INCLUDED,
    ORACLES,
    TINY,
    gem_facts,
    gem_ids,
    gem_signature,
    is_broken,
    library,
)
from rlc.catalog.records import (
    BOX,
    Args,
    Builtin,
    EnvFacts,
    Key,
    Param,
    SourceTraits,
    builtin,
    code,
    count,
    number,
    optional,
    text,
    word,
)
from rlc.data import SEES, CodeKind
from rlc.plan import (
    HUB_DATASET,
    EnvPlan,
    GraderPlan,
    RewardPlan,
    RolloutsPlan,
    Split,
    base_split,
    hub_dataset,
)
from rlc.records import frozen

USUAL = ("train", "test")  # they may be written as words; there are others
_NAMED = (r".+", "validation")


def _part(part: str, doc: str, shown: str) -> Builtin:
    return builtin(
        part,
        "split",
        doc,
        lambda args: {"part": part, **args.values},
        number(
            "share",
            "how much of the rows",
            above=0,
            high=1,
            instead=f"a share is written `{part}(10%)`; `samples` or `n` limits the number of rows",
        ),
        word(
            "by",
            "what decides about a row: its place in the file, or the hash of what it asks, so that "
            "equal questions stay together wherever they stand",
            ("order", "hash"),
            "order",
        ),
        text("of", "the split that it is a part of", "train", choices=USUAL, form=_NAMED),
        example=f'env = problems("sums.jsonl", split = {part}({shown}))',
    )


def have_tasks_in_common(one: Split, other: Split) -> bool:
    """Return whether two splits of the same rows share any; two parts may exclude each other."""
    if base_split(one) != base_split(other):
        return False
    if isinstance(one, str) or isinstance(other, str) or one["by"] != other["by"]:
        return True
    return bool(one["part"] == other["part"] or one["share"] + other["share"] > 1 + 1e-9)


SPLITS = (
    _part("first", "the rows of a split up to a share of them", shown="90%"),
    _part("last", "the rows of a split that `first()` of the rest leaves", shown="10%"),
)

# For a source whose rows can be taken apart, and for one that only knows its splits by name.
SPLIT = Param("split", "split", "which part of the rows", "train", choices=USUAL, form=_NAMED)
SPLIT_NAME = text("split", "which part of the tasks", "train", choices=USUAL, form=_NAMED)


# Of an environment until its stage decides, by its batch and sampling; and the rewards as they are.
UNDECIDED = RolloutsPlan(None, None, None, None, None)  # type: ignore[arg-type]
AS_THEY_COME = RewardPlan("turns", None, None, None)


def source(
    name: str,
    doc: str,
    *params: Param,
    turns: Callable[[Args], Any] = lambda _: None,
    env_name: Callable[[Args], str] | None = None,
    **more: Any,
) -> Builtin:
    """Return a source of environments, whose id is its first argument. ``turns`` is the maximum of
    an episode and ``env_name`` the environment's name, by the arguments; by default its id."""

    def build(args: Args) -> EnvPlan:
        (_, env_id), *others = args.values.items()
        # What none names is no part of a plan: plans from before it could be are the same.
        own = {n: v for n, v in others if n not in (SECRETS, ROWS_OF_ENV) or v.data is not None}
        graders = own.pop(GRADER, ())
        called = env_name(args) if env_name else _name_of(env_id.data)
        settings = (turns(args), UNDECIDED, AS_THEY_COME, graders)
        return EnvPlan(called, 1.0, name, env_id, own, (), *settings)

    return builtin(name, "env", doc, build, *params, **more)


def _name_of(env_id: str) -> str:
    """Return ``game:Sudoku-v0-easy`` as a name of the language: ``Sudoku_v0_easy``."""
    last = re.split("[:/]", env_id, maxsplit=1)[-1]
    return "".join(char if char.isalnum() else "_" for char in last)


def _gem_turns(args: Args) -> Any:
    """Return 1 for a single-turn environment; None if a game samples its size and its limit."""
    if not gem_facts(args.id.data)["multi_turn"]:
        return 1
    return None if any(v.data is None for v in args.values.values()) else args.max_turns


SHUFFLE = Param("shuffle", "bool", "in an order drawn from the seed, else as they come", True)
TASK_LIMIT = optional("samples", "int", "the first n tasks, after shuffling; none: all", low=1)
ARGS = Param("args", "record", "its keyword arguments", {})
GRADER, FORMAT_COEF, SECRETS, ROWS_OF_ENV = "grader", 0.1, "secrets", "rows"
_GRADED_BY = "what rewards a reply; `0.5 *` before one is its weight"
DATA_FILE = r"(?!hub:).+\.(jsonl|json|csv|parquet|arrow)"
ROWS = rf"{DATA_FILE}|{HUB_DATASET}"
WHERE_ROWS_ARE = (
    "a .jsonl, .json, .csv, .parquet or .arrow file, or hub:org/name[@revision][/config]"
)
_ID = optional(
    "id", "string", "field of each row's id, kept with its rollouts; none: `id`", holds="id"
)
_REPLIED = word(
    "replied",
    "a prompt that ends with a reply of the assistant: an error, or cut before the reply",
    ("stop", "cut"),
    "stop",
)
_SUFFIX = text("suffix", "added to each question", "")


def function(name: str, kind: CodeKind, **more: Any) -> Param:
    """Return a parameter that names a function which is given what it asks for by name."""
    doc = f"where the function is; it asks by name for {', '.join(SEES[kind])}"
    return code(name, doc, kind, **more)


def _file_name(args: Args) -> str:
    """Return the name of an environment's file, or of its data set."""
    data: str = next(iter(args.values.values())).data
    if (dataset := hub_dataset(data)) is not None:
        return _name_of(dataset[0].partition("/")[2])
    return os.path.basename(data).partition(".")[0]


# The fields of a builder of tinker-cookbook for the name of the model, of the renderer, and for the
# size of a group.
COOKBOOK_MODEL = ("model_name_for_tokenizer", "model_name")
COOKBOOK_RENDERER = ("renderer_name",)
COOKBOOK_GROUP = ("group_size", "train_group_size", "test_group_size", "num_envs")
COOKBOOK_BATCHES = ("batch_size", "groups_per_batch")

OPENREWARD_KEY = Key("OPENREWARD_API_KEY", "for OpenReward's servers")


@frozen(eq=False)
class ProblemSet:
    """A data set that `problems()` knows by name. ``splits``: tasks of each split, as published;
    None: there is no end to them. ``needs``, ``graders`` and ``stand_in`` as in
    :class:`rlc.catalog.records.EnvFacts`."""

    splits: dict[str, int | None]
    graders: tuple[str, ...]
    needs: tuple[str, ...] = ("hub",)
    stand_in: str | None = None


_FORM = ("countdown", "grade_with")  # any expression that reaches the target is right
_TEXT = ("math", "exact", "regex", "cookbook_math", "grade_with")
PROBLEM_SETS = {
    "countdown": ProblemSet(
        {"train": None, "test": 1_024, "stage2": None, "stage3": None}, _FORM, ()
    ),
    "countdown_tasks": ProblemSet(
        {"train": 489_340, "test": 1_024, "stage2": 50_000, "stage3": 50_000},
        _FORM,
        stand_in="countdown",
    ),
    "gsm8k": ProblemSet({"train": 7_473, "test": 1_319}, (*_TEXT, "numeric")),
    "math": ProblemSet({"train": 12_000, "test": 500}, _TEXT),
}


def _gem_env(env: EnvPlan) -> EnvFacts:
    facts, name = gem_facts(env.id), env.id.partition("-v")[0]
    return EnvFacts(
        chars=facts["chars"] or {},
        tokens={TINY: facts["tiny"] or {}},
        needs=tuple(facts["needs"]),
        uncounted=True,
        oracle=name in ORACLES,
        penalty=("an invalid move", 0.1) if env.id.startswith("game:") else None,
        broken_in=library() if is_broken(env.id) else None,
        marks=(BOX,) if facts["boxed"] or env.args.get("extract_boxed") else (),
        endless="hub" not in facts["needs"],
        held_out=env.id.startswith("eval:") or env.args.get("split") == "test",
        included=name in INCLUDED,
    )


def _needs(env: EnvPlan) -> tuple[str, ...]:
    """Return what the rows of an environment are downloaded from, unless they are known by name."""
    return ("hub",) if hub_dataset(env.id) is not None else ()


def _problem_env(env: EnvPlan) -> EnvFacts:
    known, split = PROBLEM_SETS.get(env.id), env.args["split"]
    named, coef = base_split(split), env.args["format_coef"]
    tasks = known.splits.get(named) if known else None
    if not isinstance(split, str) and tasks is not None:
        from rlc.data import Part  # few recipes take parts

        tasks = Part(**split).count(tasks)
    endless = known is not None and known.splits.get(named, 0) is None
    graders = known.graders if known else ()
    return EnvFacts(
        needs=known.needs if known else _needs(env),
        splits=tuple(known.splits) if known else None,
        tasks=tasks,
        uncounted=endless,
        penalty=("a malformed answer", coef) if coef > 0 and finds_answers(env) else None,
        marks=marks_read(env, graders),
        graders=graders,
        endless=endless and env.args["samples"] is None,
        held_out=named == "test",
        ignores=("question", "answer") if known else (),
        stand_in=known.stand_in if known and isinstance(split, str) else None,
    )


SOURCES = (
    source(
        "gem",
        "an environment of GEM, by its id",
        text("id", "id in GEM's registry", choices=gem_ids, noun="GEM environment"),
        turns=_gem_turns,
        more=gem_signature,
        traits=SourceTraits(
            "text",
            package="gem-llm",
            extra="gem",
            unknown_turns="the game draws its own limit",
            boxed=True,
            scripted=True,
            facts=_gem_env,
        ),
        example='env = gem("game:GuessTheNumber-v0-easy") |> chat()',
    ),
    source(
        "openreward",
        "an environment of OpenReward, played with its tools",
        text("id", "its name", form=(r"[\w.-]+/[\w.-]+", "GeneralReasoning/WhoDunIt")),
        SPLIT_NAME,
        SHUFFLE,
        TASK_LIMIT,
        optional("variant", "string", "one of several that share the name"),
        optional("base_url", "string", "a server of one's own"),
        Param(
            "secrets",
            "list",
            "names of variables of the environment that it needs, such as OPENAI_API_KEY",
            [],
        ),
        Param("tools", "list", "names of the tools that the model may use; none: all", []),
        count("sessions", "most sessions open at a time", 64, high=100_000),
        traits=SourceTraits(
            "own",
            numbered=True,
            blocks=False,
            package="openreward",
            key=OPENREWARD_KEY,
            facts=lambda env: EnvFacts(
                uncounted=True,  # its server does, with the first episode
                held_out=env.args["split"] == "test",
            ),
        ),
        example='env = openreward("GeneralReasoning/WhoDunIt", split = "train", samples = 200)',
    ),
    source(
        "problems",
        "questions with answers to check: the rows of a file, or of a data set by its name",
        text(
            "data",
            f"a known data set, {WHERE_ROWS_ARE}",
            choices=tuple(PROBLEM_SETS),
            noun="set of problems",
            form=(ROWS, "problems.jsonl"),
            file=DATA_FILE,
        ),
        SPLIT,
        text(
            "question",
            "field of the question: text, or a list of messages",
            "question",
            holds="asked",
        ),
        text("answer", "field of the answer", "answer", holds="answer"),
        Param(
            GRADER,
            "grader",
            _GRADED_BY,
            (GraderPlan(CORRECT, 1.0, "math", {}),),
            named=True,
            folded={"python": ("grade_with", "grade_with"), "regex": ("pattern", "regex")},
        ),
        SHUFFLE,
        TASK_LIMIT,
        optional(
            "few_shot",
            "string",
            "a file of solved problems that are put before each question",
            form=(DATA_FILE, "few_shot.jsonl"),
            file=True,
        ),
        _SUFFIX,
        _REPLIED,
        _ID,
        number(
            "format_coef",
            "taken off where a grader that compares answers finds none",
            FORMAT_COEF,
            low=0,
            high=10,
        ),
        turns=lambda _: 1,
        env_name=_file_name,
        traits=SourceTraits(
            "chat", numbered=True, graded=True, answers=True, scripted=True, facts=_problem_env
        ),
        example='env = problems("sums.jsonl", grader = math, split = first(90%))',
    ),
    source(
        "rows",
        "prompts from the rows of a file or data set, rewarded by functions of one's own",
        text("path", WHERE_ROWS_ARE, form=(ROWS, "problems.jsonl"), file=DATA_FILE),
        text("prompt", "field of the prompt: text, or a list of messages", "prompt", holds="asked"),
        Param(GRADER, "grader", _GRADED_BY, (), named=True),
        SPLIT,
        SHUFFLE,
        TASK_LIMIT,
        _SUFFIX,
        _REPLIED,
        _ID,
        turns=lambda _: 1,
        env_name=_file_name,
        traits=SourceTraits(
            "chat",
            numbered=True,
            graded=True,
            scripted=True,
            facts=lambda env: EnvFacts(needs=_needs(env)),
        ),
        example='env = rows("prompts.jsonl", grader = grade_with("rewards.py:reward"))',
    ),
    source(
        "cookbook",
        "a data set of tinker-cookbook: an RLDatasetBuilder, an RLDataset, a function that returns "
        "one, or a class of environments, such as a ProblemEnv",
        code("builder", "where the builder, data set, function or class is"),
        ARGS,
        optional(
            ROWS_OF_ENV,
            "string",
            "for a class of environments: the rows whose fields are its arguments; none: one "
            f"problem, of `args`. {WHERE_ROWS_ARE[0].upper()}{WHERE_ROWS_ARE[1:]}",
            form=(ROWS, "problems.jsonl"),
            file=DATA_FILE,
        ),
        text("split", "its training or its test set", "train", choices=USUAL),
        Param("self_play", "bool", "members of a group play with each other", False),
        traits=SourceTraits(
            "own",
            tokens=True,
            blocks=False,
            package="tinker-cookbook",
            code=True,
            scripted=True,
            decides={
                **dict.fromkeys((*COOKBOOK_MODEL, *COOKBOOK_RENDERER), "model"),
                **dict.fromkeys(COOKBOOK_GROUP, "groups"),
            },
            offers=("renderer", "tokenizer", *COOKBOOK_BATCHES),
            fixed_groups=True,
            facts=lambda env: EnvFacts(held_out=env.args["split"] == "test"),
        ),
        example=(
            "env = cookbook(\n"
            '  "tinker_cookbook.recipes.math_rl.arithmetic_env:ArithmeticDatasetBuilder",\n'
            "  args = { n_batches = 100 },\n"
            ")"
        ),
    ),
    source(
        "python",
        "an environment of one's own: a factory that gives groups of episodes",
        code("factory", "where the factory is"),
        ARGS,
        traits=SourceTraits("chat", blocks=None, code=True, scripted=True),
        example='env = python("digits.py:make", args = { size = 5 })',
    ),
)
