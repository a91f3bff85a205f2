"""Answers in a text with mistakes elsewhere, and after changes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import RECIPES

from rlc.lang.source import Source
from rlc.lsp.completion import complete, signature_help
from rlc.lsp.describe import hover
from rlc.lsp.documents import Document, Documents, TextRange, definition, name_at, note_at, uses
from rlc.lsp.protocol import Positions

GOOD = """# What is trained.
model policy { base = "tiny" }
env spell = gem("rg:spell_backward") |> chat()
"""
MAIN = """train main {
  model     = policy
  env       = spell
  loss      = ppo(clip_low = 0.1)
  optimizer = adam(1e-4)
}
"""
BROKEN = (
    "model other { base = }\n",
    "env x = gem(\n",
    "train a {\n  steps = \n",
    'env x = gem("\n',
    "model a {\n  ([\n",
    "loss l { token = }}}\n",
    "é $ ' ?\n",
    "trian b { steps = 1 }\n",
    "env x = nowhere(3) |> chat(\n",
)
INSIDE = (
    "  nothing = such\n",
    "  batch = groups(16,, 8)\n",
    "  sampling = \n",
    "  kl 3 = reference()\n",
    "  epochs == 3\n",
    "  overlap = ppo(clip_low = spell)\n",
)
mistakes = pytest.mark.parametrize(
    "text",
    [
        *(f"{broken}{GOOD}{MAIN}" for broken in BROKEN),
        *(f"{GOOD}{MAIN}{broken}" for broken in BROKEN),
        *(f"{GOOD}{MAIN.replace('{', '{' + chr(10) + wrong, 1)}" for wrong in INSIDE),
        *(f"{GOOD}{MAIN.replace('}', wrong + '}')}" for wrong in INSIDE),
    ],
)


def opened(text: str) -> tuple[Documents, Document]:
    documents = Documents()
    return documents, documents.put("a.rl", text, 1)


def of_main(text: str, word: str) -> int:
    """The offset of a word in the declaration of `main`."""
    return text.index(word, text.index("train main"))


@mistakes
def test_a_word_is_explained(text: str) -> None:
    documents, document = opened(text)

    def said(word: str) -> str:
        at = note_at(documents, document, of_main(text, word))
        assert at is not None
        return hover(at, text[at.start : at.end], "a.rl") or ""

    assert "**loss** of `train`" in said("loss ")
    assert "clip_low" in said("ppo(clip_low = 0")
    assert "What is trained." in said("policy\n")
    assert "**learning_rate**" in said("1e-4")


@mistakes
def test_a_name_is_followed(text: str) -> None:
    documents, document = opened(text)
    for name, declared in (("policy\n", "policy {"), ("spell\n", "spell =")):
        place = definition(documents, document, of_main(text, name))
        start = text.index(declared)
        assert place == TextRange(document, start, start + len(name) - 1)
        named = name_at(documents, document, start)
        assert named is not None
        assert of_main(text, name) in {use.start for use in uses(documents, document, named)}


@mistakes
def test_what_fits_is_proposed(text: str) -> None:
    documents, document = opened(text)
    positions = Positions(document.source)

    def proposed(word: str) -> set[str]:
        found = complete(documents, document, of_main(text, word), positions)
        return {item.label for item in found}

    assert {"ppo", "cispo"} <= proposed("ppo(clip_low = 0")
    assert {"policy"} <= proposed("policy\n") < proposed("policy\n") | {"spell"}
    assert {"spell", "gem"} <= proposed("spell\n")
    assert {"clip_low", "clip_high"} <= proposed("clip_low = 0")
    assert {"learning_rate"} <= proposed("1e-4")
    help_ = signature_help(documents, document, of_main(text, "1e-4"))
    assert help_ is not None
    assert help_.signatures[0].label.startswith("adam(")


def test_what_cannot_be_read_is_still_declared() -> None:
    text = f"env digits = gem(\n{MAIN.replace('spell', 'digits')}"
    documents, document = opened(text)
    place = definition(documents, document, of_main(text, "digits"))
    assert place == TextRange(document, 4, 10)
    found = complete(documents, document, of_main(text, "digits"), Positions(document.source))
    assert "digits" in {item.label for item in found}


def test_arguments_are_understood_where_a_call_does_not_belong() -> None:
    text = "train main { loss = adam(1e-4, beta1 = 0.9) }"
    documents, document = opened(text)
    roles = {text[note.start : note.end]: note.role for note in documents.notes(document)[0]}
    assert roles["adam"] == "builtin"
    assert roles["beta1"] == "argument"
    found = signature_help(documents, document, text.index("0.9"))
    assert found is not None
    assert found.active_parameter == 1


def noted(documents: Documents, document: Document) -> list[object]:
    """The notes on a text, by what can be compared."""
    words, arguments = documents.notes(document)
    named = [
        (n.role, n.start, n.end, getattr(n.what, "name", n.what), getattr(n.want, "name", None))
        for n in words
    ]
    return [*map(str, named), *sorted({(each.start, each.end) for each in arguments})]


@given(st.data())
def test_notes_after_a_change_are_those_of_the_whole_text(data: st.DataObject) -> None:
    """Only what changed is read again: what is said of the rest is as if all had been."""
    name = data.draw(st.sampled_from(["debate", "learning_rates", "judged", "two_stages"]))
    path = RECIPES / f"{name}.rl"
    text, documents = path.read_text("utf-8"), Documents()
    documents.notes(documents.put(str(path), text, 0))
    for version in range(1, 4):
        start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        junk = data.draw(st.text('{}()[]"=|>,.#\n ax1$', max_size=4))
        text = text[:start] + junk + text[min(end, start + 8) :]
        changed = documents.put(str(path), text, version)
        assert noted(documents, changed) == noted(Documents(), Document(Source(str(path), text)))
