"""The ``rlc`` command: finds the subcommand, prints errors and returns an exit status."""

from __future__ import annotations

import argparse
import gc
import importlib
import itertools
import os
import signal
import sys
from collections.abc import Mapping, Sequence

from rlc.errors import Error
from rlc.version import __version__

# In the order of `rlc --help`. Each module of `commands` has HELP, DESCRIPTION, EPILOG,
# add_arguments(parser), and run(args), which returns the exit status.
COMMANDS = {
    "init": "recipes.init",
    "check": "recipes.check",
    "explain": "recipes.explain",
    "grade": "recipes.grade",
    "audit": "recipes.audit",
    "test": "recipes.test",
    "probe": "recipes.probe",
    "run": "jobs.run",
    "sweep": "jobs.sweep",
    "runs": "jobs.runs",
    "show": "jobs.show",
    "report": "jobs.report",
    "watch": "jobs.watch",
    "replay": "jobs.replay",
    "gc": "jobs.gc",
    "bill": "jobs.bill",
    "diff": "recipes.diff",
    "fmt": "recipes.fmt",
    "catalog": "recipes.catalog",
    "models": "models.table",
    "lsp": "servers.lsp",
    "mcp": "servers.mcp",
    "eval": "models.eval",
    "chat": "models.chat",
    "sample": "models.sample",
    "export": "models.export",
    "emit": "recipes.emit",
    "serve": "servers.serve",
    "bridge": "servers.bridge",
    "conform": "servers.conform",
    "import": "recipes.import_",  # `import` is a word of Python
}

INTERRUPTED, BROKEN = 130, 70


def entry() -> None:
    if sys.argv[1:2] not in (["check"], ["explain"]):
        # To look through what torch and transformers import, of which nothing is garbage, every
        # few hundred objects takes a tenth of the time until the engine is open.
        gc.set_threshold(50_000)
        status = main(sys.argv[1:])
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left but to end
        sys.exit(status)
    # These end before a collection would pay, and freeing what they read piece by piece would take
    # a fifth of their time.
    gc.disable()
    status = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)


def main(argv: Sequence[str]) -> int:
    args = None
    try:
        args = _arguments(argv)
        status = int(args.run(args))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone; keep Python from complaining about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Error as error:
        from rlc.cli.output import print_error

        status = getattr(args, "error_status", error.exit_status)
        if found := getattr(error, "diagnostics", None):
            from rlc.cli.output import print_findings

            print_findings(found)
            return status
        hints = filter(None, (error.hint, *getattr(error, "__notes__", ())))
        return print_error(error.message, status, *hints)
    except Exception as error:
        if os.environ.get("RLC_DEBUG") == "1":
            raise
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        message = f"rlc: sorry, this is a mistake in rlc itself ({what}); please report it to "
        hint = "(RLC_DEBUG=1 shows where it happened)"
        print(f"{message}{_issue_tracker()} {hint}", file=sys.stderr)
        return BROKEN
    return status


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments. Raise UsageError for words that nothing has, before argparse misses
    others; it ends the program with the usage of the command for other mistakes."""
    parser, subparsers = _parsers(argv)
    called = argv[0] if argv else ""
    if not called.startswith("-") and called not in ("", *COMMANDS):
        raise _unknown(f"there is no command `{called}`", called, list(COMMANDS), "")
    if called in COMMANDS:
        known = [*subparsers[called]._option_string_actions]
        for word in itertools.takewhile(lambda word: word != "--", argv[1:]):
            name = word.partition("=")[0]
            is_option = name.startswith("--") and " " not in name
            if is_option and not any(one.startswith(name) for one in known):
                message = f"`rlc {called}` has no option `{name}`"
                raise _unknown(message, name, [one for one in known if len(one) > 2], called)
    args, rest = parser.parse_known_args(argv)
    if rest:
        raise _unknown(f"`rlc {called}` takes no further `{rest[0]}`", None, [], called)
    return args


def _unknown(message: str, word: str | None, known: list[str], command: str) -> Error:
    from rlc.cli.output import UsageError
    from rlc.lang import did_you_mean

    more = f"`{' '.join(filter(None, ('rlc', command, '--help')))}` lists what there is"
    return UsageError(message, (did_you_mean(word, known) if word else None) or more)


def _parsers(
    argv: Sequence[str],
) -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """Return the parser, and those of the commands that may be called."""
    parser = argparse.ArgumentParser(
        prog="rlc",
        description="Compile and run reinforcement-learning post-training recipes.",
        epilog="`rlc COMMAND --help` says more about a command",
        formatter_class=_HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rlc {__version__}")
    subparsers = parser.add_subparsers(prog="rlc", dest="command", metavar="COMMAND", required=True)
    # A command's module is imported only if it is called; help and usage errors need them all.
    called = [name for name in argv[:1] if name in COMMANDS]
    for name in called or (() if argv[:1] == ["--version"] else COMMANDS):
        command = importlib.import_module(f"rlc.cli.commands.{COMMANDS[name]}")
        texts = {"help": command.HELP, "description": command.DESCRIPTION, "epilog": command.EPILOG}
        subparser = subparsers.add_parser(name, formatter_class=_HelpFormatter, **texts)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser, subparsers.choices


class _HelpFormatter(argparse.HelpFormatter):
    """Keeps the lines of a text of several lines, such as examples; wraps any other. The terminal's
    width, which takes another module, is found only once there is a text to print."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80)

    def format_help(self) -> str:
        import shutil

        self._width = shutil.get_terminal_size().columns - 2
        return super().format_help()

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


def _issue_tracker() -> str:
    """Return the URL in the project's metadata, or plain words if there is none."""
    from importlib import metadata

    try:
        urls = metadata.metadata("rlc").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        urls = []
    named = (url.partition(", ") for url in urls)
    return next((url for name, _, url in named if name == "Issues"), "the project's issue tracker")
