"""``rlc report``: one page about a run, or about several side by side."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rlc.cli.options import add_runs
from rlc.cli.output import print_error
from rlc.errors import Error

HELP = "write a page about a run, a sweep, or several runs side by side"
DESCRIPTION = (
    "Write one self-contained HTML page about a run: curves, evaluations, spend, where the time "
    "went, the plan, warnings and sample episodes. About several runs: what differs between them, "
    "what each came to, and their curves in the same charts."
)
EPILOG = """\
examples:
  rlc report runs/sudoku-20261121-093000                 writes report.html into the run folder
  rlc report runs/sudoku-20261121-093000 -o sudoku.html
  rlc report runs/sudoku-20261121-093000 --open          and shows it in the browser
  rlc report runs/sudoku-*                               these runs side by side, in comparison.html
  rlc report runs/                                       all that are in a folder; 12 at the most
  rlc report runs/rates-20261121-093000                  a sweep: its trials

The page is one file that needs no network. It can be written while the run goes on; `rlc watch`
shows it as it changes.

exit status: 0 written, 1 no such run, 2 usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)
    text = "the page (default RUN/report.html; of several runs comparison.html beside them)"
    parser.add_argument("-o", "--out", metavar="FILE", type=Path, help=text)
    parser.add_argument("--open", action="store_true", help="show it in the browser")


def run(args: argparse.Namespace) -> int:
    import webbrowser

    from rlc.report import page_html, shown_folders

    folders = shown_folders(args.runs)
    page, out = page_html(folders), args.out
    if out is None and len(folders) == 1:
        out = folders[0] / "report.html"
    elif out is None:
        parent = os.path.commonpath([path.resolve().parent for path in folders])
        out = Path(os.path.relpath(parent)) / "comparison.html"
    try:
        out.write_text(page, encoding="utf-8")
    except OSError as error:
        raise Error(
            f"cannot write {out}: {error.strerror}", "choose another place with -o"
        ) from error
    print(f"wrote {out} ({len(page.encode()) / 1024:,.0f} KB)")
    if args.open and not webbrowser.open(out.resolve().as_uri()):
        return print_error("there is no browser to show it in", 1, f"open {out} yourself")
    return 0
