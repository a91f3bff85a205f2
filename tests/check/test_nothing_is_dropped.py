"""Every word of a recipe has an effect: changing any field of any declaration, or any argument of
any builtin, changes the plan or is an error."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from paths import RECIPES

from rlc.catalog.declarations import (
    ADVANTAGE_FIELDS,
    CLAIM_FIELDS,
    DECLARATIONS,
    EVAL_FIELDS,
    LOSS_FIELDS,
    MODEL_FIELDS,
    PREFERENCE_FIELDS,
    PREFERENCE_LOSS_FIELDS,
    SFT_FIELDS,
    SWEEP_FIELDS,
    TRAIN_FIELDS,
)
from rlc.catalog.index import BUILTINS
from rlc.catalog.records import Builtin, Param
from rlc.compile.recipe import CompileResult, compile_source
from rlc.lang.source import Source
from rlc.plan.codec import plan_hash
from rlc.plan.leaves import children_of

MODEL = {"base": '"Qwen/Qwen3-8B"'}
TRAIN = {
    "model": "policy",
    "env": "task",
    "batch": "groups(4, group_size = 2)",
    "sampling": "sample(max_tokens = 16)",
    "advantage": "grpo()",
    "loss": "cispo()",
    "optimizer": "adam(1e-5)",
    "steps": "10",
}
SFT = {
    "model": "policy",
    "data": 'rows("rows.jsonl")',
    "heldout": 'rows("other.jsonl")',
    "optimizer": "adam(1e-5)",
    "steps": "10",
}
PREFERENCE = {
    "model": "policy",
    "data": 'pairs("rows.jsonl")',
    "heldout": 'pairs("other.jsonl")',
    "loss": "dpo()",
    "optimizer": "adam(1e-5)",
    "steps": "10",
}
EVAL = {"model": "main", "env": "task", "sampling": "sample(max_tokens = 16)"}
SWEEP = {"of": "main", "over": "{ rate = [1e-5, 2e-5, 3e-5] }"}
CLAIM = {"of": "rates", "that": "at(rate == 1e-5) > at(rate == 2e-5)"}
COUNTED = 'pairs("rows.jsonl", n = 100)'
ENV = "problems(gsm8k, samples = 100)"
SPELL = 'gem("rg:spell_backward") |> chat()'  # it has an oracle

# Two values for parameters whose own declaration does not tell any.
SAMPLES: dict[str, tuple[str, str]] = {
    "model": ("policy", "other"),
    "env": ("task", 'gem("rg:chain_sum") |> chat()'),
    "batch": ("groups(4, group_size = 2)", "turns(8)"),
    "sampling": ("sample(max_tokens = 16)", "sample(max_tokens = 32)"),
    "advantage": ("grpo()", "rloo()"),
    "aggregate": ("token_sum()", "token_mean()"),
    "loss": ("cispo()", "importance_sampling()"),
    "expression": ("ratio", "logp"),
    "kl": ("none", "reference(policy.base, coef = 0.1)"),
    "optimizer": ("adam(1e-5)", "adam(2e-5)"),
    "schedule": ("constant()", "cosine()"),
    "overlap": ("synchronous()", "streamed(minibatches = 2)"),
    "save": ("every(5)", "every(2)"),
    "failure": ("drop", "stop"),
    "budget": ("none", "$5"),
    "give_up": ("none", "failures(steps = 2)"),
    "deadlines": ("deadlines(request = 2m)", "deadlines(request = 3m)"),
    "kl_guard": ("none", "kl_guard(max = 0.2)"),
    "data": ('rows("rows.jsonl")', "demonstrations(task, n = 10)"),
    "keep": ("solved", "all"),
    "word": ("none", "system"),
    "teacher": ("{}", "reverse_kl(other)"),
    "preferences": ('pairs("rows.jsonl")', 'pairs("rows.csv")'),
    "preference_loss": ("dpo()", "simpo()"),
    "grader": ('grade_with("a.b:c")', '0.5 * grade_with("a.b:c")'),
    "judge": ('rubric("a", model = policy)', '0.5 * rubric("a", model = policy)'),
    "metric": ("mean_reward()", "[mean_reward(), pass_at(1)]"),
    "tracker": ("[]", "[tensorboard()]"),
    "int": ("2", "3"),
    "float": ("0.25", "0.5"),
    "money": ("$5", "$6"),
    "duration": ("2h", "3h"),
    "bool": ("true", "false"),
    "list": ('["A_KEY"]', '["A_KEY", "B_KEY"]'),
    "split": ("train", "first(50%)"),
    "record": ("{ a = 1 }", "{ a = 2 }"),
    "string": ('"one"', '"two"'),
    "stage": ("main", "warmup"),
    "axis": ("{ rate = [1e-5, 2e-5] }", "{ rate = log(1e-5, 2e-5) }"),
    "measure": ("held.mean_reward", "main.reward"),
    "search": ("grid()", "halving()"),
    "sweep": ("rates", "others"),
    "comparison": ("at(rate == 1e-5) > 0.5", "at(rate == 1e-5) > 0.6"),
    "opponent": ("other", "self"),
    "price": ("none", "{ sample = $1 }"),
    "players": ("here", "processes(2)"),
}
BY_NAME: dict[str, tuple[str, str]] = {
    "base": ('"Qwen/Qwen3-8B"', '"Qwen/Qwen3.5-4B"'),
    "weights": ('"tinker://a/weights/b"', '"tinker://a/weights/c"'),
    "lora_rank": ("16", "32"),
    "renderer": ("qwen3", "qwen3_disable_thinking"),
    "tokens": ("1_000_000_000", "2_000_000_000"),
    "id": ('"Org/One"', '"Org/Two"'),
    "beta1": ("0.8", "0.7"),
    "low": ("-1", "-2"),
    "high": ("1", "2"),
    "clip_low": ("0.5", "0.6"),
    "clip_high": ("1.2", "1.3"),
    "seats": ('["first", "second"]', '["cross", "nought"]'),
    "game": ('"a.b:c"', '"a.b:d"'),
    "seat": ("any", '"player_1"'),
    "players": ("2", "3"),
    "url": ('"http://127.0.0.1:1"', '"http://127.0.0.1:2"'),
    "reference": ("policy.base", '"Qwen/Qwen3.5-4B"'),
    "path": ('"rows.jsonl"', '"rows.csv"'),
    "rows": ('"rows.jsonl"', '"rows.csv"'),
    "level": ("90%", "95%"),
    "data": ('"gsm8k"', '"math"'),
    "few_shot": ('"rows.jsonl"', '"other.jsonl"'),
    "solver_prompt": ('"a.j2"', '"b.j2"'),
    "judge_prompt": ('"a.j2"', '"b.j2"'),
    "builder": ('"a.b:c"', '"a.b:d"'),
    "factory": ('"a.b:c"', '"a.b:d"'),
    "function": ('"a.b:c"', '"a.b:d"'),
    "by": ('"a.b:c"', '"a.b:d"'),
    "executor": ('"a.b:c"', '"a.b:d"'),
    "program": ('"a.b:c"', '"a.b:d"'),
    "encode": ('"a.b:c"', '"a.b:d"'),
    "gamma": ("0.5", "0.6"),
    "ddof": ("0", "1"),
    "label_smoothing": ("0.1", "0.2"),
    "scale": ("[1, 5]", "[1, 10]"),
    "context": ("8_000", "9_000"),
    "as_of": ('"2026-11-20"', '"2026-11-21"'),
}


RATED = {
    "margin": "pair = softplus(rating_margin - chosen + rejected)",
    "chosen_rating": "pair = softplus(chosen_rating - chosen + rejected)",
    "rejected_rating": "pair = softplus(rejected_rating - chosen + rejected)",
    "rating": "reply = rating * where(good, softplus(-logp), softplus(logp))",
}


def values_of(param: Param, kind: str = "") -> tuple[str, str]:
    """Two values that a parameter could take."""
    if kind == "axis":
        return {"low": ("1e-6", "2e-6"), "high": ("1e-4", "2e-4")}.get(param.name, ("none", "1e-6"))
    if (kind, param.type) == ("wrapper", "expression"):
        return "total - tokens", "2 * correct"
    if param.noun == "GEM environment":
        return '"rg:chain_sum"', '"rg:spell_backward"'
    if param.noun == "game of TextArena":
        return '"Nim-v0"', '"PigDice-v0"'
    if (kind, param.name) == ("env", "tasks"):
        return "problems(gsm8k)", "problems(math)"
    if param.name == "folder":
        return '"."', '"tasks"'
    if param.folders:
        return '"tasks/*"', '"tasks/1*"'
    if (kind, param.name) == ("judge", "stage"):
        return "align", "second"
    if (kind, param.name) == ("judge", "max_tokens"):
        return "32", "64"
    if (kind, param.name) == ("judge", "prompt"):
        return '"a.j2"', '"b.j2"'
    if param.name in BY_NAME and param.type in ("int", "float", "string", "list"):
        return BY_NAME[param.name]
    if param.name == "service":
        return "tinker", "skyrl"
    choices = param.all_choices()
    if len(choices) > 1:
        first, second = choices[0], choices[-1]
        return (f'"{first}"', f'"{second}"') if param.type == "string" else (first, second)
    return SAMPLES[param.type]


def block(kind: str, name: str, fields: dict[str, str]) -> str:
    return f"{kind} {name} {{\n" + "".join(f"  {k} = {v}\n" for k, v in fields.items()) + "}\n"


def recipe(
    model: dict[str, str] = MODEL,
    env: str = ENV,
    train: dict[str, str] = TRAIN,
    sft: dict[str, str] | None = None,
    evaluate: dict[str, str] | None = None,
    sweep: dict[str, str] | None = None,
    preference: dict[str, str] | None = None,
) -> str:
    parts = [
        block("model", "policy", model),
        block("model", "other", {"base": '"Qwen/Qwen3.5-4B"'}),
        f"env task = {env}\n",
        block("train", "main", train),
    ]
    if sft is not None:
        parts.append(block("sft", "warmup", sft))
    if preference is not None:
        parts.append(block("preference", "align", preference))
    if evaluate is not None:
        parts.append(block("eval", "held", evaluate))
    if sweep is not None:
        rate = {"optimizer": "adam(rate)"}
        parts[3:] = [
            "param rate: float = 1e-5\n",
            block("train", "main", train | rate),
            block("sft", "warmup", SFT | rate | {"data": "demonstrations(spell, n = 10)"}),
            f"env spell = {SPELL}\n",
            block("eval", "held", EVAL | {"every": "2"}),
            block("sweep", "rates", sweep),
        ]
    return "\n".join(parts)


def compiled(text: str) -> CompileResult:
    return compile_source(Source("test.rl", text))


@pytest.fixture(autouse=True)
def files(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the samples name."""
    folder = tmp_path_factory.getbasetemp() / "files"
    folder.mkdir(exist_ok=True)
    for name in ("rows.jsonl", "rows.csv", "other.jsonl", "a.j2", "b.j2"):
        (folder / name).touch()
    for number in range(20):  # tasks of Harbor
        task = folder / "tasks" / str(number)
        if not task.exists():
            shutil.copytree(RECIPES / "data" / "harbor" / "greeting", task)
    monkeypatch.chdir(folder)


