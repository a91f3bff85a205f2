"""What editors read with tree-sitter is what the compiler reads, and has its colours."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from golden import check_golden
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import RECIPES, ROOT
from recipe_strategies import recipes, write
from tree_sitter_recipes import FOLDER, TreeReader, compile_language, walk, wrong_nodes

from rlc.lang.ast import Node
from rlc.lang.source import Source
from rlc.lang.syntax import parse
from rlc.version import __version__
from tools.editor_grammars import DIGEST, EDITORS, digest, generate, tree_sitter

CASES = Path(__file__).parent / "cases"
ALL = [*RECIPES.rglob("*.rl"), *(ROOT / "rlc" / "projects").rglob("*.rl")]
TEXTS = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in sorted(ALL)}
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "rlc" / "lang").rglob("*.md")]
BROKEN = [*(ROOT / "tests" / "lang").rglob("*.rl"), *(ROOT / "tests" / "check").rglob("*.rl")]
QUERIES = [FOLDER / "queries", EDITORS / "helix" / "queries", EDITORS / "zed" / "languages" / "rl"]
# What only the compiler knows: a number without a value, and one number that reads as two.
BEYOND = {"RL0014", "RL0017"}


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("tree_sitter")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    return compile_language(compiler, tmp_path_factory.mktemp("tree_sitter"))


@pytest.fixture(scope="module")
def parser(language: Any) -> Any:
    from tree_sitter import Parser

    return Parser(language)


def check_agrees(parser: Any, text: str, name: str = "test.rl") -> bool:
    """Fail unless tree-sitter reads what the compiler reads; return whether that is a recipe."""
    source = Source(name, text)
    recipe, found = parse(source)
    errors = [diagnostic for diagnostic in found if diagnostic.severity == "error"]
    root = parser.parse(text.encode()).root_node
    wrong = wrong_nodes(root)
    assert bool(wrong) == bool(errors), (name, text, wrong, errors)
    if not errors:
        read = TreeReader.of(source).recipe(root)
        assert read == recipe, (name, text)
        assert list(places(read)) == list(places(recipe)), (name, text)
    return not errors


def places(node: Any) -> Iterator[tuple[type, int, int]]:
    """Yield the kind of each node of the compiler's tree and where it stands."""
    yield type(node), node.span.start, node.span.end
    for attribute in attrs.fields(type(node)):
        part = getattr(node, attribute.name)
        for child in part if isinstance(part, tuple) else (part,):
            if isinstance(child, Node):
                yield from places(child)


def test_recipes_and_templates_are_read_as_the_compiler_reads_them(parser: Any) -> None:
    assert len(TEXTS) > 40
    for name, text in TEXTS.items():
        assert check_agrees(parser, text, name)


def test_examples_of_the_pages_are_read_as_the_compiler_reads_them(parser: Any) -> None:
    blocks = [
        block
        for path in PAGES
        for block in re.findall(r"^ *```rl\n(.*?)^ *```", path.read_text("utf-8"), re.M | re.S)
    ]
    read = [check_agrees(parser, block) for block in blocks]
    assert sum(read) > 100
    assert not all(read)  # some leave a part out, with `…`


def test_what_the_compiler_refuses_is_refused(parser: Any) -> None:
    texts = [path.read_text("utf-8") for path in BROKEN]
    read = [check_agrees(parser, text) for text in texts]
    assert 5 < len(read) - sum(read) < len(read)


def test_a_generated_recipe_is_read_as_the_compiler_reads_it(parser: Any) -> None:
    @given(recipes, st.integers(0, 2**32))
    @settings(max_examples=20, deadline=None)
    def check(recipe: Any, seed: int) -> None:
        assert check_agrees(parser, write(recipe, seed))

    check()


PIECES = st.sampled_from(
    [*" ,.:=-+$%/|>#\n()[]{}\"é'!<;\\\t", "then", "true", "x", "1", "5ms", "1_", "//", "==", "7d"]
)


def test_a_slip_is_refused_where_the_compiler_refuses_it(parser: Any) -> None:
    @given(st.sampled_from(list(TEXTS.values())), st.floats(0, 1), st.just("") | PIECES)
    @settings(max_examples=100, deadline=None)
    def check(text: str, share: float, piece: str) -> None:
        at = int(share * len(text))
        slipped = text[:at] + piece + text[at + (not piece) :]
        _, found = parse(Source("test.rl", slipped))
        if not any(diagnostic.code in BEYOND for diagnostic in found):
            check_agrees(parser, slipped)

    check()


