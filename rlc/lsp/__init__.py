"""The language server: what editors ask about a recipe while it is typed.

:mod:`rlc.lsp.documents` has the texts and the notes of the checker on them; the other modules
answer from these, or from a check."""
