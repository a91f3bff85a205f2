"""The environments of a stage, as the expressions that open and show them."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from attrs import field, frozen

from rlc.catalog import (
    COOKBOOK_BATCHES,
    COOKBOOK_GROUP,
    COOKBOOK_MODEL,
    COOKBOOK_RENDERER,
    code_of,
    is_chat,
    max_turns,
    with_role,
    wrapper_traits,
)
from rlc.chat import load_template
from rlc.data import (
    Code,
    DataError,
    lacking,
    load_attribute,
    module_file,
    parameter_names,
    signature_of,
)
from rlc.emit.script.literals import Call, Expression, given, literal, named, written
from rlc.plan import EnvPlan, Rollouts, Split, base_split, hub_dataset, located

OBSERVATIONS: Mapping[str, dict[str, bool]] = {  # arguments of GEM's ObservationWrapper
    "concat": {"include_action": False, "include_chat_template": False},
    "concat_with_action": {"include_action": True, "include_chat_template": False},
    "concat_chat": {"include_action": True, "include_chat_template": True},
}
KNOWN_ROWS = {"gsm8k": "gsm8k", "math": "competition_math"}  # what reads a set of that name
# What builders of the cookbook are given where they need it; groups are taken one by one.
OFFERS = {"renderer": "get_renderer(RENDERER, tokenizer)", "tokenizer": "tokenizer"}
OFFERS |= dict.fromkeys(COOKBOOK_BATCHES, "1")
# What compares a reply with an answer, by the name of the grader.
GRADES = {"math": "same_maths", **{n: n for n in ("cookbook_math", "numeric", "exact", "regex")}}


@frozen
class Opening:
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

    def add(self, line: str) -> None:
        if line not in self.lines:
            self.lines.append(line)

    def rows(self, path: str, split: Split | None, by: str, count: int | None = None) -> Expression:
        """Return the expression of the rows of a split of a file or data set."""
        name = [] if split is None else [literal(base_split(split))]
        known = KNOWN_ROWS.get(path)
        if (hub := hub_dataset(path)) is not None:
            dataset, revision, config = hub
            of = literal(f"{dataset}/{config}" if config else dataset)
            rows = Call("published", [of, *name, *([literal(revision)] if revision else [])])
        elif known is not None:
            rows = Call(known, name)
        else:
            rows = Call("read_rows", [self.file(path), *name])
        if not (split is None or isinstance(split, str)):
            share = Fraction(split["share"]).limit_denominator(10**9)
            bounds = (Fraction(0), share) if split["part"] == "first" else (1 - share, Fraction(1))
            shares = (f"Fraction({b.numerator}, {b.denominator})" for b in bounds)
            hashed = split["by"] == "hash"
            start = "part_by_hash" if hashed else "part"
            rows = Call(start, [rows, *shares, *([literal(by)] if hashed else [])])
        return rows if count is None else f"{rows}[:{literal(count)}]"

    def builder(self, code: Code, decided: Mapping[str, str]) -> Call:
        """Return the call of a builder of the cookbook, with what the recipe decides."""
        name, (names, required) = self.own(code.target), parameters_of(code.target)
        known = {key: text for key, text in decided.items() if key in names}
        needed = [one for one in required if one not in {**code.args, **known}]
        known |= {key: OFFERS[key] for key in needed if key in code.offered}
        more = [f"{key}={text}" for key, text in known.items()]
        return Call(name, [*given(code.args), *more])


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


def environments(source: Rollouts, recipe: str, folder: str) -> Iterator[str]:
    """Yield the function that opens the environments of a stage."""
    opening, envs = Opening(recipe, folder), source.envs
    shared = {"top_p": source.sampling.top_p, "top_k": source.sampling.top_k}
    shared = {name: one for name, one in shared.items() if one not in (1.0, -1)}
    made = [Call("Env", _env(env, opening, shared)) for env in envs]
    yield "async def environments(tokenizer: Any) -> list[Env]:"
    if any(is_chat(env) for env in envs):
        yield "    renderer = get_renderer(RENDERER, tokenizer)"
    yield from (f"    {line}" if line else "" for line in opening.lines)
    yield f"    return {written(Call('', made, '[]'), 4, 7)}"


def _env(env: EnvPlan, opening: Opening, shared: Mapping[str, Any]) -> Iterator[Expression]:
    own = env.rollouts
    yield literal(env.name)
    yield f"weight={literal(env.weight)}"
    yield f"group={literal(own.group)}"
    params = {"max_tokens": own.max_tokens, "temperature": own.temperature, **shared}
    yield named("params=", Call("types.SamplingParams", given(params)))
    yield named("tasks=", TASKS[env.source](env, opening))
    yield named("prompts=lambda: ", _prompts(env))


def _prompts(env: EnvPlan) -> Expression:
    if env.source == "cookbook":
        return "Tokens(tokenizer)"
    if not is_chat(env):
        wrapper = with_role(env, "template")
        text = load_template(wrapper.args["name"] if wrapper else "no")("{observation}")
        return Call("Text", ["tokenizer", literal(text)])
    chat = with_role(env, "chat")
    begins = {name: text for name, text in (chat.args if chat else {}).items() if text}
    return Call("Question" if max_turns(env) == 1 else "Chat", ["renderer", *given(begins)])


def _gem(env: EnvPlan, _: Opening) -> Expression:
    arguments: list[Expression] = [literal(env.id)]
    inside: Expression = "env"
    for wrapper in env.wrappers:
        if wrapper_traits(wrapper.name).role == "tool":
            inside = _with_tool(inside, wrapper.name, wrapper.args)
        elif wrapper_traits(wrapper.name).role == "history":
            chat = ["tokenizer=tokenizer"] if wrapper_traits(wrapper.name).chat_template else []
            of = OBSERVATIONS[wrapper.name]
            inside = Call("ObservationWrapper", [inside, *given(of), *chat])
    if inside != "env":
        arguments.append(named("wrapped=lambda env: ", inside))
    if with_role(env, "history") is not None:
        arguments.append("bare=False")
    return Call("Gem", [*arguments, *given(env.args)])


def _with_tool(inside: Expression, name: str, args: Mapping[str, Any]) -> Expression:
    if name == "python_tool":
        known = {"timeout": args["timeout"], "keep_error_last_line": args["errors"] == "last_line"}
        tool = Call("PythonCodeTool", given(known))
    else:
        known = {"search_url": args["url"], "topk": args["top_k"], "timeout": args["timeout"]}
        tool = Call("SearchTool", given(known))
    paid = {
        "tool_reward": args.get("reward_use", 0.0),
        "tool_success_reward": args.get("reward_success", 0.0),
        "max_tool_uses": args["uses"],
    }
    return Call("ToolEnvWrapper", [inside, Call("", [tool], "[]"), *given(paid)])


def _problems(env: EnvPlan, opening: Opening) -> Expression:
    args = env.args
    name, suffix = args.get("question") or args["prompt"], args["suffix"]
    rows = opening.rows(env.id, args["split"], name)
    if (samples := args["samples"]) is not None and args["shuffle"]:
        opening.add(f"rows = {rows}")
        rows = f"[rows[at] for at in permutation(0, 0, len(rows))[:{literal(samples)}]]"
    elif samples is not None:
        rows = f"{rows}[:{literal(samples)}]"
    grade = f"grade_{env.name}"
    opening.lines.extend(["", *_grade(env, grade, opening), ""])
    shown = {"suffix": suffix} if suffix else {}
    shown |= {"cut": True} if args["replied"] == "cut" else {}
    asked = named("lambda row: ", Call("asked", ["row", literal(name), *given(shown)]))
    arguments = [literal(env.name), rows, asked, grade]
    arguments += [] if args["shuffle"] else ["shuffle=False"]
    if args.get("few_shot"):
        read = f"read_rows({opening.file(args['few_shot'])})"
        before = Call("solved", [read, literal(args["answer"]), literal(name), literal(suffix)])
        arguments.append(named("before=", before))
    return Call("Problems", arguments)


def _grade(env: EnvPlan, name: str, opening: Opening) -> list[str]:
    """Return the function that grades the replies of an environment."""
    body, earned, found = list[str](), list[str](), list[str]()
    for grader in env.graders:
        weight = "" if grader.weight == 1 else f"{literal(grader.weight)} * "
        if grader.grader == "grade_with":
            own = opening.own(grader.args["function"])
            weights = literal(grader.args["weights"])
            earned.append(f"{weight}earned({own}(reply, dict(row)), {weights})")
            continue
        read: list[Expression] = ["reply", f"right_answer(row, {literal(env.args['answer'])})"]
        if grader.grader == "regex":
            read.append(f"re.compile({literal(grader.args['pattern'])})")
        body.append(f"{grader.name} = {Call(GRADES[grader.grader], read)}")
        earned.append(f"{weight}({grader.name} or 0.0)")
        found.append(f"{grader.name} is not None")
    if found and env.args.get("format_coef"):
        missed = f"(float({' and '.join(found)}) - 1.0)"
        earned.append(f"{literal(env.args['format_coef'])} * {missed}")
    body.append(f"return {' + '.join(earned) or '0.0'}")
    head = f"def {name}({'reply' if env.graders else '_reply'}: str, row: Row) -> float:"
    return [head, *(f"    {line}" for line in body)]


def _python(env: EnvPlan, opening: Opening) -> Expression:
    ((_, code),) = code_of(env)
    return Call("Own", [literal(env.name), Call(opening.own(code.target), given(code.args))])


def _cookbook(env: EnvPlan, opening: Opening) -> Expression:
    ((_, code),) = code_of(env)
    decided = dict.fromkeys(COOKBOOK_MODEL, "tokenizer.name_or_path")
    decided |= dict.fromkeys(COOKBOOK_RENDERER, "RENDERER")
    decided |= dict.fromkeys(COOKBOOK_GROUP, literal(env.rollouts.group))
    sets = "train, _" if env.args["split"] == "train" else "_, test"
    call = opening.builder(code, decided)
    opening.add(f"{sets} = await {written(call, 4, 20)}()")
    return f"Groups({env.args['split']})"


TASKS: Mapping[str, Callable[[EnvPlan, Opening], Expression]] = {
    "gem": _gem,
    "problems": _problems,
    "rows": _problems,
    "python": _python,
    "cookbook": _cookbook,
}
