"""What a run writes down, and what it is resumed from.

Read ``database`` (the SQLite file that is the truth), ``folder`` (the run folder around it, held
by ``locks``) and ``checkpoints`` (which states are kept). ``metrics`` and ``timeline`` make the
records of the folder's JSON lines; ``history`` reads the metrics of a run, ``runs`` the folders of
all runs.
"""
