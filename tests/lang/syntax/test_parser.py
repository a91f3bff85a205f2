"""What a recipe's text means: every form of the language, precedence and places."""

from __future__ import annotations

import re
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Lark, Token, Tree
from recipe_strategies import recipes, write

from rlc.lang.ast import (
    Amend,
    Attribute,
    Binary,
    BlockDecl,
    Bool,
    Call,
    Decl,
    Expectation,
    Expr,
    ImportDecl,
    ListExpr,
    Name,
    Negative,
    Node,
    Number,
    Quantity,
    Recipe,
    RecordExpr,
    String,
    ValueDecl,
)
from rlc.lang.source import Source
from rlc.lang.syntax import parse
from rlc.lang.syntax.lalr import run
from rlc.lang.syntax.lexer import _pattern, _plain_pattern, lex
from rlc.lang.syntax.tables import build_tables, grammar_text, load_tables

DESIGN = """\
# multi-turn Sudoku
import "lib/qwen.rl"
param learning_rate: float = 4e-5

model policy {
  base      = "Qwen/Qwen3-8B"
  lora_rank = 32
}

env sudoku = gem("game:Sudoku-v0-easy") |> concat() |> template(qwen3_game)
env mix = 3 * whodunit + 1 * gsm8k

train main {
  model     = policy
  batch     = turns(128, parallel = 64)        # episodes until 128 turns
  advantage = verl.grpo(scale = std,)
  kl        = reference(policy.base, coef = 0.01)
  on_error  = retry(3) then drop
  save      = every(20, keep = 3, ttl = 7d)  budget = $60  share = 10%
}
"""


def read(text: str) -> Recipe:
    recipe, found = parse(Source("test.rl", text))
    assert not found, found
    return recipe


def value(text: str) -> Expr:
    (decl,) = read(f"env x = {text}").decls
    assert isinstance(decl, ValueDecl)
    return decl.value


def shape(expr: Expr) -> object:
    """An expression with every operator's operands in a tuple."""
    match expr:
        case Binary():
            return shape(expr.left), expr.op, shape(expr.right)
        case Negative():
            return "-", shape(expr.operand)
        case Call():
            return f"{expr.span.text}"
        case _:
            return expr.span.text


def test_a_recipe_is_its_declarations_in_order() -> None:
    decls = read(DESIGN).decls
    assert [type(decl) for decl in decls] == [
        ImportDecl,
        ValueDecl,
        BlockDecl,
        ValueDecl,
        ValueDecl,
        BlockDecl,
    ]
    assert [decl.kind.id for decl in decls] == ["import", "param", "model", "env", "env", "train"]


def test_a_block_has_fields_wherever_the_lines_break() -> None:
    spread = read("eval e { a = 1\n b = f(2)\n}").decls
    assert spread == read("eval e { a = 1 b = f(2) }").decls
    assert spread == read("eval\ne {\na\n=\n1, b = f(\n2,\n),}").decls


def test_a_declaration_may_state_its_type() -> None:
    (decl,) = read("param rate: float = 4e-5").decls
    assert isinstance(decl, ValueDecl)
    assert decl.type is not None
    assert (decl.type.span.text, decl.value.span.text) == ("float", "4e-5")


def test_a_declaration_may_have_parameters() -> None:
    (decl,) = read(
        'env digits(size: int(1, 9) = 3, path: string, k = 2, x) = python("d.py:f")'
    ).decls
    assert isinstance(decl, ValueDecl)
    assert decl.parameters is not None
    texts = [
        [part and part.span.text for part in (parameter.name, parameter.type, parameter.default)]
        for parameter in decl.parameters
    ]
    assert texts == [
        ["size", "int(1, 9)", "3"],
        ["path", "string", None],
        ["k", None, "2"],
        ["x", None, None],
    ]
    plain, empty = read("loss a { token = 1 } loss b() { token = 1 }").decls
    assert isinstance(plain, BlockDecl)
    assert isinstance(empty, BlockDecl)
    assert (plain.parameters, empty.parameters) == (None, ())


def test_an_amendment_replaces_fields_of_what_it_names() -> None:
    amended = value("main { steps = 400 optimizer = slow }")
    assert isinstance(amended, Amend)
    assert amended.base.span.text == "main"
    assert [field.span.text for field in amended.fields] == ["steps = 400", "optimizer = slow"]
    called = value("stages.main(3) {}")
    assert isinstance(called, Amend)
    assert isinstance(called.base, Call)
    assert (called.base.span.text, called.fields) == ("stages.main(3)", ())


def test_an_expectation_compares_a_path() -> None:
    (decl,) = read("expect main.cost.high < $20 - 2").decls
    assert isinstance(decl, Expectation)
    assert shape(decl.comparison) == ("main.cost.high", "<", ("$20", "-", "2"))


def test_a_field_may_have_a_dotted_name() -> None:
    (decl,) = read("sweep s { over = { policy . lora_rank = [8] rate = 1 } a.b = c d = 1 }").decls
    assert isinstance(decl, BlockDecl)
    assert [field.name.id for field in decl.fields] == ["over", "a.b", "d"]
    over = decl.fields[0].value
    assert isinstance(over, RecordExpr)
    assert [field.name.id for field in over.fields] == ["policy.lora_rank", "rate"]


