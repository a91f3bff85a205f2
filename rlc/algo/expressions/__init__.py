"""Expressions: the mathematics of a recipe's own losses and shaped rewards.

An expression is a :class:`~rlc.algo.expressions.program.Program`, a flat list of nodes that reads
inputs, such as ``logp`` and ``adv``, and computes one value a token, a sequence or an episode.

- ``vocabulary``: the inputs and operations there are, each declared once with its doc.
- ``program``: the records, JSON-able as part of a plan.
- ``build``: ``Builder`` makes programs, with shapes checked, equal parts shared, constants folded;
  ``validate`` checks one from elsewhere.
- ``derivative``: the derivative by ``logp``, a program too.
- ``analysis``: what can be said of a program before it is computed.
- ``formula``: text that people read, of a program and of its derivative.
- ``scalars``: programs in pure Python; ``shaped_reward`` of an episode.
- ``shield``: a program for torch, whose own gradient of a `where` is NaN where the branch that is
  not taken is infinite.
- ``evaluate``: value and gradient of a loss in float64, with numpy. Everything else here is pure
  Python, because `rlc check` reads it.
"""