def assert_both_matter(first: str, second: str) -> None:
    """One may be refused with the other; both accepted, they mean different things."""
    one, two = compiled(first), compiled(second)
    for side in (one, two):
        assert side.plan is not None or side.diagnostics.has_errors
    assert one.plan or two.plan, [item.message for item in one.diagnostics]
    if one.plan is not None and two.plan is not None:
        sweeps = [[sweep.plan for sweep in side.sweeps] for side in (one, two)]
        # No hash depends on prices, nor on players.
        aside = [
            [(s.model.price, (children_of(s) or {}).get("players")) for s in plan.stages]
            for plan in (one.plan, two.plan)
        ]
        differ = sweeps[0] != sweeps[1] or aside[0] != aside[1]
        assert differ or plan_hash(one.plan) != plan_hash(two.plan), second


def field_cases() -> Iterator[tuple[str, Param]]:
    for kind, fields in (
        ("model", MODEL_FIELDS),
        ("train", TRAIN_FIELDS),
        ("sft", SFT_FIELDS),
        ("preference", PREFERENCE_FIELDS),
        ("eval", EVAL_FIELDS),
        ("sweep", SWEEP_FIELDS),
        ("claim", CLAIM_FIELDS),
        ("loss", LOSS_FIELDS),
        ("advantage", ADVANTAGE_FIELDS),
        ("preference_loss", PREFERENCE_LOSS_FIELDS),
    ):
        for param in fields:
            yield kind, param