def test_two_equal_signs_compare_but_after_the_name_of_a_field() -> None:
    assert shape(value("where(a == 0, b)")) == "where(a == 0, b)"
    assert shape(value("a + 1 != b")) == (("a", "+", "1"), "!=", "b")
    recipe, found = parse(Source("test.rl", "train t { a = x.y seed == 1 b = c d == 2 }"))
    assert [diagnostic.code for diagnostic in found] == ["RL0010", "RL0010"]
    (decl,) = recipe.decls
    assert isinstance(decl, BlockDecl)
    assert [field.span.text for field in decl.fields][1::2] == ["seed == 1", "d == 2"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1_000", 1000),
        ("0.5", 0.5),
        ("4e-5", 4e-5),
        ("$25", (25, "$")),
        ("$0.5", (0.5, "$")),
        ("90s", (90, "s")),
        ("5m", (5, "m")),
        ("2h", (2, "h")),
        ("1.5d", (1.5, "d")),
        ("10%", (10, "%")),
        (r'"a \"b\" \\ \n \t"', 'a "b" \\ \n \t'),
        ('"# no comment"', "# no comment"),
        ("true", True),
        ("false", False),
    ],
)
def test_a_literal_has_its_value(text: str, expected: object) -> None:
    match value(text):
        case Quantity(value=number, unit=unit):
            assert (number, unit) == expected
        case Number(value=found) | String(value=found) | Bool(value=found):
            assert found == expected
            assert type(found) is type(expected)
        case other:
            pytest.fail(f"{other}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3 * a + 1 * b", (("3", "*", "a"), "+", ("1", "*", "b"))),
        ("a - b - c", (("a", "-", "b"), "-", "c")),
        ("a / b * c", (("a", "/", "b"), "*", "c")),
        ("a |> f() |> g()", (("a", "|>", "f()"), "|>", "g()")),
        ("3 * (a |> f())", ("3", "*", ("a", "|>", "f()"))),
        ("(3 * a + b) |> f()", ((("3", "*", "a"), "+", "b"), "|>", "f()")),
        ("-a * b", (("-", "a"), "*", "b")),
        ("-(a * b)", ("-", ("a", "*", "b"))),
        ("a - -b", ("a", "-", ("-", "b"))),
        ("a |> f() then drop", (("a", "|>", "f()"), "then", "drop")),
        ("a then b then c", (("a", "then", "b"), "then", "c")),
    ],
)
def test_operators_bind_as_the_grammar_says(text: str, expected: object) -> None:
    assert shape(value(text)) == expected


@pytest.mark.parametrize("text", ["3 * a |> f()", "a |> f() + b", "-a |> f()"])
def test_a_pipeline_in_arithmetic_needs_parentheses(text: str) -> None:
    _, (error,) = parse(Source("test.rl", f"env x = {text}"))
    assert "parentheses" in (error.help or "")


def test_calls_take_positions_and_names() -> None:
    call = value("verl.grpo(1, a.b, scale = [x, {y = 2}])")
    assert isinstance(call, Call)
    assert isinstance(call.func, Attribute)
    assert [argument.name and argument.name.id for argument in call.args] == [None, None, "scale"]
    items = call.args[2].value
    assert isinstance(items, ListExpr)
    assert isinstance(items.items[1], RecordExpr)


def test_keywords_are_names_where_they_cannot_be_keywords() -> None:
    (decl,) = read("true then { true = then.false  false = f(then = 1) }").decls
    assert isinstance(decl, BlockDecl)
    assert (decl.kind.id, decl.name.id) == ("true", "then")
    assert [field.name.id for field in decl.fields] == ["true", "false"]


def nodes(node: Any) -> list[Node]:
    found = [node] if isinstance(node, Node) else []
    for attribute in attrs.fields(type(node)):
        part = getattr(node, attribute.name)
        for child in part if isinstance(part, tuple) else (part,):
            if isinstance(child, Node):
                found += nodes(child)
    return found


@given(recipes, st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_every_node_knows_exactly_its_characters(recipe: Recipe, seed: int) -> None:
    source = Source("test.rl", write(recipe, seed))
    parsed, found = parse(source)
    assert not found
    assert parsed == recipe
    for node in nodes(parsed)[1:]:
        text = node.span.text
        assert node.span.source is source
        assert text == text.strip()
        if isinstance(node, Name):
            assert re.sub(r"#[^\n]*|\s", "", text) == node.id  # a dotted one may be spaced
        elif isinstance(node, Decl):
            assert read(text).decls == (node,)
        elif isinstance(node, Expr):
            assert value(text) == node


LARK = Lark(grammar_text(), parser="lalr", start="recipe")


def lark_tree(text: str) -> object:
    """The same text parsed by lark itself: an independent reader of the grammar."""

    def plain(node: Tree[Token] | Token) -> object:
        if isinstance(node, Tree):
            return node.data, [plain(child) for child in node.children]
        return str(node)

    return plain(LARK.parse(text))


@given(recipes, st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_the_machine_reads_what_lark_reads(recipe: Recipe, seed: int) -> None:
    text = write(recipe, seed)
    source, tables = Source("test.rl", text), load_tables()

    def build(action: str, children: list[Any], start: int, end: int) -> object:
        plain = [text[c.start : c.end] if hasattr(c, "kind") else c for c in children]
        return action, plain

    assert run(tables, "recipe", lex(source, tables).tokens, build) == lark_tree(text)


def test_the_grammar_on_disk_is_what_the_cache_holds() -> None:
    assert set(load_tables().words) == set(build_tables(grammar_text()).words)


@given(
    st.text(st.sampled_from("ab_ 1,.:=-+$%/|>#\n\t()\"é'!<{"), max_size=12)
    | st.builds(write, recipes, st.integers(0, 2**32))
)
def test_a_plain_word_is_what_it_is_among_all_words(text: str) -> None:
    tables = load_tables()
    words = tuple(item for item in tables.terminals.items() if item[0] not in tables.soft)
    for position in range(len(text)):
        plain = _plain_pattern(words).match(text, position)
        if plain is not None and plain.lastgroup != "SPACE":
            whole = _pattern(words).match(text, position)
            assert whole is not None
            assert (plain.lastgroup, plain.span()) == (whole.lastgroup, whole.span())
