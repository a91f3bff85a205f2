"""The mathematics of post-training: pure functions on float64 arrays.

Read ``scheme`` first: what an advantage scheme is. ``advantages`` applies one to ``episodes``
(``ragged`` columns of rewards to returns, then statistics over scopes). ``losses`` and ``kl`` are
the formulas that a service is checked against, ``expressions`` those of a recipe's own losses and
rewards. ``aggregate`` has the weights of tokens, ``schedules`` what its name says.
"""
