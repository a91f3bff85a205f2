"""Expressions: the mathematics of losses, of preference losses, advantages and shaped rewards.

An expression is a :class:`~rlc.algo.expressions.program.Program`, a flat list of nodes that reads
inputs, such as ``logp`` and ``adv``, and computes one value a token, a sequence or an episode.

- ``inputs``: the shapes there are, and which go together.
- ``vocabulary``: the inputs and operations there are, each declared once with its doc; which nodes
  have a gradient, and which are computed over a batch.
- ``interpret``: programs in pure Python, ``shaped_reward`` of an episode.
- ``reader``: syntax trees to programs.
- ``program``: the records, JSON-able as part of a plan.
- ``build``: ``Builder`` makes programs, with shapes checked, equal parts shared, constants folded;
  ``validate`` checks one from elsewhere.
- ``behaviour``: the derivative by the logprobs, a program too; how a loss scales with the
  advantages, and whether it bounds a ratio that is far from 1.
- ``ranges``: the values that its parts can have, and where they are undefined.
- ``known``: recognises losses of the service and over preferences; the catalogue's
  ``known_loss(program)`` and ``known_preference(program)`` have all candidates.
- ``formula``: programs and their derivatives as text for people.
- ``python``: a program as a function of torch.
- ``evaluate``: value and gradient of a loss in float64, with numpy. All other modules are pure
  Python, because `rlc check` imports them.
"""
