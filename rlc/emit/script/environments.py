"""The environments of a stage, as the expressions that open and show them."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from attrs import field, frozen

from rlc.algo import reward_function
from rlc.catalog import (
    COOKBOOK_BATCHES,
    COOKBOOK_GROUP,
    COOKBOOK_MODEL,
    COOKBOOK_RENDERER,
    chat_history_of,
    code_of,
    is_chat,
    max_turns,
    source_traits,
    with_role,
    wrapper_traits,
)
from rlc.chat import load_template
from rlc.data import (
    OWN,
    Code,
    DataError,
    lacking,
    load_attribute,
    module_file,
    parameter_names,
    signature_of,
)
from rlc.emit.script.literals import CallText, Expression, given, literal, named, written
from rlc.emit.script.stitch import code_of as code_of_module
from rlc.plan import (
    EnvPlan,
    RewardPlan,
    Rollouts,
    Split,
    Training,
    base_split,
    hub_dataset,
    located,
)

# What builders of the cookbook are given where they need it; groups are taken one by one.
OFFERS = {"renderer": "get_renderer(RENDERER, tokenizer)", "tokenizer": "tokenizer"}
OFFERS |= dict.fromkeys(COOKBOOK_BATCHES, "1")


def is_known_set(name: str) -> bool:
    """Return whether a function reads the problems of that name."""
    return f"rows_of_{name}" in code_of_module("rlc.data.problems").definitions


def has_grade(grader: str) -> bool:
    """Return whether a function grades replies as a grader of that name does."""
    homes = ("rlc.emit.pieces.grading", "rlc.data.grading.graders")
    return any(f"graded_{grader}" in code_of_module(home).definitions for home in homes)


@frozen
class OpeningLines:
    """What the function that opens environments does first."""

    recipe: str
    folder: str  # of the script
    lines: list[str] = field(factory=list)

    def file(self, path: str) -> str:
        """Return the expression of a file that the plan names."""
        return f"HERE / {literal(os.path.relpath(located(path, self.recipe), self.folder or '.'))}"

    def own(self, target: str) -> str:
        """Import what ``module:attr`` names, from beside the recipe too; return its name."""
        module, _, name = target.rpartition(":")
        folder, module = os.path.split(module)
        if not module.startswith("tinker_cookbook."):
            self.add(f"sys.path.append(str({self.file(folder or '.')}))")
        self.add(f"from {module.removesuffix('.py')} import {name}")
        return name

    def written(self) -> Iterator[str]:
        """Yield the lines with blank ones behind imports, and around functions."""
        before = "renderer"  # what stands before them
        for line in (*self.lines, ""):
            if before.startswith("from ") and line and not line.startswith("from "):
                yield ""
            if line or (before and self.lines):
                yield f"    {line}" if line else ""
            before = line

    def add(self, line: str) -> None:
        if line not in self.lines:
            self.lines.append(line)

    def rows(self, path: str, split: Split | None, by: str, count: int | None = None) -> Expression:
        """Return the expression of the rows of a split of a file or data set."""
        name = [] if split is None else [literal(base_split(split))]
        if (hub := hub_dataset(path)) is not None:
            dataset, revision, config = hub
            of = literal(f"{dataset}/{config}" if config else dataset)
            rows = CallText("published", [of, *name, *([literal(revision)] if revision else [])])
        elif is_known_set(path):
            rows = CallText(f"rows_of_{path}", name)
        else:
            rows = CallText("read_rows", [self.file(path), *name])
        if not (split is None or isinstance(split, str)):
            share = Fraction(split["share"]).limit_denominator(10**9)
            bounds = (Fraction(0), share) if split["part"] == "first" else (1 - share, Fraction(1))
            shares = (f"Fraction({b.numerator}, {b.denominator})" for b in bounds)
            hashed = split["by"] == "hash"
            start = "part_by_hash" if hashed else "part"
            rows = CallText(start, [rows, *shares, *([literal(by)] if hashed else [])])
        return rows if count is None else f"{rows}[:{literal(count)}]"

    def built(self, code: Code, decided: Mapping[str, str], split: str, waits: str = "") -> str:
        """Build the data sets of a builder of the cookbook, with what the recipe decides; return
        the name of the one that is read. ``waits`` stands before its call."""
        name, (names, required) = self.own(code.target), parameters_of(code.target)
        usual = dict.fromkeys(COOKBOOK_MODEL, "tokenizer.name_or_path")
        usual |= dict.fromkeys(COOKBOOK_RENDERER, "RENDERER")
        known = {key: text for key, text in {**usual, **decided}.items() if key in names}
        needed = [one for one in required if one not in {**code.args, **known}]
        known |= {key: OFFERS[key] for key in needed if key in code.offered}
        more = [f"{key}={text}" for key, text in known.items()]
        sets = "train, _" if split == "train" else "_, test"
        call = CallText(f"{sets} = {waits}{name}", [*given(code.args), *more])
        self.add(f"{written(call, 4, 2)}()")
        return split


def parameters_of(target: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return the parameters of a builder, and those without a default: by the fields that a class
    declares, where what it imports is not installed here. Raise DataError if it is not found."""
    try:
        made = load_attribute(target)
    except DataError:
        module, _, name = target.rpartition(":")
        if (file := module_file(module, [])) is None:
            raise
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        fields = [
            (field.target.id, field.value)
            for node in classes
            for field in node.body
            if node.name == name
            and isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
        ]
        if not fields:
            raise
        return [name for name, _ in fields], [name for name, value in fields if value is None]
    return parameter_names(made), lacking(signature_of(made), {})


