"""What is said about a word, a call, and what a recipe leaves unsaid."""

from __future__ import annotations

import pytest
from paths import RECIPES

from rlc.catalog.declarations import DECLARATIONS
from rlc.catalog.index import BUILTINS
from rlc.lang.source import Source
from rlc.lsp.completion import signature_help
from rlc.lsp.describe import builtin, declaration, hover
from rlc.lsp.documents import Document, Documents, note_at
from rlc.lsp.protocol import Positions, check, inlay_hints

TEXT = """# What is trained.
model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
}
env spell = gem("rg:spell_backward") |> chat()
train main {
  model     = policy
  env       = spell
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo(scope = group)
  loss      = ppo()
  optimizer = adam(1e-4, schedule = cosine())
  epochs    = 2
}
"""


def said(word: str, text: str = TEXT) -> str:
    documents = Documents()
    document = Document(Source("a.rl", text))
    at = note_at(documents, document, text.index(word))
    assert at is not None
    return hover(at, text[at.start : at.end], document.path) or ""


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("train main", ("train name { … }", "reinforcement learning")),
        ("policy {", ("What is trained.", 'base      = "Qwen/Qwen3.5-4B"')),
        ("policy\n", ("What is trained.", "model policy {")),
        ('"Qwen', ("context", "sample", "per million tokens", "LoRA")),
        ('"rg:spell', ("one question, one answer",)),
        ("lora_rank", ("**lora_rank** of `model`", "default `32`", "power of two", "at least 1")),
        ("ppo", ("clip_low", "ratio", "ppo(")),
        ("grpo", ("A =", "scale")),
        ("group_size", ("**group_size** of `groups()`",)),
        ("group)", ("one of the words", "which rollouts are compared")),
        ("max_tokens", ("**max_tokens** of `sample()`", "required")),
        ("16)\n  adv", ("max_tokens",)),
    ],
)
def test_a_word_is_explained(word: str, says: tuple[str, ...]) -> None:
    for part in says:
        assert part in said(word)


def test_everything_in_the_catalogue_can_be_explained() -> None:
    for each in BUILTINS:
        text = builtin(each)
        assert each.doc in text
        assert all(f"**{param.name}**" in text for param in each.params)
    for known in DECLARATIONS.values():
        assert known.doc in declaration(known)


def test_a_call_shows_its_parameters_and_the_one_that_is_next() -> None:
    def shown(before: str) -> tuple[str, int | None]:
        document = Document(Source("a.rl", before))
        found = signature_help(Documents(), document, len(before))
        assert found is not None
        return found.signatures[0].label, found.active_parameter

    label, active = shown("train main { optimizer = adam(")
    assert label.startswith("adam(learning_rate, beta1 = 0.9")
    assert active == 0
    assert shown("train main { optimizer = adam(1e-4, ")[1] == 1
    assert shown("train main { optimizer = adam(1e-4, beta2 = ")[1] == 2
    assert shown("train main { optimizer = adam(1e-4, schedule = cosine(")[0].startswith("cosine(")
    assert "clues" in shown('env e = gem("game:Sudoku-v0-easy", ')[0]
    outside = Document(Source("a.rl", "train main { "))
    assert signature_help(Documents(), outside, 13) is None


def hints(text: str) -> dict[str, list[str]]:
    """The hints of each line, by its first word."""
    source = Source(str(RECIPES / "a.rl"), text)
    document = Document(source)
    checked = check(Documents(), document)
    assert not checked.compiled.diagnostics.has_errors
    notes, positions = Documents().notes(document), Positions(source)
    plan, costs = checked.compiled.plan, checked.costs
    found: dict[str, list[str]] = {}
    for hint in inlay_hints(text, *notes, plan, costs, positions, 0, len(text)):
        line = source.line(hint.position.line + 1).split()[0]
        found.setdefault(line, []).append(str(hint.label))
    return found


def test_hints_say_what_the_recipe_leaves_out() -> None:
    text = TEXT.replace("epochs    = 2", "epochs    = 2").replace(
        'gem("rg:spell_backward")', 'problems("gsm8k")'
    )
    found = hints(text)
    assert found["model"][0].startswith("tinker, qwen3")
    assert found["train"][0].startswith("about $")
    assert found["optimizer"][0] == "learning_rate ="
    assert found["optimizer"][-1].startswith(", beta1 = 0.9, beta2 = 0.95")
    assert found["epochs"] == ["= 935 steps"]  # of 7,473 tasks, 16 in a step
    assert "free" in hints(text.replace("Qwen/Qwen3.5-4B", "tiny"))["train"]


def test_hints_of_a_part_are_of_that_part() -> None:
    document = Document(Source("a.rl", TEXT))
    start = TEXT.index("  optimizer")
    notes, positions = Documents().notes(document), Positions(document.source)
    found = inlay_hints(TEXT, *notes, None, {}, positions, start, start + 20)
    assert [(hint.label, hint.padding_right) for hint in found] == [("learning_rate =", True)]


def test_a_claim_is_explained() -> None:
    text = (
        f"{TEXT}sweep s {{ of = main  over = {{ policy.lora_rank = [8, 32] }}  seeds = 2 }}\n"
        "claim c { of = s  that = at(policy.lora_rank == 8) > 0.5 }\n"
    )
    assert "what a sweep is to show" in said("claim c", text)
    assert "at one configuration" in said("at(policy", text)
    assert "power of two" in said("lora_rank == 8", text)
