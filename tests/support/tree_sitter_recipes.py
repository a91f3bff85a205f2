"""What editors read: `editors/tree-sitter-rl` compiled, and its trees as the compiler has them."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import frozen
from paths import ROOT

from rlc.lang import ast
from rlc.lang.source import Source, Span
from rlc.lang.syntax.lexer import number_value, string_value

FOLDER = ROOT / "editors" / "tree-sitter-rl"

# A word that is neither a number nor anything else: an error, but one that disturbs nothing around.
MALFORMED = "malformed"


def compile_language(compiler: str, folder: Path) -> Any:
    """Return the language for a parser, from the checked-in C with ``compiler``."""
    from tree_sitter import Language

    library = folder / "rl.so"
    source = FOLDER / "src"
    command = [compiler, "-shared", "-fPIC", "-O0", "-w", "-I", str(source), "-o", str(library)]
    subprocess.run([*command, str(source / "parser.c")], check=True)
    function = ctypes.CDLL(str(library)).tree_sitter_rl
    function.restype = ctypes.c_void_p
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = (
        ctypes.py_object,
        (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
    )
    return Language(capsule(function(), b"tree_sitter.Language", None))


def wrong_nodes(root: Any) -> list[Any]:
    """Return the nodes by which a tree says that its text is no recipe."""
    return [n for n in walk(root) if n.is_error or n.is_missing or n.type == MALFORMED]


def walk(node: Any) -> Iterator[Any]:
    """Yield a node and all below it, in the order of the text."""
    yield node
    for child in node.children:
        yield from walk(child)


@frozen
class TreeReader:
    """Makes the compiler's syntax tree of a text from that of tree-sitter."""

    source: Source
    characters: list[int]  # the offset of a character by that of its first byte

    @classmethod
    def of(cls, source: Source) -> TreeReader:
        offsets = [0]
        for index, char in enumerate(source.text):
            offsets += [index + 1] * len(char.encode())
        return cls(source, offsets)

    def span(self, node: Any) -> Span:
        return Span(self.source, self.characters[node.start_byte], self.characters[node.end_byte])

    def recipe(self, root: Any) -> ast.Recipe:
        decls = tuple(self.decl(child) for child in named(root))
        return ast.Recipe(Span(self.source, 0, len(self.source.text)), decls)

    def decl(self, node: Any) -> ast.Decl:
        span, kind = self.span(node), self.name(child(node, "kind"))
        match node.type:
            case "import":
                path = self.expr(child(node, "path"))
                assert isinstance(path, ast.String)
                return ast.ImportDecl(span, kind, path)
            case "expectation":
                comparison = self.expr(child(node, "comparison"))
                assert isinstance(comparison, ast.Binary)
                return ast.Expectation(span, kind, comparison)
        name, parameters = self.name(child(node, "name")), None
        if holder := node.child_by_field_name("parameters"):
            parameters = tuple(self.parameter(each) for each in named(holder))
        if node.type == "block":
            return ast.BlockDecl(span, kind, name, self.fields(child(node, "body")), parameters)
        assert node.type == "value", node.type
        value = self.expr(child(node, "value"))
        return ast.ValueDecl(span, kind, name, self.maybe(node, "type"), value, parameters)

    def parameter(self, node: Any) -> ast.Parameter:
        name, default = self.name(child(node, "name")), self.maybe(node, "default")
        return ast.Parameter(self.span(node), name, self.maybe(node, "type"), default)

    def fields(self, record: Any) -> tuple[ast.Field, ...]:
        return tuple(
            ast.Field(self.span(each), self.dotted(child(each, "name")), self.value(each))
            for each in named(record)
        )

    def value(self, node: Any) -> ast.Expr:
        return self.expr(child(node, "value"))

    def maybe(self, node: Any, field: str) -> ast.Expr | None:
        found = node.child_by_field_name(field)
        return self.expr(found) if found else None

    def name(self, node: Any) -> ast.Name:
        assert node.type == "name", node.type
        return ast.Name(self.span(node), self.span(node).text)

    def dotted(self, node: Any) -> ast.Name:
        parts = [self.span(each).text for each in walk(node) if each.type == "name"]
        return ast.Name(self.span(node), ".".join(parts))

    def expr(self, node: Any) -> ast.Expr:
        span = self.span(node)
        match node.type:
            case "name":
                return self.name(node)
            case "attribute":
                name = self.name(child(node, "attribute"))
                return ast.Attribute(span, self.value(node), name)
            case "call":
                arguments = tuple(self.argument(a) for a in named(child(node, "arguments")))
                function = self.expr(child(node, "function"))
                assert isinstance(function, ast.Name | ast.Attribute)
                return ast.Call(span, function, arguments)
            case "amend":
                base = self.expr(child(node, "base"))
                assert isinstance(base, ast.Name | ast.Attribute | ast.Call)
                return ast.Amend(span, base, self.fields(child(node, "body")))
            case "parentheses":
                (inner,) = named(node)
                return self.expr(inner)
            case "list":
                return ast.ListExpr(span, tuple(self.expr(item) for item in named(node)))
            case "record":
                return ast.RecordExpr(span, self.fields(node))
            case "negative":
                return ast.Negative(span, self.expr(child(node, "operand")))
            case "arithmetic" | "compare" | "pipe" | "then":
                left, right = child(node, "left"), child(node, "right")
                (op,) = (each for each in node.children if not each.is_named)
                return ast.Binary(span, op.type, self.expr(left), self.expr(right))
            case "string":
                return ast.String(span, string_value(span.text))
            case "true" | "false":
                return ast.Bool(span, node.type == "true")
            case "number":
                return ast.Number(span, number_value(span.text))
            case "money":
                return ast.Quantity(span, number_value(span.text[1:]), "$")
            case "duration" | "percent":
                return ast.Quantity(span, number_value(span.text[:-1]), span.text[-1])
        raise AssertionError(f"a node of type {node.type}")

    def argument(self, node: Any) -> ast.Argument:
        name = node.child_by_field_name("name")
        return ast.Argument(self.span(node), self.name(name) if name else None, self.value(node))


def child(node: Any, field: str) -> Any:
    found = node.child_by_field_name(field)
    assert found is not None, f"{node.type} without {field}"
    return found


def named(node: Any) -> list[Any]:
    return [each for each in node.named_children if each.type != "comment"]
