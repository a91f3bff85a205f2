"""Runs for people: pages about runs, and their episodes.

`run_files` and `episodes` read a run folder into records. Pure functions turn them into charts and
tables: `drawing`, `figures`, `diagrams`, `measures`, `timing`, `findings`. `run_page`, `sweep_page`
and `side_by_side` compute what a template shows; `pages` chooses among them, and serves a page
while runs go on.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.report.bill import *
    from rlc.report.formatting import *
    from rlc.report.pages import *
    from rlc.report.run_files import *
    from rlc.report.run_page import *
    from rlc.report.side_by_side import folders_of as folders_of
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        bill: RunBill bill_lines bill_of_run
        formatting: number render signed
        pages: PageServer WatchedPage page_html shown_folders
        run_files: read_files read_plan
        run_page: typical_episodes
        side_by_side: folders_of
        """,
    )