@pytest.mark.parametrize(("kind", "param"), field_cases(), ids=lambda x: getattr(x, "name", x))
def test_every_field_counts(kind: str, param: Param) -> None:
    def write(value: str) -> str:
        field = {param.name: value}
        if param.name == "epochs":
            if kind == "preference":
                return recipe(preference=_with_epochs({**PREFERENCE, "data": COUNTED}, value))
            return (
                recipe(train=_with_epochs(TRAIN, value))
                if kind == "train"
                else recipe(
                    env=SPELL,
                    sft=_with_epochs({**SFT, "data": "demonstrations(task, n = 100)"}, value),
                )
            )
        if param.name == "weight":
            field["env"] = "problems(gsm8k, grader = numeric) + problems(math, grader = exact)"
        if (kind, param.name) == ("train", "every"):
            field["heldout"] = 'rows("rows.jsonl")'
        match kind:
            case "model":
                return recipe(model=MODEL | field)
            case "train":
                return recipe(train=TRAIN | field)
            case "sft":
                return recipe(sft=SFT | field)
            case "preference":
                return recipe(preference=PREFERENCE | field)
            case "sweep":
                return recipe(sweep=SWEEP | field)
            case "claim":
                second = block("sweep", "others", SWEEP | {"seeds": "2", "metric": "main.reward"})
                claim = block("claim", "least", CLAIM | field)
                return recipe(sweep=SWEEP | {"seeds": "3"}) + second + claim
            case "loss":
                product = f"{value} * adv"
                result = product if param.name == "token" else f"mean({product})"
                own = block("loss", "own", {param.name: f"-{result}"})
                return recipe(train=TRAIN | {"loss": "own"}) + own
            case "advantage":
                value = {"ratio": "1", "logp": "2"}[value]
                of = {"turn": f"reward * {value}", "episode": f"sum(reward) * {value}"}
                of["token"] = f"reward * logq * {value}"
                parts = {param.name: of.get(param.name, f"turns - {value}")}
                parts |= {} if param.name in of else {"episode": "sum(reward)"}
                return recipe(train=TRAIN | {"advantage": "own"}) + block("advantage", "own", parts)
            case "preference_loss":
                replies = {"pair": "rejected - chosen", "reply": "where(good, -logp, logp)"}
                factor = {"ratio": 1, "logp": 2}[value]
                own = block(kind, "own", {param.name: f"{factor} * ({replies[param.name]})"})
                data = {"reply": {"data": 'labelled("hub:some/rated")'}}.get(param.name, {})
                return recipe(preference=PREFERENCE | data | {"loss": "own"}) + own
        return recipe(evaluate=EVAL | field)

    first, second = values_of(param)
    assert_both_matter(write(first), write(second))