_GOING_ON = "Tokens(tokenizer, goes_on=True)"


def environments(stage: Training, recipe: str, folder: str) -> Iterator[str]:
    """Yield the function that opens the environments of a stage."""
    source, opening = stage.of(Rollouts), OpeningLines(recipe, folder)
    envs = source.envs
    shared = {"top_p": source.sampling.top_p, "top_k": source.sampling.top_k}
    shared = {name: one for name, one in shared.items() if one not in (1.0, -1)}
    made = [CallText("Env", _env(env, opening, shared, len(envs) > 1)) for env in envs]
    yield "async def environments(tokenizer: Any) -> list[Env]:"
    if any(is_chat(env) for env in envs):
        yield "    renderer = get_renderer(RENDERER, tokenizer)"
    yield from opening.written()
    yield f"    return {written(CallText('', made, '[]'), 4, 7)}"


def _env(
    env: EnvPlan, opening: OpeningLines, shared: Mapping[str, Any], several: bool
) -> Iterator[Expression]:
    own = env.rollouts
    yield literal(env.name)
    yield from [f"weight={literal(env.weight)}"] if several else []
    yield f"group={literal(own.group)}"
    params = {"max_tokens": own.max_tokens, "temperature": own.temperature, **shared}
    yield named("params=", CallText("types.SamplingParams", given(params)))
    tasks, curriculum = _tasks(env, opening), with_role(env, "curriculum")
    if curriculum is not None:
        tasks = CallText("Curriculum", [literal(env.name), tasks, *given(curriculum.args)])
    yield named("tasks=", tasks)
    yield named("prompts=lambda: ", _prompts(env))
    yield from _credit(env, opening)


def is_summed(plan: RewardPlan) -> bool:
    """Return whether the rewards of turns count as they are."""
    others = plan.nonterminal, plan.low, plan.high, plan.shaped
    return plan.reduce in ("turns", "sum") and others == (None, None, None, None)


def _credit(env: EnvPlan, opening: OpeningLines) -> Iterator[Expression]:
    """Yield the argument that says what the rewards of an environment count, where not all do."""
    plan = env.reward
    how = {"nonterminal": plan.nonterminal, "low": plan.low, "high": plan.high}
    more = [*given({name: value for name, value in how.items() if value is not None})]
    if plan.shaped is not None:
        shaped = f"shaped_{env.name}"
        opening.lines.extend(["", *reward_function(shaped, plan.shaped), ""])
        more.append(f"shaped={shaped}")
    if not is_summed(plan):
        call = CallText("credited", ["group", literal(plan.reduce), *more])
        yield named("credit=lambda group: ", call)


def _prompts(env: EnvPlan) -> Expression:
    if source_traits(env.source).prompts == "own":
        return "Tokens(tokenizer)" if chat_history_of(env) == "template" else _GOING_ON
    if not is_chat(env):
        wrapper = with_role(env, "template")
        text = load_template(wrapper.args["name"] if wrapper else "no")("{observation}")
        return CallText("Text", ["tokenizer", literal(text)])
    chat = with_role(env, "chat")
    said = (chat.args if chat else {}).items()
    begins = {name: text for name, text in said if text and name in ("instruction", "system")}
    return CallText("Question" if max_turns(env) == 1 else "Chat", ["renderer", *given(begins)])


def _gem(env: EnvPlan) -> Expression:
    arguments: list[Expression] = [literal(env.id)]
    inside: Expression = "env"
    for wrapper in env.wrappers:
        if wrapper_traits(wrapper.name).role == "tool":
            inside = _with_tool(inside, wrapper.args)
        elif wrapper_traits(wrapper.name).role == "history":
            traits = wrapper_traits(wrapper.name)
            of = {"include_action": traits.history == "all"}
            of |= {"include_chat_template": traits.chat_template}
            chat = ["tokenizer=tokenizer"] if traits.chat_template else []
            inside = CallText("ObservationWrapper", [inside, *given(of), *chat])
    if inside != "env":
        arguments.append(named("wrapped=lambda env: ", inside))
    if with_role(env, "history") is not None:
        arguments.append("bare=False")
    return CallText("Gem", [*arguments, *given(env.args)])


