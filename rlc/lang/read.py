"""Files to sources; a file that cannot be read is a diagnostic too."""

from __future__ import annotations

import codecs
import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress

from rlc.errors import Error
from rlc.lang.diagnostics import Diagnostic, Diagnostics, Severity
from rlc.lang.source import Source, Span, printable

MAX_BYTES = 1_000_000
STDIN = "-"


def read_source(path: str | os.PathLike[str]) -> tuple[Source | None, Diagnostics]:
    """Return a recipe file, or standard input for ``-``; None with one diagnostic if unreadable.

    Line ends become ``\\n`` and a byte order mark is dropped.
    """
    name = "<stdin>" if path == STDIN else _printable(os.fspath(path))
    advice: str | None
    try:
        if name.endswith(".json") and os.path.isfile(path):
            advice = f"`rlc explain {name}` shows a saved plan, and `rlc run {name}` runs it"
            return None, _failure("RL0002", name, "this is a JSON file, not a recipe", advice)
        data = _read(path)
        if (wrong := _not_text(data)) is not None:
            return None, _failure_at(name, data, *wrong)
        if len(data) > MAX_BYTES:
            advice = "is it really a recipe? recipes are a few kB of text"
            return None, _failure("RL0004", name, "this file is over 1 MB, too large", advice)
        text = data.decode("utf-8-sig")
        if not text.strip():
            advice = "start with a model, an environment and a `train` declaration"
            return None, _failure("RL0005", name, "this file is empty", advice)
        return Source(name, text.replace("\r\n", "\n")), Diagnostics()
    except FileNotFoundError:
        code, message, advice = "RL0001", "no such file", "check the path for typing mistakes"
    except IsADirectoryError:
        code, message = "RL0002", "this is a folder, not a recipe"
        advice = "name the recipes in it, for example with `*.rl`"
    except PermissionError:
        code, message = "RL0002", "no permission to read this file"
        advice = "ask for the right to read it, or copy it to a place you own"
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        code, message, advice = "RL0002", f"this file cannot be read: {reason}", None
    return None, _failure(code, name, message, advice)


def write_text(path: str, text: str) -> Diagnostics:
    """Replace the text of a recipe file; return one diagnostic if that is not possible.

    The file keeps its line ends, byte order mark and permissions, and stays whole if the
    process dies.
    """
    target = os.path.realpath(path)  # a link stays a link
    try:
        before = _read(target)
        if b"\r\n" in before:
            text = text.replace("\n", "\r\n")
        encoding = "utf-8-sig" if before.startswith(codecs.BOM_UTF8) else "utf-8"
        write_whole(target, text.encode(encoding))
    except OSError as error:
        message = f"this file cannot be written: {error.strerror}"
        return _failure("RL0006", _printable(path), message, None)
    return Diagnostics()


def write_whole(path: str, data: bytes) -> None:
    """Replace or create a file atomically.

    It keeps its permissions; a new one is for its owner only. Raise OSError if that fails.
    """
    import shutil  # `rlc check` only writes where there is no prepared grammar
    import tempfile

    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        with suppress(FileNotFoundError):
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def _read(path: str | os.PathLike[str]) -> bytes:
    """Return a file up to one byte over the limit, which tells that it is too large."""
    if path == STDIN:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    if stat.S_ISDIR(os.stat(path).st_mode):
        raise IsADirectoryError(path)
    with open(path, "rb") as file:
        return file.read(MAX_BYTES + 1)


def _not_text(data: bytes) -> tuple[int, str, str] | None:
    """Return the place where a file is not UTF-8 text, the reason and advice; None if it is, or if
    it is too large."""
    if len(data) > MAX_BYTES:
        return None
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return 0, "this file is UTF-16, not UTF-8 text", "save it as UTF-8"
    if (binary := data.find(b"\0")) >= 0:
        return binary, "this is a binary file, not a recipe", "recipes are UTF-8 text"
    try:
        data.decode()
    except UnicodeDecodeError as error:
        message = f"this file is not UTF-8 text: byte 0x{data[error.start]:02x}"
        return error.start, message, "save it as UTF-8"
    return None


def _failure_at(name: str, data: bytes, at: int, message: str, help: str) -> Diagnostics:
    """Return the diagnostic for the byte ``at``, with the readable part of its line."""
    before = data[:at].decode("utf-8-sig", "replace")
    source = Source(name, before + data[at:].decode("utf-8", "replace"))
    span = Span(source, len(before), len(before) + 1)
    return Diagnostics([Diagnostic("RL0003", Severity.ERROR, message, span, help)])


def _failure(code: str, name: str, message: str, help: str | None) -> Diagnostics:
    return Diagnostics([Diagnostic(code, Severity.ERROR, message, None, help, file=name)])


def _printable(path: str) -> str:
    """Return the path with the characters that a terminal cannot print escaped."""
    return printable(path.encode("utf-8", "backslashreplace").decode("utf-8"))


class NoRecipeError(Error):
    """A folder without recipes."""

    exit_status = 2


def recipe_files(paths: Iterable[str]) -> list[str]:
    """Return files and the recipes in folders, each once. Raise NoRecipeError if there are none."""
    files: list[str] = []
    for path in paths:
        found = [] if os.path.isdir(path) else [path]
        for folder, subfolders, names in os.walk(path):
            subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
            recipes = (os.path.join(folder, n) for n in sorted(names) if n.endswith(".rl"))
            found += [name.removeprefix(f".{os.sep}") for name in recipes]
        if not found:
            raise NoRecipeError(f"no recipe (*.rl) in {path}")
        files += found
    return list(dict.fromkeys(files))