def _with_epochs(fields: dict[str, str], value: str) -> dict[str, str]:
    return {name: text for name, text in fields.items() if name != "steps"} | {"epochs": value}


def argument_cases() -> Iterator[tuple[Builtin, Param]]:
    for builtin in BUILTINS:
        for param in builtin.params:
            yield builtin, param


@pytest.mark.parametrize(("builtin", "param"), argument_cases(), ids=lambda x: x.name)
def test_every_argument_counts(builtin: Builtin, param: Param) -> None:
    first, second = (written(builtin, param, value) for value in values_of(param, builtin.kind))
    assert_both_matter(first, second)


def written(builtin: Builtin, param: Param, value: str) -> str:
    """A recipe that calls a builtin with an argument."""
    arguments = {p.name: values_of(p)[0] for p in builtin.params if p.required}
    arguments |= NEEDED.get(param.name, {}) | NEEDED.get((builtin.kind, builtin.name), {})
    arguments |= NEEDED.get((builtin.name, param.name), {})
    if param.only_if is not None:
        other, (allowed, *_) = param.only_if
        arguments.setdefault(other, allowed)
    # Of an agent, in place of its function.
    if param.name in ("command", "folder") or (builtin.name, param.name) == ("agent", "secrets"):
        del arguments["program"]
        arguments["command"] = '["python", "agent.py"]'
    arguments[param.name] = value
    call = f"{builtin.name}({', '.join(f'{k} = {v}' for k, v in arguments.items())})"
    if builtin.kind == "grader":
        return recipe(env=f"problems(gsm8k, grader = {call})")
    if builtin.traits is not None and getattr(builtin.traits, "seats", None) is not None:
        call += " |> play(against = other)"
    if builtin.kind == "env":
        return recipe(env=f"{call} |> chat()" if builtin.name == "gem" else call)
    if builtin.kind == "wrapper":
        return recipe(env=PIPELINES.get(builtin.name, f"{ENV} |> CALL").replace("CALL", call))
    if builtin.kind == "data":
        return recipe(env=SPELL, sft=SFT | {"data": call})
    if builtin.kind == "preferences":
        loss, own = {"loss": "kto()"} if builtin.name == "labelled" else {}, ""
        if param.name in RATED:  # an error where the loss does not read it
            loss, own = {"loss": "own"}, f"preference_loss own {{ {RATED[param.name]} }}\n"
        return own + recipe(env=SPELL, preference=PREFERENCE | loss | {"data": call})
    if builtin.kind == "preference_loss":
        return recipe(preference=PREFERENCE | {"loss": call})
    if builtin.kind == "keep":
        data = f"samples(policy, env = task, n = 10, keep = {call})"
        return recipe(env=SPELL, sft=SFT | {"data": data})
    if builtin.kind == "metric":
        return recipe(evaluate=EVAL | {"metrics": f"[{call}]", "samples": "4"})
    if builtin.kind == "price":
        return recipe(model=MODEL | {"price": call})
    if builtin.kind == "state":
        return recipe(model=MODEL | {"weights": call})
    if builtin.kind == "axis":
        over = {"over": f"{{ rate = {call} }}", "search": "random(2)"}
        return recipe(sweep=SWEEP | over)
    if builtin.kind == "search":
        return recipe(sweep=SWEEP | {"search": call})
    learnt = ("align", "second") if "stage" in arguments else ()
    field, text = IN_TRAIN.get(builtin.kind, (builtin.kind, "CALL"))
    if builtin.name == "compare_with":
        text = 'rows("rows.jsonl") |> compared(CALL, by = pairwise)'
    more = {"advantage": "reinforce()"} if builtin.name == "turns" else {}
    more |= {"env": 'openreward("Org/One")'} if builtin.kind == "tracker" else {}
    stages = "".join(block("preference", name, PREFERENCE) for name in learnt)
    return recipe(train=TRAIN | more | {field: text.replace("CALL", call)}) + stages


