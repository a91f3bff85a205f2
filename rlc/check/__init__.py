"""Names, types, ranges and rules: everything that can be wrong with a recipe that parses.

Read ``analyse`` first. ``scope`` collects the declarations, ``evaluate`` turns expressions into
``values`` (``scalars``, ``pipelines``, ``mixtures``, ``models``), and ``bind`` binds arguments to
the parameters of the catalogue. ``stages`` puts a stage together, ``settle`` makes its values
plain, and ``rules/`` looks at the result.
"""
