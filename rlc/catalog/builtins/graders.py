"""Graders and judges: what says how good a reply is. Judges are models that go by a rubric."""

from __future__ import annotations

from typing import Any

from rlc.catalog.records import (
    BOX,
    TAG,
    Args,
    Builtin,
    GraderTraits,
    Param,
    WrapperTraits,
    as_float,
    builtin,
    code,
    count,
    number,
    optional,
    text,
    word,
)
from rlc.plan import (
    TEXT_FILE,
    ComparerPlan,
    EndpointPlan,
    EnvPlan,
    GraderPlan,
    JudgePlan,
    JudgingPlan,
    RewardModelPlan,
)
from rlc.records import evolve

# The metrics of graders that compare with the row's answer: of one, and of whether all find one.
CORRECT, FORMAT = "correct", "format"


def _compared(
    name: str,
    doc: str,
    *params: Param,
    marks: tuple[str, ...] = (),
    package: str | None = None,
    example: str = "",
) -> Builtin:
    """Return a grader that finds an answer in the reply and compares it with the row's."""
    return builtin(
        name,
        "grader",
        doc,
        lambda args: GraderPlan(CORRECT, 1.0, name, dict(args.values)),
        *params,
        word=not params,
        example=f'env = problems("sums.jsonl", grader = {example or name})',
        traits=GraderTraits(compares=True, marks=marks, package=package),
    )


def _function_name(args: Args) -> str:
    return str(args.function.data.rpartition(":")[2])


JUDGE_PROMPT = ("task", "reply", "rubric")  # variables of a template of the question
RUBRIC, IMPLICIT_REWARD, COMPARE_WITH = "rubric", "implicit_reward", "compare_with"


def _rubric(args: Args) -> JudgePlan:
    given = dict(args.values)
    scale = given.pop("scale")
    ends: list[Any] = list(scale.data) if len(scale.data) == 2 else [None, None]
    plain = [end if isinstance(end, int | float) and end is not True else None for end in ends]
    low, high = (
        evolve(scale, type="float", data=None if end is None else float(end)) for end in plain
    )
    given |= {name: as_float(given[name]) for name in ("timeout", "temperature")}
    return JudgePlan(name="judge", weight=1.0, low=low, high=high, **given)


def _implicit_reward(args: Args) -> RewardModelPlan:
    """Return the plan of a judge without the settings of its stage, which a check fills in."""
    return RewardModelPlan(IMPLICIT_REWARD, 1.0, args.stage, None, None, None)


def _endpoint(args: Args) -> EndpointPlan:
    prices = {name: as_float(args.values[name]) for name in ("prompt_price", "reply_price")}
    return EndpointPlan(**{**args.values, **prices})


def _judging(name: str, doc: str, *params: Param, example: str) -> Builtin:
    def build(args: Args) -> JudgingPlan:
        by: Any = args.values.get("by", "score")
        return JudgingPlan(name, args.judge, by, args.whole)

    return builtin(
        name,
        "wrapper",
        doc,
        build,
        Param("judge", "judge", "who judges; `0.5 *` before one is its weight", named=True),
        *params,
        Param("whole", "bool", "judge the whole conversation, not its last reply alone", False),
        not_after={"solver_judge": "a game has a judge of its own"},
        traits=WrapperTraits("judge"),
        example=example,
    )


