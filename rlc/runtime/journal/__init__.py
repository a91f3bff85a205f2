"""What a run writes down, and what it is resumed from.

Read ``database`` (the SQLite file that is the truth) and ``folder`` (the run folder around it).
``metrics`` and ``episodes`` have the records of its other files, ``runs`` reads all runs.
"""
