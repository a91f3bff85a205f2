"""Files as `rlc check` reads them: each once, and all together within a limit of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rlc.records import define, field, frozen

if TYPE_CHECKING:  # most recipes name no files, and then none of this is imported
    from rlc.data.errors import DataError
    from rlc.data.grading.rewards import CodeTrial, TriedCode
    from rlc.data.rows import DataRow
    from rlc.plan import Split

SECONDS = 1.0  # that `rlc check` reads in all


@frozen
class FileRows:
    """The rows of a file, up to an ``error``, or all of it (``whole``), or the end of the time."""

    rows: list[DataRow]
    error: DataError | None
    whole: bool


@define(eq=False)
class Reader:
    """Reads files within ``seconds`` (None: no limit). ``imports``: own code is tried too."""

    seconds: float | None = SECONDS
    imports: bool = False
    _files: dict[str, FileRows] = field(factory=dict, init=False)
    _counts: dict[str, int | None] = field(factory=dict, init=False)
    _tried: list[tuple[CodeTrial, TriedCode]] = field(factory=list, init=False)

    def read(self, path: str) -> FileRows:
        """Return the rows of a file, up to an error or the end of the time."""
        if path not in self._files:
            self._files[path] = self._read(path)
        return self._files[path]

    def unfinished(self) -> list[tuple[str, int]]:
        """Return the files that the time was too short for, each with the number of rows read."""
        return [
            (path, len(read.rows))
            for path, read in self._files.items()
            if not read.whole and read.error is None
        ]

    def _read(self, path: str) -> FileRows:
        from rlc.data.errors import DataError
        from rlc.data.rows import rows_of

        rows: list[DataRow] = []
        started: float | None = None
        whole, error = True, None
        try:
            for row in rows_of(path):
                rows.append(row)
                if started is None:  # opening it may import pyarrow, which is not reading
                    started = time.perf_counter()
                if self.seconds is not None and time.perf_counter() - started > self.seconds:
                    whole = False
                    break
        except DataError as found:
            whole, error = False, found
        if self.seconds is not None and started is not None:
            self.seconds = max(0.0, self.seconds - (time.perf_counter() - started))
        return FileRows(rows, error, whole)

    def tried(self, trial: CodeTrial) -> TriedCode:
        """Return what came of code that is tried, once."""
        for earlier, found in self._tried:
            if earlier == trial:
                return found
        self._tried.append((trial, trial.tried()))
        return self._tried[-1][1]

    def count(
        self,
        path: str,
        split: Split | None,
        question: str,
        keep: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> int | None:
        """Count the rows of a split that ``keep`` accepts, in any time; None on failure."""
        key = f"{path}\0{split!r}\0{question}\0{keep is not None}"
        if key not in self._counts:
            from rlc.data.errors import DataError
            from rlc.data.rows import rows_of
            from rlc.data.splits import count_of_split, rows_of_split

            read = self._files.get(path)
            rows = read.rows if read is not None and read.whole else rows_of(path)
            try:
                if keep is not None:
                    chosen = rows if split is None else rows_of_split(path, rows, split, question)
                    self._counts[key] = sum(keep(row.fields) for row in chosen) or None
                elif split is None:
                    self._counts[key] = sum(1 for _ in rows)
                else:
                    self._counts[key] = count_of_split(rows, split, question) or None
            except DataError:
                self._counts[key] = None
        return self._counts[key]
