"""Where names are declared and used, across files, and what changes with another name."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import RECIPES

from rlc.compile.recipe import compile_source
from rlc.lang.source import Source
from rlc.lsp.documents import Document, Documents, definition, name_at, uses, why_not

LIBRARY = 'model policy {\n  base = "tiny"\n}\nenv spell = gem("rg:spell_backward") |> chat()\n'
MAIN = """import "lib.rl"
loss own(tau = 1.0) { part = tau * adv  token = -part * logp }
train main { model = policy  env = spell  loss = own(tau = 2.0) }
train other { model = policy  env = spell  teacher = { spell = reverse_kl(policy) } }
sweep s { of = main  over = { policy.lora_rank = [8, 16] }  metric = main.reward }
expect main.cost.high < $3
claim c { of = s  that = at(policy.lora_rank == 8) > 0.5 }
"""


@pytest.fixture
def project(tmp_path: Path) -> tuple[Documents, Document]:
    (tmp_path / "lib.rl").write_text(LIBRARY)
    (tmp_path / "second.rl").write_text('import "lib.rl"\ntrain main { model = policy }\n')
    (tmp_path / "alone.rl").write_text('model policy { base = "tiny" }\n')
    (tmp_path / "rewards.py").write_text("import math\n\ndef reward(reply):\n    return 1.0\n")
    documents = Documents((str(tmp_path),))
    return documents, documents.put(str(tmp_path / "main.rl"), MAIN, 1)


def texts(documents: Documents, document: Document, word: str, at: int = 0) -> list[str]:
    """The places of a name: file and line; the name is the ``at``-th word of that text."""
    offset = -1
    for _ in range(at + 1):
        offset = document.source.text.index(word, offset + 1)
    name = name_at(documents, document, offset)
    assert name is not None
    return sorted(
        f"{Path(place.document.path).name}:{place.document.source.position(place.start)[0]}"
        for place in uses(documents, document, name)
    )


def test_uses_are_found_in_every_file_that_sees_the_name(
    project: tuple[Documents, Document],
) -> None:
    documents, main = project
    every = ["lib.rl:1", "main.rl:3", "main.rl:4", "main.rl:4", "main.rl:5", "main.rl:7"]
    every.append("second.rl:2")
    assert texts(documents, main, "policy") == every
    assert texts(documents, main, "spell") == ["lib.rl:4", "main.rl:3", "main.rl:4", "main.rl:4"]
    # The stage of that name in another recipe is another one.
    assert texts(documents, main, "main") == ["main.rl:3", "main.rl:5", "main.rl:5", "main.rl:6"]


def test_a_parameter_is_used_in_its_own_declaration(project: tuple[Documents, Document]) -> None:
    documents, main = project
    assert texts(documents, main, "tau", 1) == ["main.rl:2", "main.rl:2"]
    assert texts(documents, main, "part") == ["main.rl:2", "main.rl:2"]


def test_definitions_are_found_through_imports_and_in_python(
    project: tuple[Documents, Document], tmp_path: Path
) -> None:
    documents, main = project
    place = definition(documents, main, MAIN.index("policy"))
    assert place is not None
    assert Path(place.document.path).name == "lib.rl"
    assert LIBRARY[place.start : place.end] == "policy"
    imported = definition(documents, main, MAIN.index("lib.rl"))
    assert imported is not None
    assert Path(imported.document.path).name == "lib.rl"
    code = 'env e = rows("x.jsonl", grader = grade_with("rewards.py:reward"))'
    other = documents.put(str(tmp_path / "code.rl"), code, 1)
    function = definition(documents, other, code.index("rewards.py"))
    assert function is not None
    assert function.document.source.text[function.start : function.end] == "reward"
    assert definition(documents, other, code.index("x.jsonl")) is None


def test_unsaved_text_counts(project: tuple[Documents, Document], tmp_path: Path) -> None:
    documents, main = project
    documents.put(str(tmp_path / "lib.rl"), LIBRARY.replace("policy", "small"), 1)
    assert "small" in documents.scope(main)
    assert "policy" not in documents.scope(main)
    documents.close(str(tmp_path / "lib.rl"))
    assert "policy" in documents.scope(main)


def test_a_name_that_cannot_be_taken_is_refused(project: tuple[Documents, Document]) -> None:
    documents, main = project
    name = name_at(documents, main, MAIN.index("policy"))
    assert name is not None
    assert why_not(documents, main, name, "small") is None
    for new, reason in (("spell", "declared already"), ("gem", "builtin"), ("a b", "not a name")):
        assert reason in str(why_not(documents, main, name, new))
    assert "not a name" in str(why_not(documents, main, name, "true"))


@pytest.mark.parametrize("recipe", ["two_stages", "learning_rates", "own_loss", "distillation"])
def test_a_recipe_means_the_same_with_other_names(recipe: str) -> None:
    """Each declaration renamed, its imports with it: what compiled before compiles again."""
    documents = Documents()
    path = str(RECIPES / f"{recipe}.rl")
    document = documents.get(path)
    assert document is not None
    for decl in list(documents.scope(document).values()):
        renamed = Documents()
        place = documents.place_of(decl)
        assert place is not None
        name = name_at(documents, place.document, place.start)
        assert name is not None
        assert why_not(documents, document, name, f"{name.name}_x") is None
        texts = {d.path: d.source.text for d in documents.closure(document).values()}
        for place in sorted(uses(documents, document, name), key=lambda p: -p.start):
            text = texts[place.document.path]
            texts[place.document.path] = f"{text[: place.end]}_x{text[place.end :]}"
        for file, text in texts.items():
            renamed.put(file, text, 1)
        source = Source(path, texts[path])
        assert f"{name.name}_x" in "".join(texts.values())
        assert not compile_source(source, read=renamed.read).diagnostics.has_errors, name.name
