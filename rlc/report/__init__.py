"""Runs for people: pages about runs, and their episodes.

`run_files`, `episodes` and `comparisons` read a run folder into records. Pure functions turn them
into what a page shows: `charts/`, `measures`, `timing`, `spend`, `findings`; ``side_by_side`` does
so for several runs. `pages/` puts all of it together for its templates: a run, a sweep, runs side
by side; `live` serves a page while they go on.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.report.formatting import *
    from rlc.report.live import *
    from rlc.report.pages.choice import *
    from rlc.report.pages.run_page import *
    from rlc.report.run_files import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        formatting: number signed
        live: PageServer WatchedPage
        pages.choice: page_html shown_folders
        pages.run_page: typical_episodes
        run_files: read_files read_plan
        """,
    )
