"""Colours where no language server is: `pygments_lexer`."""