@pytest.mark.parametrize("word", ["5ms", "1_", "0x10", "5.", "1.5.2", "$5k", "10%x", "4e-", "1.a"])
def test_what_is_no_number_disturbs_nothing_around_it(parser: Any, word: str) -> None:
    root = parser.parse(f"train main {{ a = {word} b = 3 }}".encode()).root_node
    (wrong,) = wrong_nodes(root)
    assert (wrong.type, wrong.text.decode()) == ("malformed", word)
    assert [node.text for node in walk(root) if node.type == "number"] == [b"3"]


def test_what_only_the_compiler_refuses(parser: Any) -> None:
    """The list in the README of tree-sitter-rl."""
    for value in ("1e999", "[1,024]", "[" * 120 + "]" * 120):
        text = f"env x = {value}"
        assert [d for d in parse(Source("test.rl", text))[1] if d.severity == "error"]
        assert not wrong_nodes(parser.parse(text.encode()).root_node)


@pytest.mark.parametrize("folder", QUERIES, ids=lambda folder: folder.relative_to(EDITORS).parts[0])
def test_queries_fit_the_grammar(language: Any, folder: Path) -> None:
    from tree_sitter import Query

    paths = sorted(folder.glob("*.scm"))
    assert len(paths) >= 5
    for path in paths:
        query = Query(language, path.read_text("utf-8"))
        assert query.pattern_count, path


def captured(language: Any, parser: Any, text: str, name: str) -> list[tuple[Any, str]]:
    """Nodes with what a query captures them as, in the order of the text."""
    from tree_sitter import Query, QueryCursor

    query = Query(language, (FOLDER / "queries" / f"{name}.scm").read_text("utf-8"))
    found = QueryCursor(query).captures(parser.parse(text.encode()).root_node)
    pairs = [(node, capture) for capture, nodes in found.items() for node in nodes]
    return sorted(pairs, key=lambda pair: (pair[0].start_byte, -pair[0].end_byte))


@pytest.mark.parametrize("name", ["highlights", "locals", "folds"])
def test_a_recipe_has_these_captures(language: Any, parser: Any, name: str) -> None:
    text = (CASES / "colours.rl").read_text("utf-8")
    lines = [
        f"{node.start_point[0] + 1}:{node.start_point[1] + 1} "
        f"{' '.join(node.text.decode().split())[:40]}  @{capture}"
        for node, capture in captured(language, parser, text, name)
    ]
    check_golden(CASES / f"colours.{name}.txt", "\n".join(lines) + "\n")


def test_no_node_has_two_colours(language: Any, parser: Any) -> None:
    """Editors disagree on which of two patterns wins."""
    for name, text in TEXTS.items():
        pairs = captured(language, parser, text, "highlights")
        assert len({node.id for node, _ in pairs}) == len(pairs), name


def test_the_parser_is_of_the_grammar(tmp_path: Path) -> None:
    """And, where the tool is there, exactly what it writes."""
    advice = "src/ is not up to date: python -m tools.editor_grammars"
    assert DIGEST.read_text("utf-8") == digest(), advice
    if tree_sitter() is None:
        pytest.skip("tree-sitter is not there")
    shutil.copy(FOLDER / "grammar.js", tmp_path)
    shutil.copy(FOLDER / "package.json", tmp_path)
    generate(tmp_path)
    for path in (tmp_path / "src").rglob("*.*"):
        if path.is_file():
            here = FOLDER / path.relative_to(tmp_path)
            assert here.read_text("utf-8") == path.read_text("utf-8"), advice


def test_manifests_name_files_that_are_there_and_this_version() -> None:
    package = json.loads((FOLDER / "package.json").read_text("utf-8"))
    manifest = json.loads((FOLDER / "tree-sitter.json").read_text("utf-8"))
    (grammar,), (old,) = manifest["grammars"], package["tree-sitter"]
    assert package["version"] == manifest["metadata"]["version"] == __version__
    for kind in ("highlights", "injections", "locals"):
        assert grammar[kind] == old[kind]
        assert (FOLDER / grammar[kind]).is_file()
    zed = EDITORS / "zed"
    extension, language, crate = (
        tomllib.loads((zed / name).read_text("utf-8"))
        for name in ("extension.toml", "languages/rl/config.toml", "Cargo.toml")
    )
    assert extension["version"] == crate["package"]["version"] == __version__
    assert ROOT / extension["grammars"][language["grammar"]]["path"] == FOLDER
    assert extension["language_servers"]["rlc"]["languages"] == [language["name"]]