# Where a train stage takes a thing of some kind.
IN_TRAIN = {
    "step": ("advantage", "returns() |> CALL"),
    "rate": ("optimizer", "adam(CALL)"),
    "schedule": ("optimizer", "adam(1e-5, schedule = CALL)"),
    "failure": ("on_error", "CALL"),
    "retry": ("on_error", "CALL then drop"),
    "tracker": ("track", "[CALL]"),
    "split": ("env", "problems(gsm8k, split = CALL)"),
    "opponent": ("env", 'textarena("Nim-v0") |> play(against = CALL)'),
    "judge": ("env", 'rows("rows.jsonl") |> judged(CALL)'),
    "endpoint": ("env", 'rows("rows.jsonl") |> judged(rubric("a", model = CALL))'),
}
PIPELINES = {
    "python_tool": 'gem("rg:chain_sum") |> CALL |> template(no)',
    "search_tool": 'gem("rg:chain_sum") |> CALL |> template(no)',
    "play": 'textarena("Nim-v0") |> CALL',
    "template": 'gem("rg:chain_sum") |> CALL',
    "chat": 'gem("rg:chain_sum") |> CALL',
}
# What else an argument, or a call, needs to be accepted.
NEEDED: dict[object, dict[str, str]] = {
    "question": {"data": '"rows.jsonl"'},
    "answer": {"data": '"rows.jsonl"'},
    "as_of": {"sample": "$1"},
    ("curriculum", "args"): {"by": '"a.b:c"'},
    ("env", "agent"): {"program": '"a.b:c"', "tasks": "problems(gsm8k)"},
    ("env", "rows"): {"grader": 'grade_with("a.b:c")'},
    ("data", "samples"): {"model": "policy", "keep": "all"},
    ("teacher", "reverse_kl"): {"model": "policy"},
    ("teacher", "forward_kl"): {"model": "policy"},
    ("axis", "range"): {"low": "1e-5", "high": "1e-4"},
    ("axis", "log"): {"low": "1e-5", "high": "1e-4"},
}


def test_every_declaration_is_walked() -> None:
    walked = {kind for kind, _ in field_cases()} | {"test"}  # no part of a plan: tests/proof
    assert walked == {kind for kind, item in DECLARATIONS.items() if item.fields}
