"""The language server: what editors ask about a recipe while it is typed.

A thin layer: :mod:`rlc.lsp.reading` says what each word of a text means, also of one that does not
parse yet, from the catalogue; everything else answers from that, or from a check.
"""
