"""Every builtin has an example that the checker passes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from page_examples import complete

from rlc.catalog.declarations import DECLARATIONS
from rlc.catalog.index import BUILTINS, KINDS
from rlc.catalog.records import Builtin
from rlc.catalog.search import example_of, example_of_declaration, place_of
from rlc.compile.recipe import compile_source
from rlc.lang.source import Source

FILES = (
    *("chats.jsonl", "pairs.jsonl", "prompts.jsonl", "rated.jsonl", "shop.jsonl", "sums.jsonl"),
    *("digits.py", "rewards.py", "shopper.py", "tug.py", "players.py", "rubric.md"),
    *("tasks/one/instruction.md", "tasks/one/task.toml", "tasks/one/tests/test.sh"),
    "tasks/one/environment/Dockerfile",
)
DECLARED = {
    "qwen": 'model qwen {\n  base = "Qwen/Qwen3-8B"\n  renderer = qwen3_instruct\n}\n',
    "big": 'model big {\n  base = "tiny"\n}\n',
    "sums": 'env sums = problems("countdown") |> chat()\n',
    "rates": "sweep rates {\n  of = main\n  over = { rate = [1e-5, 1e-4] }\n  seeds = 3\n"
    "  metric = held.pass_at_1\n}\nparam rate: float = 1e-4\n"
    "train main {\n  optimizer = adam(rate)\n  …\n}\n"
    "eval held {\n  model = main\n  env = guess\n  metrics = [pass_at(1)]\n}\n",
    "align": "preference align {\n  …\n}\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that examples name; what is in them is not read here."""
    folder = tmp_path_factory.mktemp("examples")
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


@pytest.mark.parametrize("builtin", BUILTINS, ids=lambda b: f"{b.kind}-{b.name}")
def test_an_example_passes_the_checker(builtin: Builtin, folder: Path) -> None:
    example = example_of(builtin)
    assert re.search(rf"(?<![\w.]){re.escape(builtin.name)}(?!\w)", example)
    more = (text for name, text in DECLARED.items() if re.search(rf"\b{name}\b", example))
    source = Source(str(folder / "recipe.rl"), complete("\n".join([example, *more, ""])))
    found = compile_source(source).diagnostics
    assert [each.message for each in found if each.severity == "error"] == []


@pytest.mark.parametrize("kind", DECLARATIONS)
def test_an_example_of_a_declaration_passes_the_checker(kind: str, folder: Path) -> None:
    example = example_of_declaration(DECLARATIONS[kind])
    assert example.startswith(f"{kind} ")
    more = (text for name, text in DECLARED.items() if re.search(rf"\b{name}\b", example))
    source = Source(str(folder / "recipe.rl"), complete("\n".join([example, *more, ""])))
    found = compile_source(source).diagnostics
    assert [each.message for each in found if each.severity == "error"] == []


@pytest.mark.parametrize("kind", sorted({builtin.kind for builtin in BUILTINS}))
def test_a_kind_has_a_place_in_a_declaration(kind: str) -> None:
    declaration, param = place_of(kind)
    assert param in declaration.fields
    assert DECLARATIONS[declaration.kind] is declaration
    assert kind in KINDS