GRADERS = (
    _judging(
        "judged",
        "adds what judges say of each episode to its reward",
        example='env = rows("prompts.jsonl") |> judged(rubric("rubric.md", model = big))',
    ),
    _judging(
        "compared",
        "adds how each episode of a group compares with the others, from 0 to 1",
        word(
            "by",
            "one ranking of all, or each pair in both orders",
            ("ranking", "pairwise"),
            "ranking",
        ),
        example=(
            'env = rows("prompts.jsonl")\n'
            '  |> compared(rubric("Which reply is clearer?", model = big), by = pairwise)'
        ),
    ),
    builtin(
        RUBRIC,
        "judge",
        "a model that scores replies by a rubric",
        _rubric,
        text("rubric", "a text, or a .md or .txt file", file=TEXT_FILE),
        Param(
            "model",
            "model",
            "who judges: a model, what a stage leaves, or an endpoint",
            also="endpoint",
        ),
        Param("scale", "list", "two numbers, the worst score and the best", [1, 10]),
        optional("criteria", "string", "field of each row with criteria of its own, besides"),
        optional(
            "prompt",
            "string",
            "a jinja2 file with the question; none: the usual one",
            form=(r".+\.(j2|jinja)", "judge.j2"),
            file=True,
            variables=JUDGE_PROMPT,
        ),
        number("temperature", "of its answers; 0: the most likely", 0.0, low=0, high=2),
        count("max_tokens", "longest answer", 512),
        count("attempts", "most questions until it answers in its form", 3, high=20),
        count("concurrency", "most questions at once", 32, high=4_096),
        Param("timeout", "duration", "longest wait for an answer", 300, above=0),
        example='env = rows("prompts.jsonl") |> judged(rubric("rubric.md", model = big))',
    ),
    builtin(
        IMPLICIT_REWARD,
        "judge",
        "what a `preference` stage has learnt, as a reward: how much likelier it has made a reply "
        "(arXiv 2305.18290, section 4)",
        _implicit_reward,
        Param("stage", "model", "the stage, whose loss compares with a reference"),
        formula=(
            "r = β (log p(reply) − log p_ref(reply)), over n for a loss of means",
            "known up to a number that is the same for all replies to a prompt",
        ),
        aliases="reward_model preference_model rm dpo_reward",
        example='env = rows("prompts.jsonl") |> judged(implicit_reward(align))',
    ),
    builtin(
        COMPARE_WITH,
        "judge",
        "a function of one's own, of two replies and the row, that says which reply is better",
        lambda args: ComparerPlan(_function_name(args), 1.0, args.function),
        code("function", "where it is", "comparison"),
        example=(
            'env = rows("prompts.jsonl")\n'
            '  |> compared(compare_with("rewards.py:shorter"), by = pairwise)'
        ),
    ),
    builtin(
        "endpoint",
        "endpoint",
        "a model behind OpenAI's chat completions, wherever it is",
        _endpoint,
        text("url", "its base", form=(r"https?://.+", "https://api.openai.com/v1")),
        text("model", "its name there"),
        optional(
            "key",
            "string",
            "the variable of the environment with its key; none: it needs none",
            form=(r"[A-Za-z_]\w*", "OPENAI_API_KEY"),
        ),
        optional("prompt_price", "money", "of a million tokens it reads; none: unknown", low=0),
        optional("reply_price", "money", "of a million tokens it writes; none: unknown", low=0),
        optional("context", "int", "tokens that it can hold; none: unknown", low=1),
        example=(
            'env = rows("prompts.jsonl") |> judged(rubric(\n'
            '  "rubric.md",\n'
            '  model = endpoint("https://api.openai.com/v1", model = "gpt-5", key = "KEY")\n'
            "))"
        ),
    ),
    _compared(
        "math",
        "the answer in `\\boxed{…}` or `<answer>` means the same, by math-verify",
        marks=(BOX, TAG),
        package="math-verify[antlr4_13_2]",
    ),
    _compared(
        "numeric",
        "the answer, else the last number of the reply (or of a prompt that it repeats), is the "
        "same number",
    ),
    _compared("exact", "the answer, else the whole reply, is the same text"),
    _compared(
        "regex",
        "what a pattern finds is the same text",
        text("pattern", "finds the answer: its first group, or all of it"),
        example='regex("Answer: (.+)")',
    ),
    _compared(
        "countdown", "the answer in `<answer>` uses each of the row's numbers once for its target"
    ),
    _compared(
        "cookbook_math",
        "the answer in `\\boxed{…}` is right for tinker-cookbook's `grade_answer`: the same text "
        "after normalising, or equal by SymPy",
        marks=(BOX,),
        package="tinker-cookbook[math-rl]",
    ),
    builtin(
        "grade_with",
        "grader",
        "a function of one's own, of the reply and the row",
        lambda args: GraderPlan(_function_name(args), 1.0, "grade_with", dict(args.values)),
        code("function", "where it is", "reward"),
        Param(
            "weights",
            "record",
            "what each of the numbers weighs that it returns by name; by default 1",
            {},
        ),
        hint="its own weight stands before it: `0.5 * grade_with(…)`",
        traits=GraderTraits(code=True),
        example=(
            'env = rows("prompts.jsonl", grader = {\n'
            '  right = grade_with("rewards.py:right")\n'
            '  brief = 0.2 * grade_with("rewards.py:brief")\n'
            "})"
        ),
    ),
)

_TRAITS: dict[str, GraderTraits] = {
    each.name: each.traits for each in GRADERS if each.kind == "grader"
}


def finds_answers(env: EnvPlan) -> bool:
    """Return whether a grader of an environment looks for an answer, which a reply may lack."""
    return any(_TRAITS[part.grader].compares for part in env.graders)


def marks_read(env: EnvPlan, able: tuple[str, ...]) -> tuple[str, ...]:
    """Return the only marks that an environment's graders, ``able`` to grade its rows, look in."""
    known = (_TRAITS[part.grader] for part in env.graders if not able or part.grader in able)
    return next((traits.marks for traits in known if traits.marks), ())