def _with_tool(inside: Expression, args: Mapping[str, Any]) -> Expression:
    if "url" not in args:  # it runs code
        known = {"timeout": args["timeout"], "keep_error_last_line": args["errors"] == "last_line"}
        tool = CallText("PythonCodeTool", given(known))
    else:
        known = {"search_url": args["url"], "topk": args["top_k"], "timeout": args["timeout"]}
        tool = CallText("SearchTool", given(known))
    paid = {
        "tool_reward": args.get("reward_use", 0.0),
        "tool_success_reward": args.get("reward_success", 0.0),
        "max_tool_uses": args["uses"],
    }
    return CallText("ToolEnvWrapper", [inside, CallText("", [tool], "[]"), *given(paid)])


def _problems(env: EnvPlan, opening: OpeningLines) -> Expression:
    args = env.args
    name, suffix = args.get("question") or args["prompt"], args["suffix"]
    made, split = "Problems", args["split"]
    if env.id == "countdown" and split != "test" and not isinstance(split, dict):
        made = "Problems" if args["samples"] else "Endless"
        rows: Expression = f"lambda seed: problem({literal(split)}, seed)"
        if args["samples"]:
            rows = (
                f"[problem({literal(split)}, seed) for seed in range({literal(args['samples'])})]"
            )
        args = {**args, "samples": None}
    else:
        rows = opening.rows(env.id, split, name)
    if env.id != "countdown" and any(one.grader == "countdown" for one in env.graders):
        complete = f"completed(['countdown'], row, {literal(name)}, {literal(args['answer'])})"
        rows = f"[{complete} for row in {rows}]"
    if (samples := args["samples"]) is not None and args["shuffle"]:
        opening.add(f"rows = {rows}")
        rows = f"[rows[at] for at in permutation(0, 0, len(rows))[:{literal(samples)}]]"
    elif samples is not None:
        rows = f"{rows}[:{literal(samples)}]"
    grade = f"grade_{env.name}"
    opening.lines.extend(["", *_grade(env, grade, opening), ""])
    shown = {"suffix": suffix} if suffix else {}
    shown |= {"cut": True} if args["replied"] == "cut" else {}
    asked = named("lambda row: ", CallText("asked", ["row", literal(name), *given(shown)]))
    arguments = [literal(env.name), rows, asked, grade]
    arguments += [] if args["shuffle"] else ["shuffle=False"]
    if args.get("few_shot"):
        read = f"read_rows({opening.file(args['few_shot'])})"
        before = CallText("solved", [read, literal(args["answer"]), literal(name), literal(suffix)])
        arguments.append(named("before=", before))
    return CallText(made, arguments)


def _grade(env: EnvPlan, name: str, opening: OpeningLines) -> list[str]:
    """Return the function that grades the replies of an environment."""
    body, earned, found = list[str](), list[str](), list[str]()
    for grader in env.graders:
        weight = "" if grader.weight == 1 else f"{literal(grader.weight)} * "
        if grader.grader == OWN:
            own = opening.own(grader.args["function"])
            weights = literal(grader.args["weights"])
            earned.append(f"{weight}earned({own}(reply, dict(row)), {weights})")
            continue
        read: list[Expression] = ["reply", f"right_answer(row, {literal(env.args['answer'])})"]
        if grader.grader == "countdown":
            read = ["reply", "row", literal(env.args["answer"])]
        if "pattern" in grader.args:
            read.append(f"re.compile({literal(grader.args['pattern'])})")
        body.append(f"{grader.name} = {CallText(f'graded_{grader.grader}', read)}")
        earned.append(f"{weight}({grader.name} or 0.0)")
        found.append(f"{grader.name} is not None")
    if found and env.args.get("format_coef"):
        missed = f"(float({' and '.join(found)}) - 1.0)"
        earned.append(f"{literal(env.args['format_coef'])} * {missed}")
    total = " + ".join(earned) or "0.0"
    body.append(f"return {total[1:-1] if len(earned) == 1 and total[0] == '(' else total}")
    head = f"def {name}({'reply' if env.graders else '_reply'}: str, row: Row) -> float:"
    return [head, *(f"    {line}" for line in body)]


def _python(env: EnvPlan, opening: OpeningLines) -> Expression:
    ((_, code),) = code_of(env)
    return CallText(
        "Own", [literal(env.name), CallText(opening.own(code.target), given(code.args))]
    )


def _cookbook(env: EnvPlan, opening: OpeningLines) -> Expression:
    ((_, code),) = code_of(env)
    decided = dict.fromkeys(COOKBOOK_GROUP, literal(env.rollouts.group))
    return f"Groups({opening.built(code, decided, env.args['split'], 'await ')})"


def _tasks(env: EnvPlan, opening: OpeningLines) -> Expression:
    traits = source_traits(env.source)
    if traits.graded:
        return _problems(env, opening)
    if not traits.code:
        return _gem(env)
    return _cookbook(env, opening) if traits.prompts == "own" else _python(env, opening)
