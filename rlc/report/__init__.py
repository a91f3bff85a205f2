"""Runs for people: one page about a run, and its episodes.

`run_files` and `episodes` read a run folder into records. Pure functions turn them into what a
page shows: `stage_charts` (with `charts` and `series`), `timing` and `gantt`, `spend`,
`findings`, `graph_drawing`. `page` puts all of it together for the template. `sweep_page` is the
page of a sweep, with `parallel`.
"""
