"""Expressions: the mathematics of a recipe's own losses and shaped rewards.

An expression is a :class:`~rlc.algo.expressions.program.Program`, a flat list of nodes that reads
inputs, such as ``logp`` and ``adv``, and computes one value a token, a sequence or an episode.

- ``vocabulary``: the inputs and operations there are, each declared once with its doc.
- ``program``: the records, JSON-able as part of a plan; ``validate`` for one from elsewhere.
- ``build``: ``Builder`` makes programs, with shapes checked, equal parts shared, constants folded.
- ``reach``: which nodes have a gradient.
- ``evaluate``: value and gradient in float64, with numpy. Everything else here is pure Python,
  because `rlc check` reads it.
"""
