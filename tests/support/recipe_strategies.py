"""Random recipes for property tests: syntax trees, and texts that read as them."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from random import Random

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rlc.lang.ast import (
    COMPARISONS,
    Amend,
    Argument,
    Attribute,
    Binary,
    BlockDecl,
    Bool,
    Call,
    Decl,
    Expectation,
    Expr,
    Field,
    ImportDecl,
    ListExpr,
    Name,
    Negative,
    Number,
    Parameter,
    Quantity,
    Recipe,
    RecordExpr,
    String,
    ValueDecl,
)
from rlc.lang.source import Source, Span

NOWHERE = Span(Source("generated", ""), 0, 0)
KEYWORDS = {"then", "true", "false"}
KINDS = ["import", "param", "model", "env", "advantage", "loss", "train", "eval", "sweep", "expect"]

names = st.builds(
    Name,
    st.just(NOWHERE),
    st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda n: n not in KEYWORDS),
)
# The words of the grammar are names where it cannot use them, as those of fields.
field_names = names | st.builds(Name, st.just(NOWHERE), st.sampled_from(sorted(KEYWORDS)))
values = st.one_of(
    st.integers(0, 10**12), st.floats(0, 1e300, allow_nan=False, allow_subnormal=False)
)
strings = st.builds(String, st.just(NOWHERE), st.text(st.characters(codec="utf-8"), max_size=12))
literals = st.one_of(
    st.builds(Number, st.just(NOWHERE), values),
    st.builds(Quantity, st.just(NOWHERE), values, st.sampled_from("$smhd%")),
    strings.filter(lambda s: not set(s.value) & {"\r", "\x00"}),
    st.builds(Bool, st.just(NOWHERE), st.booleans()),
)
paths = st.recursive(
    names, lambda inner: st.builds(Attribute, st.just(NOWHERE), inner, names), max_leaves=3
)
operators = st.sampled_from(["+", "-", "*", "/", "|>", "then", *COMPARISONS])
dotted_names = st.builds(
    lambda parts: Name(NOWHERE, ".".join(part.id for part in parts)),
    st.lists(names, min_size=2, max_size=3),
)


def fields_of(values: SearchStrategy[Expr], most: int) -> SearchStrategy[tuple[Field, ...]]:
    fields = st.builds(Field, st.just(NOWHERE), field_names | dotted_names, values)
    return st.lists(fields, max_size=most).map(tuple)


def _compound(inner: SearchStrategy[Expr]) -> SearchStrategy[Expr]:
    arguments = st.builds(Argument, st.just(NOWHERE), st.none() | names, inner)
    made = st.builds(Call, st.just(NOWHERE), paths, st.lists(arguments, max_size=4).map(tuple))
    return st.one_of(
        made,
        st.builds(Amend, st.just(NOWHERE), paths | made, fields_of(inner, 3)),
        st.builds(ListExpr, st.just(NOWHERE), st.lists(inner, max_size=4).map(tuple)),
        st.builds(RecordExpr, st.just(NOWHERE), fields_of(inner, 3)),
        st.builds(Binary, st.just(NOWHERE), operators, inner, inner),
        st.builds(Negative, st.just(NOWHERE), inner),
    )


# What recipes are made of, which chance alone would seldom put together.
calls = st.builds(
    Call,
    st.just(NOWHERE),
    paths,
    st.lists(
        st.builds(Argument, st.just(NOWHERE), st.none() | names, literals | paths), max_size=4
    ).map(tuple),
)


def joined(op: str, operands: SearchStrategy[Expr], most: int) -> SearchStrategy[Expr]:
    """``a op b op c``, as it reads without parentheses."""

    def join(parts: list[Expr]) -> Expr:
        return reduce(lambda left, right: Binary(NOWHERE, op, left, right), parts)

    return st.lists(operands, min_size=2, max_size=most).map(join)


pipelines = joined("|>", calls | paths, 6)
weighted = joined(
    "+", st.builds(Binary, st.just(NOWHERE), st.just("*"), literals, paths | pipelines), 4
)
failures = joined("then", calls | paths, 3)

exprs: SearchStrategy[Expr] = st.one_of(
    st.recursive(literals | paths, _compound, max_leaves=20), pipelines, weighted, failures
)
kinds = names | st.builds(Name, st.just(NOWHERE), st.sampled_from(KINDS))
types = paths | calls
parameters = st.lists(
    st.builds(Parameter, st.just(NOWHERE), names, st.none() | types, st.none() | exprs), max_size=3
).map(tuple)
sums = exprs.filter(
    lambda expr: not (isinstance(expr, Binary) and expr.op in ("|>", "then", *COMPARISONS))
)
decls: SearchStrategy[Decl] = st.one_of(
    st.builds(
        BlockDecl, st.just(NOWHERE), kinds, names, fields_of(exprs, 6), st.none() | parameters
    ),
    st.builds(ValueDecl, st.just(NOWHERE), kinds, names, st.none() | types, exprs),
    st.builds(ValueDecl, st.just(NOWHERE), kinds, names, st.none(), exprs, parameters),
    st.builds(
        Expectation,
        st.just(NOWHERE),
        kinds,
        st.builds(Binary, st.just(NOWHERE), st.sampled_from(COMPARISONS), paths, sums),
    ),
    st.builds(
        ImportDecl,
        st.just(NOWHERE),
        kinds,
        st.builds(String, st.just(NOWHERE), st.text("abc/. é", max_size=8)),
    ),
)
recipes = st.builds(Recipe, st.just(NOWHERE), st.lists(decls, max_size=5).map(tuple))


def write(recipe: Recipe, seed: int) -> str:
    """A text that reads as ``recipe``, with any spacing, comments and spare parentheses.

    From a seed, not drawn: a drawn gap after each word would slow the tests down tenfold.
    """
    random = Random(seed)
    gaps = [" ", " ", "  ", "\n", "\n\n\n", "\t", "\r\n"]
    notes = ["# c\n", " # note\n", "\n# a = b {\n  ", "\n\n# own\n\n"]
    share = random.choice([0.0, 0.02, 0.1, 0.5])
    words = _Words(random.choice).recipe(recipe)
    return "".join(
        f"{word}{random.choice(notes if random.random() < share else gaps)}" for word in words
    )


class _Words:
    """The words of a tree in their order; any space may stand between two of them."""

    def __init__(self, pick: Callable[[list[str]], str]) -> None:
        self.pick = pick

    def recipe(self, recipe: Recipe) -> list[str]:
        return [word for decl in recipe.decls for word in self.decl(decl)]

    def decl(self, decl: Decl) -> list[str]:
        if isinstance(decl, ImportDecl):
            return [decl.kind.id, quoted(decl.path.value)]
        if isinstance(decl, Expectation):
            left, right = decl.comparison.left, decl.comparison.right
            return [decl.kind.id, *self.bare(left), decl.comparison.op, *self.expr(right)]
        head = [decl.kind.id, decl.name.id]
        if decl.parameters is not None:
            parts = [self.parameter(parameter) for parameter in decl.parameters]
            head += ["(", *self.listed(parts), ")"]
        if isinstance(decl, BlockDecl):
            return [*head, "{", *self.fields(decl.fields), "}"]
        annotation = [":", *self.bare(decl.type)] if decl.type else []
        return [*head, *annotation, "=", *self.expr(decl.value)]

    def parameter(self, parameter: Parameter) -> list[str]:
        annotation = [":", *self.bare(parameter.type)] if parameter.type else []
        default = ["=", *self.expr(parameter.default)] if parameter.default else []
        return [parameter.name.id, *annotation, *default]

    def fields(self, fields: tuple[Field, ...]) -> list[str]:
        words: list[str] = []
        for field in fields:
            if field.name.id == "then" and words and words[-1] != ",":
                words.append(",")  # else it would be the operator
            name = " . ".join(field.name.id.split(".")).split()
            words += [*name, "=", *self.expr(field.value), *self.spare(",")]
        return words

    def spare(self, word: str) -> list[str]:
        return [option for option in [self.pick(["", word])] if option]

    def expr(self, expr: Expr) -> list[str]:
        words = self.bare(expr)
        # Paths and literals need no parentheses; around everything else they are always right.
        simple = isinstance(expr, Name | Number | Quantity | String | Bool)
        return words if simple and self.pick(["", "("]) == "" else ["(", *words, ")"]

    def bare(self, expr: Expr) -> list[str]:
        match expr:
            case Binary():
                return [*self.expr(expr.left), expr.op, *self.expr(expr.right)]
            case Negative():
                return ["-", *self.expr(expr.operand)]
            case Attribute():
                return [*self.bare(expr.value), ".", expr.attr.id]
            case Call():
                return [*self.bare(expr.func), "(", *self.arguments(expr.args), ")"]
            case ListExpr():
                return ["[", *self.listed([self.expr(item) for item in expr.items]), "]"]
            case RecordExpr():
                return ["{", *self.fields(expr.fields), "}"]
            case Amend():
                return [*self.bare(expr.base), "{", *self.fields(expr.fields), "}"]
            case _:
                return [literal(expr)]

    def arguments(self, args: tuple[Argument, ...]) -> list[str]:
        return self.listed(
            [[*([arg.name.id, "="] if arg.name else []), *self.expr(arg.value)] for arg in args]
        )

    def listed(self, items: list[list[str]]) -> list[str]:
        words = [word for item in items for word in [*item, ","]][:-1]
        return [*words, *self.spare(",")] if items else []


def literal(expr: Expr) -> str:
    match expr:
        case Name():
            return expr.id
        case Number():
            return repr(expr.value)
        case Quantity(unit="$"):
            return f"${expr.value!r}"
        case Quantity():
            return f"{expr.value!r}{expr.unit}"
        case Bool():
            return str(expr.value).lower()
        case String():
            return quoted(expr.value)
    raise AssertionError(expr)


def quoted(value: str) -> str:
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + text.replace("\t", "\\t") + '"'
