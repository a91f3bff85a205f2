"""Expressions: the mathematics of a recipe's own losses and shaped rewards.

An expression is a :class:`~rlc.algo.expressions.program.Program`, a flat list of nodes that reads
inputs, such as ``logp`` and ``adv``, and computes one value a token, a sequence or an episode.

- ``vocabulary``: the inputs and operations there are, each declared once with its doc.
- ``program``: the records, JSON-able as part of a plan.
- ``build``: ``Builder`` makes programs, with shapes checked, equal parts shared, constants folded;
  ``validate`` checks one from elsewhere.
- ``derivative``: the derivative by ``logp``, a program too.
- ``reach``: which nodes have a gradient, and which are computed over a batch.
- ``behaviour``: how a loss scales with the advantages, and whether it bounds a ratio that has run
  away.
- ``ranges``: what its parts can be, and where they are undefined.
- ``known``: whether a loss is one of the service's own by another name; the catalogue has
  ``known_loss(program)`` with all candidates.
- ``formula``: text that people read, of a program and of its derivative.
- ``scalars``: programs in pure Python; ``shaped_reward`` of an episode.
- ``python``: a program as a function of torch.
- ``evaluate``: value and gradient of a loss in float64, with numpy. Everything else here is pure
  Python, because `rlc check` reads it.
"""
