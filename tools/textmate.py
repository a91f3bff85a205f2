"""The TextMate grammar of recipes, as VS Code and others read it, from the language's own grammar
and the catalogue. ``python -m tools.editor_grammars`` writes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rlc.catalog.declarations import DECLARATIONS, PARAM_TYPES
from rlc.catalog.index import KINDS
from rlc.check.scalars import WORD
from rlc.lang.words import ESCAPES, vocabulary
from rlc.lsp.documents import IMPORT

SCOPE = "source.rl"

Rule = dict[str, Any]


def kinds() -> list[str]:
    """Return the words that a declaration can start with."""
    return [IMPORT, *DECLARATIONS]


def types() -> list[str]:
    """Return the types of parameters."""
    return [*PARAM_TYPES, WORD, *(kind for kind in KINDS if kind in DECLARATIONS)]


def keywords() -> list[str]:
    """Return the words that the grammar itself has."""
    return sorted(vocabulary().keywords)


def textmate_grammar() -> Rule:
    """Return the grammar as JSON has it."""
    terminals = vocabulary().terminals
    name = "[A-Za-z_][A-Za-z0-9_]*"
    numbers = [
        _rule(terminals[kind], f"constant.numeric.{kind.lower()}")
        for kind in ("MONEY", "PERCENT", "DURATION", "NUMBER")
    ]
    constants = [word for word in keywords() if word in ("true", "false")]
    operators = [word for word in keywords() if word not in constants]
    rules: list[Rule] = [
        _rule(terminals["COMMENT"], "comment.line.number-sign"),
        {
            "name": f"string.quoted.double.{_LANGUAGE}",
            "begin": '"',
            "end": r'"|$',
            "patterns": [
                _rule(rf"\\[{''.join(_escaped(char) for char in ESCAPES)}]", "constant.character"),
                _rule(r"\\.", "invalid.illegal.escape"),
            ],
        },
        {
            "match": rf"(?<![\w.])({_any(kinds())})\s+({name})(?=\s*[{{=:(])",
            "captures": _captures("keyword.other.kind", "entity.name.type.declaration"),
        },
        _rule(rf"(?<![\w.])({_any(kinds())})(?=\s+[A-Za-z_\"])", "keyword.other.kind"),
        {
            "match": rf"(:)\s*({_any(types())})(?!\w)",
            "captures": _captures("punctuation.separator", "storage.type"),
        },
        *numbers,
        _rule(rf"(?<![\w.])({name}(?:\.{name})*)(?=\s*=(?!=))", "variable.other.property"),
        _rule(rf"(?<![\w.]){name}(?:\.{name})*(?=\s*\()", "support.function"),
        _rule(rf"(?<![\w.])(?:{_any(constants)})(?!\w)", "constant.language"),
        _rule(rf"(?<![\w.])(?:{_any(operators)})(?!\w)", "keyword.operator.word"),
        _rule(r"\|>|[<>]=?|[!=]=|[-+*/=]", "keyword.operator"),
        _rule(r"[{}()\[\],.:]", "punctuation"),
        _rule(name, "variable.other"),
    ]
    return {
        "name": "rlc recipe",
        "scopeName": SCOPE,
        "fileTypes": [_LANGUAGE],
        "patterns": rules,
    }


_LANGUAGE = "rl"


def _rule(pattern: str, scope: str) -> Rule:
    return {"match": pattern, "name": f"{scope}.{_LANGUAGE}"}


def _captures(*scopes: str) -> Rule:
    return {str(i): {"name": f"{scope}.{_LANGUAGE}"} for i, scope in enumerate(scopes, 1)}


def _any(words: Iterable[str]) -> str:
    """A pattern for one of some words, the longest first."""
    return "|".join(word.replace(".", r"\.") for word in sorted(words, key=lambda w: (-len(w), w)))


def _escaped(char: str) -> str:
    return rf"\{char}" if char in '"\\' else char
