"""Data sets of tinker-cookbook as environments: ``cookbook("module:Builder")``.

Read ``source`` first: it builds the data set and opens its groups. ``data`` numbers the groups of
the data set, ``group`` is one of them and ``episode`` one member's part; ``history`` takes prompts
and replies as tokens; ``event_loop_thread`` is where the environments' code runs.
"""
