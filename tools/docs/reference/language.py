"""Declarations with their fields, and the words of expressions."""

from __future__ import annotations

from rlc.algo.expressions.vocabulary import INPUTS, OPERATIONS
from rlc.catalog.declarations import DECLARATIONS
from tools.docs.markdown import code, escaped, fenced, page, table
from tools.docs.reference.params import params_table


def declaration_page() -> str:
    """Return the page of everything that a recipe can declare."""
    parts = [
        (
            f"## `{item.kind}`",
            f"{escaped(item.doc[:1].upper() + item.doc[1:])}.",
            fenced(item.written(), "rl"),
            params_table(item.fields, "reference/declarations.md", "field"),
        )
        for item in DECLARATIONS.values()
    ]
    return page(
        "# Declarations",
        "A recipe is a list of declarations, in any order: blocks with fields, or names of values. "
        "A declared block can be amended, and a declaration can have parameters: see "
        "[reuse](../reuse.md).",
        *(text for part in parts for text in part),
    )


def expression_page() -> str:
    """Return the page of what expressions can read and do."""
    inputs = [
        part
        for kind, known in INPUTS.items()
        for part in (
            f"## What a {kind} can read",
            table(
                ("name", "meaning", "is one"),
                [(code(one.name), escaped(one.doc), f"each {one.shape}") for one in known.values()],
            ),
        )
    ]
    operations = [(code(one.usage), escaped(one.doc)) for one in OPERATIONS.values()]
    return page(
        "# Expressions",
        "A loss of one's own and a shaped reward are expressions: see [losses](../losses.md) and "
        "[rewards](../rewards.md).",
        *inputs,
        "## What an expression can do",
        table(("written", "meaning"), operations),
    )
