"""Rows of files against what a stage wants of them, and graders against the answers in them.

Only `rlc check` of a recipe that names files, or a grader that needs them, comes here."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from rlc.catalog import Param
from rlc.check.rules.view import StageView
from rlc.check.scope import closest, known_values
from rlc.data import (
    ANSWER_FIELDS,
    TRIED,
    DataError,
    DataRow,
    FieldError,
    FilePlace,
    FileRows,
    Grader,
    MessageError,
    NoSplitError,
    PackageMissingError,
    field_fault,
    is_right,
    rows_of_split,
    said,
    wrongly_graded,
)
from rlc.lang import Label, Source, Span
from rlc.plan import EnvPlan, GraderPlan, base_split
from rlc.records import field, frozen

LISTED = 3  # kinds of mistakes in one file, and further places of one of them
_VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|[0-9]+")  # what differs in one mistake of many rows
# What a field is usually called that holds something.
_USUAL: Mapping[str | None, tuple[str, ...]] = {
    "asked": ("question", "prompt", "problem", "input", "instruction", "query"),
    "prompt": ("prompt", "question", "input", "instruction"),
    "answer": ANSWER_FIELDS,
    "text": ("reply", "completion", "response", "answer", "output"),
    "texts": ("demonstration", "response", "completion", "answer", "output"),
    "messages": ("messages", "conversations"),
}

Bad = list[tuple[DataError, DataRow]]
Messages = Sequence[Mapping[str, Any]]


@frozen(eq=False)
class StageRows:
    """The rows of a file that a stage uses.

    ``path`` is that of the argument that names the file, ``args`` that of the arguments beside it,
    in the view. ``columns``: the parameters that name fields, with these. ``split``: None for all
    rows; ``key`` is the field by which a part is cut. ``most``: the name of the argument that takes
    so many of them, its value, and its place. ``complete`` adds fields that are made from others;
    ``require`` raises DataError for a row whose fields are all right and which still cannot be
    used, which is reported as ``code`` (messages as RL0540). ``asked``: the prompt of a row.
    ``solved``: rows that are shown with their answers.
    """

    view: StageView
    file: str
    path: str
    args: str
    columns: tuple[tuple[Param, str], ...]
    split: Any = None
    key: str = ""
    most: tuple[str, int | None, str] = ("", None, "")
    complete: Callable[[Mapping[str, Any]], Mapping[str, Any]] = field(default=lambda row: row)
    require: Callable[[Mapping[str, Any]], object] = field(default=lambda _: None)
    asked: Callable[[Mapping[str, Any]], Messages] = field(default=lambda _: ())
    code: str = "RL0504"
    solved: bool = False

    def read(self) -> FileRows:
        """Return the file, as far as it can be read in time."""
        assert self.view.reader is not None
        return self.view.reader.read(self.view.located(self.file))

    def chosen(self) -> Sequence[DataRow]:
        """Return the rows of the split. Raise DataError if there are none."""
        read = self.read().rows
        return read if self.split is None else rows_of_split(self.file, read, self.split, self.key)

    def size(self) -> int | None:
        """Return how many rows the split has; None if they cannot all be read in time."""
        if not os.path.isfile(self.view.located(self.file)):
            return None
        try:
            return len(self.chosen()) if self.read().whole else None
        except DataError:
            return None

    def faults(self, row: DataRow) -> list[tuple[str, FieldError]]:
        """Return what is wrong with the fields of a row, each with its parameter. Raise DataError
        if the row cannot be used for another reason."""
        whole = self.complete(row.fields)
        found = [
            (param.name, fault)
            for param, name in self.columns
            if param.holds and (fault := field_fault(whole, name, param.holds))
        ]
        if not found:
            self.require(row.fields)
        return found

    def used(self, most: int | None) -> Sequence[DataRow]:
        """Return the first rows of the split; none if it cannot be read."""
        with suppress(DataError):  # a rule on the rows says so
            return self.chosen()[:most]
        return ()

    def sound(self, most: int) -> list[DataRow]:
        """Return those of the first rows of the split that have no mistake."""
        found = list[DataRow]()
        for row in self.used(most):
            with suppress(DataError):
                found += [] if self.faults(row) else [row]
        return found

    def error(
        self, code: str, path: str, message: str, help: str | None, place: FilePlace | None = None
    ) -> None:
        """Report a mistake at an argument, and show its first place in the file."""
        self.view.report(code, path, message, help, *labels(place, self.file))


def check_rows(rows: StageRows) -> None:
    """Report what is wrong with the rows of a file."""
    read = rows.read()
    if (error := read.error) is not None:
        what = error.what.removeprefix(f"{rows.view.located(rows.file)} ")
        of_all = what != error.what  # such as: has no rows
        message = f'"{rows.file}" {what if of_all else f"cannot be read to its end: {what}"}'
        if not any(item.message == message for item in rows.view.found):  # of another stage
            rows.error("RL0501", rows.path, message, error.hint, error.place)
    if not read.rows:
        return
    try:
        chosen = rows.chosen()
    except NoSplitError as missing:
        if read.whole:
            name = base_split(rows.split)
            advice = f"{known_values(missing.there, name)}; `split = first(90%)` holds rows out"
            message = f'"{rows.file}" has no split `{name}`'
            rows.error("RL0506", f"{rows.args}.split", message, advice)
        return
    except DataError:
        if read.whole:
            message = f'{said(rows.split)} of "{rows.file}" is empty'
            advice = f"it has {len(read.rows):,} rows in all: take a larger share"
            rows.error("RL0507", f"{rows.args}.split", message, advice)
        return
    _check_fields(rows, chosen)
    name, most, path = rows.most
    if most is not None and read.whole and most > len(chosen):
        where = "" if rows.split is None else f" in {said(rows.split)}"
        message = f'`{name}` is {most:,}, and "{rows.file}" has {len(chosen):,} rows{where}'
        rows.error("RL0507", path, message, f"take at most {len(chosen):,}, or leave it out")


def _check_fields(rows: StageRows, chosen: Sequence[DataRow]) -> None:
    fields: dict[tuple[str, str], Bad] = {}
    others: dict[str, Bad] = {}
    for row in chosen:
        try:
            for param_name, fault in rows.faults(row):
                fields.setdefault((param_name, fault.fault), []).append((fault, row))
        except DataError as error:
            others.setdefault(_VALUES.sub("…", error.what), []).append((error, row))
    for param, name in rows.columns:
        for kind, code in (("missing", "RL0502"), ("empty", "RL0503"), ("type", "RL0504")):
            if bad := fields.get((param.name, kind)):
                how_many = _how_many(rows, bad, chosen)
                message, advice = _column_message(rows, param, name, bad, how_many)
                path = rows.path if kind == "empty" else f"{rows.args}.{param.name}"
                if len(bad) < len(chosen):
                    advice = _with_places(advice, bad)
                rows.error(code, path, message, advice, bad[0][1].place)
    for bad in islice(others.values(), LISTED):
        first, row = bad[0]
        message = f"{first.what}, in {_how_many(rows, bad, chosen)}"
        code = "RL0540" if isinstance(first, MessageError) else rows.code
        rows.error(code, rows.path, message, _with_places(first.hint, bad), row.place)


def _column_message(
    rows: StageRows, param: Param, name: str, bad: Bad, how_many: str
) -> tuple[str, str | None]:
    error, row = bad[0]
    assert isinstance(error, FieldError)
    if error.fault == "empty":
        return f"the field `{name}` is empty in {how_many}", "fill it in, or take the row out"
    if error.fault == "type":
        return f"{error.what}, in {how_many}", None
    used = {other for _, other in rows.columns}
    there = [name for name in map(str, row.fields) if name not in used]
    likely = closest(name, there) or [n for n in _USUAL.get(param.holds, ()) if n in there]
    advice = f"there are {known_values(list(map(str, row.fields)))}"
    advice = f'write `{param.name} = "{likely[0]}"`' if likely else advice
    return f"there is no field `{name}` in {how_many}", advice


def _how_many(rows: StageRows, bad: Bad, chosen: Sequence[DataRow]) -> str:
    if len(bad) == len(chosen):
        return f'the rows of "{rows.file}"'
    return f'{len(bad):,} of {len(chosen):,} rows of "{rows.file}"'


def _with_places(advice: str | None, bad: Bad) -> str | None:
    places = [row.place for _, row in bad[1 : 1 + LISTED]]
    if not places:
        return advice
    lines = ", ".join(f"{place.line or place.row:,}" for place in places)
    word = "row" if places[0].line is None else "line"
    more = len(bad) - 1 - len(places)
    also = f"also in {word}{'s' * (len(places) > 1)} {lines}"
    also += f" and {more:,} more" if more else ""
    return also if advice is None else f"{advice}; {also}"


_LONGEST = 100_000  # characters of a line that is shown


def labels(place: FilePlace | None, shown: str, text: str = "") -> list[Label]:
    """Return the label at a place of a file, shown as ``shown``; none without a line, or if it
    cannot be read."""
    if place is None or place.line is None:
        return []
    start = place.line - 1
    try:
        with open(place.path, encoding="utf-8-sig", errors="replace") as file:
            line = next(islice(file, start, None), "").rstrip("\r\n")[:_LONGEST]
    except OSError:
        return []
    at = start + min((place.column or 1) - 1, len(line))
    end = start + len(line) if place.column is None else at + 1
    # A source of this line alone: the empty ones before give it its number.
    return [Label(Span(Source(shown, "\n" * start + line), at, max(end, at + 1)), text)]


_SECONDS = 3.0  # that a grader may take


def try_grader(view: StageView, env: EnvPlan, part: GraderPlan, files: Sequence[StageRows]) -> None:
    """Grade the answers of the first rows, and solved problems as they are shown."""
    path = f"envs.{env.name}.graders.{part.name}"
    try:
        grader = Grader(part.grader, env.args["answer"], part.args.get("pattern"))
    except PackageMissingError:
        return  # it may be where the recipe is run
    except DataError as error:
        view.report("RL0508", f"{path}.args.pattern", error.what, error.hint)
        return
    for rows in files:
        if os.path.isfile(view.located(rows.file)):
            _try_on(rows, grader, path)


def _try_on(rows: StageRows, grader: Grader, path: str) -> None:
    until, wrong, tried_on = time.monotonic() + _SECONDS, list[DataRow](), 0
    for row in rows.sound(TRIED):
        if time.monotonic() > until:
            break
        answer = rows.complete(row.fields)[grader.answer]
        tried_on += 1
        if rows.solved:
            if is_right(grader, str(answer), row.fields) is False:
                message = f"`{grader.name}` calls this solved problem wrong as it is shown"
                advice = "write its answer as a reply is to give it, for example in `\\boxed{…}`"
                rows.error("RL0509", rows.path, message, advice, row.place)
                return
        elif wrongly_graded(grader, row.fields):
            wrong.append(row)
    if 2 * len(wrong) > tried_on:
        shown = str(wrong[0].fields[grader.answer])[:60]
        count = f"{len(wrong)} of the first {tried_on}"
        message = f"`{grader.name}` calls the right answers wrong ({count}, such as {shown!r})"
        advice = "use another grader, or name the field that holds the `answer`"
        rows.error("RL0509", path, message, advice, wrong[0].place)
