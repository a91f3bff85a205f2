"""The language server: what editors ask about a recipe while it is typed.

A thin layer: :mod:`rlc.lsp.documents` has the texts and what :mod:`rlc.check.notes` notes on them;
everything else answers from that, or from a check.
"""
