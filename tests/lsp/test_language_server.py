"""The language server as editors meet it: the real process, spoken to by a client library."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lsp_client import Editor, at
from lsprotocol import types
from paths import RECIPES, ROOT
from pygls.exceptions import JsonRpcException

from rlc.compile.recipe import check
from rlc.lsp.documents import uri_of

pytestmark = pytest.mark.slow  # a process that is started once for all

LIBRARY = """model policy {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward") |> chat(instruction = "Put it inside \\\\boxed{}.")
"""
MAIN = """import "lib.rl"

train main {
  model     = policy
  env       = spell
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 20
}
"""


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    folder = tmp_path_factory.mktemp("project")
    (folder / "lib.rl").write_text(LIBRARY)
    (folder / "main.rl").write_text(MAIN)
    editor = Editor(folder)
    yield editor
    assert editor.close() == 0
    assert not editor.logged


def test_findings_follow_the_text(editor: Editor) -> None:
    path = editor.open("one.rl", MAIN)
    assert editor.findings(path) == []
    editor.change(path, MAIN.replace("steps ", "stepps ").replace("(16,", "(1_6_,"))
    (number, field) = editor.findings(path)
    assert (field.code, field.severity) == ("RL0104", types.DiagnosticSeverity.Error)
    assert field.range == types.Range(types.Position(10, 2), types.Position(10, 8))
    assert "did you mean `steps`?" in field.message
    assert number.range.start.line == 5
    editor.change(path, MAIN)
    assert editor.findings(path) == []
    editor.close_file(path)


def test_a_text_that_is_not_begun_has_no_mistakes(editor: Editor) -> None:
    path = editor.open("new.rl", "\n")
    assert editor.findings(path) == []
    assert "train" in [item.label for item in editor.ask("completion", path, at=(0, 0)).items]
    editor.change(path, "param rate = 1")
    assert [found.code for found in editor.findings(path)] == ["RL0301"]  # no stage yet
    editor.close_file(path)


def test_windows_line_ends_and_texts_without_a_file(editor: Editor) -> None:
    text = MAIN.replace("steps ", "stepps ").replace("\n", "\r\n")
    path = editor.open("crlf.rl", f"\ufeff{text}")
    (field,) = editor.findings(path)
    assert field.range == types.Range(types.Position(10, 2), types.Position(10, 8))
    editor.change(path, text.replace("stepps", "steps "))
    options = types.FormattingOptions(tab_size=2, insert_spaces=True)
    assert editor.findings(path) == []
    assert len(editor.ask("formatting", path, options=options)) == 1  # of `steps `, no line end
    editor.close_file(path)


def test_findings_are_those_of_rlc_check(editor: Editor) -> None:
    for name in ("sudoku.rl", "two_stages.rl", "learning_rates.rl"):
        path = editor.open(str(RECIPES / name))
        shown = {(f.code, f.range.start.line + 1) for f in editor.findings(path)}
        found = {(f.code, f.span.line) for f in check(path) if f.span}
        assert shown == found
        editor.close_file(path)


def test_what_imports_a_file_is_checked_with_its_unsaved_text(editor: Editor) -> None:
    main, library = editor.open("main.rl"), editor.open("lib.rl")
    assert editor.findings(main) == []
    assert editor.findings(library) == []  # it has no stage, but another file imports it
    editor.change(library, LIBRARY.replace("model policy", "model small"))
    (unknown,) = editor.findings(main, until=lambda found: len(found) == 1)
    assert (unknown.code, unknown.range.start.line) == ("RL0102", 3)
    editor.change(library, LIBRARY.replace("lora_rank", "lora_rnk"))
    editor.findings(library, until=lambda found: [f.code for f in found] == ["RL0104"])
    editor.findings(main, until=lambda found: found == [])  # it is said where it is
    editor.close_file(library)  # unsaved text is gone
    editor.findings(library, until=lambda found: found == [])
    editor.close_file(main)


def test_positions_are_in_utf_16(editor: Editor) -> None:
    text = 'model policy { base = "😀é"  nope = 1 }\n'
    path = editor.open("emoji.rl", text)
    nope = next(found for found in editor.findings(path) if found.code == "RL0104")
    assert nope.range.start.character == text.index("nope") + 1  # the emoji counts twice
    hover = editor.ask("hover", path, at=(0, text.index("nope") + 1))
    assert hover is None
    editor.close_file(path)


def test_completion_in_a_text_that_does_not_parse(editor: Editor) -> None:
    path = editor.open("typing.rl", "")
    for text, expected in (
        (MAIN.replace("ppo", "").replace("importance_sampling()", "¦"), "cispo"),
        (MAIN.replace("grpo()", "¦"), "rloo"),
        (MAIN.replace('"lib.rl"', '"¦'), "lib.rl"),
        (MAIN.replace("model     = policy", "model = ¦"), "policy"),
        (MAIN + "\nenv é = 3 😀 'x\nexpect main.¦", "cost.high"),
    ):
        typed, where = at(text)
        editor.change(path, typed)
        items = editor.ask("completion", path, at=where).items
        assert expected in [item.label for item in items]
    loss = next(i for i in editor.ask("completion", path, at=(0, 0)).items if i.label == "loss")
    assert "`token`" in editor.resolve("completionItem", loss).documentation.value
    editor.close_file(path)


def test_fixes_are_offered_one_by_one_and_together(editor: Editor) -> None:
    text = MAIN.replace("steps ", "stepps ").replace("sampling ", "samplng ")
    path = editor.open("fixes.rl", text)
    found = editor.findings(path)
    whole = types.Range(types.Position(0, 0), types.Position(99, 0))
    actions = editor.ask(
        "codeAction", path, range=whole, context=types.CodeActionContext(diagnostics=found)
    )
    assert [a.title for a in actions] == [
        "Write `sampling`",
        "Write `steps`",
        "Apply every clear correction",
    ]
    assert all(a.is_preferred for a in actions[:2])
    assert actions[0].edit.changes[uri_of(str(path))][0].new_text == "sampling"
    context = types.CodeActionContext(diagnostics=[], only=["source.fixAll"])
    (every,) = editor.ask("codeAction", path, range=whole, context=context)
    edit = editor.resolve("codeAction", every).edit
    assert applied(text, edit.changes[uri_of(str(path))]) == MAIN
    here = types.Range(types.Position(3, 0), types.Position(3, 0))
    quick = types.CodeActionContext(diagnostics=[], only=[types.CodeActionKind.QuickFix])
    assert not editor.ask("codeAction", path, range=here, context=quick)
    editor.close_file(path)


def test_formatting_changes_only_lines_that_change(editor: Editor) -> None:
    text = MAIN.replace("steps     = 20", "steps=20")
    path = editor.open("format.rl", text)
    options = types.FormattingOptions(tab_size=2, insert_spaces=True)
    edits = editor.ask("formatting", path, options=options)
    assert len(edits) == 1
    assert edits[0].range.start.line == 10
    assert applied(text, edits) == MAIN
    editor.change(path, text.replace("}", ""))
    assert editor.ask("formatting", path, options=options) is None
    editor.close_file(path)


def test_names_are_followed_and_renamed_across_files(editor: Editor) -> None:
    path = editor.open("main.rl")
    where = (3, 16)  # policy
    place = editor.ask("definition", path, at=where)
    assert place.uri == uri_of(str(editor.folder / "lib.rl"))
    assert place.range == types.Range(types.Position(0, 6), types.Position(0, 12))
    context = types.ReferenceContext(include_declaration=False)
    uses = editor.ask("references", path, at=where, context=context)
    assert [use.uri for use in uses] == [uri_of(str(path))]
    assert editor.ask("prepareRename", path, at=where).start.character == 14
    assert editor.ask("prepareRename", path, at=(3, 3)) is None  # a field is not the author's
    edit = editor.ask("rename", path, at=where, new_name="small")
    assert {uri.rpartition("/")[2] for uri in edit.changes} == {"main.rl", "lib.rl"}
    with pytest.raises(JsonRpcException, match="`gem` is the name of a builtin"):
        editor.ask("rename", path, at=where, new_name="gem")
    assert len(editor.ask("documentHighlight", path, at=where)) == 1
    editor.close_file(path)


def test_hover_signature_hints_symbols_and_colours(editor: Editor) -> None:
    path = editor.open("main.rl")
    editor.findings(path)
    hover = editor.ask("hover", path, at=(2, 8))  # main
    assert "train main {" in hover.contents.value
    assert "free: it runs on this machine" in hover.contents.value
    signature = editor.ask("signatureHelp", path, at=(9, 19))
    assert signature.signatures[0].label.startswith("adam(learning_rate")
    whole = types.Range(types.Position(0, 0), types.Position(99, 0))
    labels = [hint.label for hint in editor.ask("inlayHint", path, range=whole)]
    assert "free" in labels
    assert "learning_rate =" in labels
    (imported, main) = editor.ask("documentSymbol", path)
    assert (imported.name, main.name, main.detail) == ("lib.rl", "main", "train")
    assert [field.name for field in main.children][:2] == ["model", "env"]
    data = editor.ask("semanticTokens/full", path).data
    legend = editor.capabilities.semantic_tokens_provider.legend
    assert colours(MAIN, data, legend.token_types)[:4] == [
        *(("import", "keyword"), ("train", "keyword"), ("main", "variable"), ("model", "property")),
    ]
    editor.close_file(path)


def test_a_text_that_is_not_open_has_no_answer(editor: Editor) -> None:
    path = editor.folder / "nowhere.rl"
    assert editor.ask("hover", path, at=(0, 0)) is None
    assert editor.ask("completion", path, at=(0, 0)) is None
    assert editor.ask("definition", path, at=(0, 0)) is None


def test_without_pygls_the_command_says_what_is_missing() -> None:
    code = (
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'pygls' else find(name, *a)\n"
        "from rlc.cli.main import main\nsys.exit(main(['lsp']))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert result.returncode == 2
    assert "pip install 'rlc[lsp]'" in result.stderr


def applied(text: str, edits: list[Any]) -> str:
    """A text with the edits of a client, which all refer to the text as it was."""
    lines = text.split("\n")

    def offset(position: types.Position) -> int:
        return sum(len(line) + 1 for line in lines[: position.line]) + int(position.character)

    for edit in sorted(edits, key=lambda edit: offset(edit.range.start), reverse=True):
        text = text[: offset(edit.range.start)] + edit.new_text + text[offset(edit.range.end) :]
    return text


def colours(text: str, data: list[int], kinds: list[str]) -> list[tuple[str, str]]:
    """The words that are coloured, as a client reads them."""
    lines, found = text.split("\n"), []
    line = column = 0
    for index in range(0, len(data), 5):
        delta, since, length, kind, _ = data[index : index + 5]
        line, column = line + delta, since + (column if delta == 0 else 0)
        found.append((lines[line][column : column + length], kinds[kind]))
    return found


def test_the_folder_of_a_recipe_is_where_its_paths_start(editor: Editor, tmp_path: Path) -> None:
    """As on the command line, also where the editor's own folder is another one."""
    (tmp_path / "rows.jsonl").write_text('{"question": "1 + 1", "answer": "2"}\n' * 20)
    text = MAIN.replace('import "lib.rl"', LIBRARY).replace(
        'gem("rg:spell_backward") |> chat(instruction = "Put it inside \\\\boxed{}.")',
        'rows("rows.jsonl", grader = exact())',
    )
    path = tmp_path / "a.rl"
    path.write_text(text)
    opened = editor.open(str(path))
    assert [f.code for f in editor.findings(opened)] == [f.code for f in check(path)]
    editor.close_file(opened)
