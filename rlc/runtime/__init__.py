"""The plan executed, on any service.

Read ``start`` (from a plan or a run folder to a job), ``job`` (its stages), ``loop`` (the steps of
one stage) and ``graph`` (the nodes of a step), in this order. ``stages/`` has a function for each
kind of node; they use ``rollouts/`` to play episodes and ``updates/`` to train on them. ``guard/``
keeps a run within its limits, ``journal/`` and ``trackers.py`` writes down what it does.
"""
