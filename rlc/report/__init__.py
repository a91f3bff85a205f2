"""Runs for people: pages about runs, and their episodes.

`run_files`, `episodes` and `comparisons` read a run folder into records. Pure functions turn them
into what a page shows: `charts/`, `measures`, `timing`, `spend`, `findings`; ``side_by_side`` does
so for several runs. `pages/` puts all of it together for its templates: a run, a sweep, runs side
by side; `live` serves a page while they go on.
"""
