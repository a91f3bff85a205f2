"""``rlc report``: one page about a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlc.cli.output import print_error

HELP = "write a page about a run or a sweep"
DESCRIPTION = (
    "Write one self-contained HTML page about a run: curves, evaluations, spend, "
    "where the time went, the plan, warnings and sample episodes."
)
EPILOG = """\
examples:
  rlc report runs/sudoku-20261121-093000                 writes report.html into the run folder
  rlc report runs/sudoku-20261121-093000 -o sudoku.html
  rlc report runs/sudoku-20261121-093000 --open          and shows it in the browser
  rlc report runs/rates-20261121-093000                  a sweep: its trials side by side

The page is one file that needs no network. It can be written while the run goes on.

exit status: 0 written, 1 no such run, 2 usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", metavar="RUN", type=Path, help="the folder of the run or sweep")
    parser.add_argument(
        "-o", "--out", metavar="FILE", type=Path, help="the page (default RUN/report.html)"
    )
    parser.add_argument("--open", action="store_true", help="show it in the browser")


def run(args: argparse.Namespace) -> int:
    import webbrowser

    from rlc.sweeps.read import is_sweep

    if is_sweep(args.run_dir):
        from rlc.report.pages.sweep_page import sweep_html as page_of
    else:
        from rlc.report.pages.run_page import report_html as page_of

    out: Path = args.out or args.run_dir / "report.html"
    page = page_of(args.run_dir)
    try:
        out.write_text(page, encoding="utf-8")
    except OSError as error:
        return print_error(
            f"cannot write {out}: {error.strerror}", 1, "choose another place with -o"
        )
    print(f"wrote {out} ({len(page.encode()) / 1024:,.0f} KB)")
    if args.open and not webbrowser.open(out.resolve().as_uri()):
        return print_error("there is no browser to show it in", 1, f"open {out} yourself")
    return 0
