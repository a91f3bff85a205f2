"""Text to syntax tree: :func:`parse` for a recipe, :func:`parse_field` for one field.

Nothing else here is used from outside this package, except that the formatter reads comments
through its lexer.
"""

from __future__ import annotations

from rlc.lang.syntax.parser import parse, parse_field

__all__ = ["parse", "parse_field"]
