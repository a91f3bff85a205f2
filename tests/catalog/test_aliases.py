"""Words that people bring along from other libraries find what they mean here."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from page_examples import complete

from rlc.catalog.aliases import ELSEWHERE, aliases_of
from rlc.catalog.declarations import DECLARATIONS
from rlc.catalog.index import BUILTINS
from rlc.catalog.search import entries, find
from rlc.compile.recipe import compile_source
from rlc.lang.diagnostics import Diagnostic, Diagnostics
from rlc.lang.fixes import fix_all
from rlc.lang.source import Source

OWNERS = {
    **{f"{builtin.name}()": builtin.params for builtin in BUILTINS},
    **{kind: declaration.fields for kind, declaration in DECLARATIONS.items()},
}


def check(source: Source) -> Diagnostics:
    return compile_source(source).diagnostics


def with_line(line: str, kind: str = "train") -> Source:
    return Source("test.rl", complete(f"{kind} other {{\n  {line}\n  …\n}}\n"))


def finding(line: str, kind: str = "train") -> Diagnostic:
    return next(item for item in check(with_line(line, kind)) if item.span.text in line)  # type: ignore[union-attr]


@pytest.mark.parametrize("owner", OWNERS)
def test_an_alias_means_one_parameter(owner: str) -> None:
    params = OWNERS[owner]
    names = Counter(
        name for param in params for name in {param.name, *param.formerly, *aliases_of(param)}
    )
    assert [name for name, count in names.items() if count > 1] == []
    assert all(name.islower() for param in params for name in aliases_of(param))


def test_there_are_many_and_what_has_another_form_is_no_alias() -> None:
    aliases = {name for params in OWNERS.values() for p in params for name in aliases_of(p)}
    assert len(aliases) > 100
    # Only a whole number of examples is called as elsewhere: a batch of training has groups.
    assert aliases & ELSEWHERE.keys() <= {
        *("batch_size", "train_batch_size", "per_device_train_batch_size", "bs")
    }


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("lr = 1e-4", "optimizer = adam(learning_rate = …)"),
        ("batch_size = 64", "batch = groups(32, group_size = 8)"),
        ("group_size = 8", "batch = groups(…, group_size = …)"),
        ("kl_coef = 0.1", "kl = reference(…, coef = …)"),
        ("beta = 0.04", "kl = reference(…, coef = …)"),
        ("save_every = 20", "save = every(n = …)"),
        ("seed = 3", "rlc run --seed 1"),
        ("temperature = 0.7", "sampling = sample(…, temperature = …)"),
        ("max_new_tokens = 64", "sampling = sample(max_tokens = …)"),
        ("num_generations = 8", "batch = groups(…, group_size = …)"),
        ("clip_range = 0.2", "clip_low = 0.8, clip_high = 1.2"),
        ("lora_rank = 32", "model name { lora_rank = … }"),
        ("eval_every = 10", "eval name { every = … }"),
        ("optimizer = adam(1e-3, warmup_steps = 9)", "schedule = constant(warmup = …)"),
        ("sampling = sample(max_tokens = 9, temperature = 0)", "`top_k = 1` always takes"),
    ],
)
def test_the_advice_says_what_to_write(line: str, advice: str) -> None:
    assert advice in (finding(line).help or "")


@pytest.mark.parametrize(
    ("kind", "line", "meant"),
    [
        ("train", "num_train_epochs = 1", "epochs"),
        ("train", "optimizer = adam(lr = 1e-3)", "learning_rate"),
        ("train", "save = every(save_steps = 5)", "n"),
        ("train", "save = every(5, best = True)", "true"),
        ("train", "save = every(5, best = no)", "false"),
        ("train", "give_up = None", "none"),
        ("train", "kl = null", "none"),
        ("train", "kl = reference(policy.base, kl_coef = 0.1)", "coef"),
        ("eval", "num_examples = 4", "tasks"),
        ("sft", "batch_size = 4", "batch"),
    ],
)
def test_what_has_one_reading_is_written(kind: str, line: str, meant: str) -> None:
    source = with_line(line, kind)
    found = finding(line, kind)
    assert found.fix is not None
    assert found.fix.title == f"write `{meant}`"
    fixed = fix_all(source, check)
    assert [item.code for item in fixed.applied] == [found.code]
    assert fixed.source.text == source.text.replace(found.span.text, meant, 1)  # type: ignore[union-attr]


def test_what_has_defaults_of_its_own_elsewhere_is_only_proposed() -> None:
    found = finding("optimizer = AdamW(1e-3)")
    assert found.fix is not None
    assert (found.fix.title, found.fix.safe) == ("write `adam`", False)


def test_a_value_that_must_be_there_is_not_none() -> None:
    for word in ("None", "none", "null"):
        found = finding(f"steps = {word}")
        assert (found.code, found.help) == ("RL0201", "leave it out for its default")


@pytest.mark.parametrize(("kind", "meant"), [("environment", "env"), ("policy", "model")])
def test_a_kind_of_declaration_is_found_by_its_name_elsewhere(kind: str, meant: str) -> None:
    declared = '{ base = "tiny" }' if meant == "model" else '= gem("rg:gcd") |> chat()'
    source = Source("test.rl", f"{kind} thing {declared}\n")
    (found,) = check(source)
    assert (found.code, found.help) == ("RL0101", f"did you mean `{meant}`?")
    assert fix_all(source, check).source.text == f"{meant} thing {declared}\n"


def test_the_commands_and_fields_of_the_advice_exist() -> None:
    for advice in set(ELSEWHERE.values()):
        for written in re.findall(r"`(\w+ = [^`]+)`", advice):
            line = written.replace("wandb(…)", 'wandb("x")').replace("env = …", "env = guess")
            if line.startswith(("clip", "lora_rank")):
                continue
            line = line if not line.startswith("schedule") else f"optimizer = adam(1e-3, {line})"
            codes = {item.code for item in check(with_line(line))}
            assert not codes & {"RL0010", "RL0103", "RL0104", "RL0105", "RL0201"}, (line, codes)


def test_the_catalogue_is_searched_by_those_names() -> None:
    assert [entry.name for entry in find("lr", entries()) if entry.kind == "optimizer"] == ["adam"]
