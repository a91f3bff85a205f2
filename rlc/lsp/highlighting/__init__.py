"""Colours where no language server is: `pygments_lexer`, and grammars of editors that are generated
from the language's own."""
