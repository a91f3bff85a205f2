"""``rlc watch``: the page of a run, served live on this machine."""

from __future__ import annotations

import argparse

from rlc.cli.options import KEY_VARIABLE, add_address, add_runs, key_of
from rlc.cli.output import print_error
from rlc.errors import Error

HELP = "show the page of a run in the browser while it goes on"
DESCRIPTION = (
    "Serve the page of `rlc report` on this machine, and keep it up to date while the run goes on: "
    "what is open, selected or scrolled to stays as it is. It says when the run has ended, failed "
    "or lost its process, and goes on when the run is resumed."
)
EPILOG = f"""\
examples:
  rlc watch runs/sudoku-20261121-093000                  prints the address to open
  rlc watch runs/sudoku-20261121-093000 --open           and opens it
  rlc watch runs/sudoku-*                                several runs side by side
  rlc watch runs                                         all in a folder, also those that begin
                                                         while it is watched
  rlc watch runs/rates-20261121-093000                   a sweep
  ssh -L 8001:127.0.0.1:8001 machine                     with --port 8001: the page of a run on
                                                         another machine

Only programs on this machine can ask for it. For others: --host 0.0.0.0 --allow-remote, with a key
in {KEY_VARIABLE}, which browsers ask for as the password of any user.

exit status: 0 stopped by Ctrl-C, 1 no such run, 2 usage, or the server cannot start
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)
    add_address(parser, port=0)
    parser.add_argument("--open", action="store_true", help="open it in the browser")


def run(args: argparse.Namespace) -> int:
    import webbrowser

    from rlc.report import PageServer, WatchedPage
    from rlc.service import LOOPBACK, bind

    watched = WatchedPage(args.runs)
    watched.page()  # raises here, not in the browser, what cannot be shown
    try:
        key, listening = key_of(args), bind(args.host, args.port)
    except Error as error:
        return print_error(error.message, 2, *filter(None, [error.hint]))
    with PageServer(listening, watched, key) as server:
        host = args.host if args.host != "localhost" else LOOPBACK
        address = f"http://{host}:{listening.getsockname()[1]}/"
        shown = watched.folders
        what = shown[0] if len(shown) == 1 else f"{len(shown) or 'no'} runs"
        password = f"; the password is the key in {KEY_VARIABLE}" if key else ""
        print(f"{what}: {address}{password}\nCtrl-C stops it.", flush=True)
        if args.open and not webbrowser.open(address):
            print_error("there is no browser to show it in", 1, f"open {address} yourself")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print("\nstopped")
    return 0
