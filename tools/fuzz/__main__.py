"""Try recipes that nobody would write, until the time is over.

    python -m tools.fuzz [--seconds 600] [--seed 1] [--out FOLDER]

Each trial is a recipe of the repository with a few changes, and goes the whole way: check, explain,
fmt, fix, a saved plan, variants, emit, an editor's questions at random places. An exception, a plan
that is not itself after it was saved, a fix that changes a plan, or a trial that takes longer than
`--limit` seconds is a find: one of each cause is made smaller, line by line, and written into the
folder. Ctrl-C ends the search with what was found so far. It exits with 1 if there is a find.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FrameType

from attrs import define, field, frozen

from rlc.lang.source import Source
from tools.fuzz.mutate import Pool, mutated, shipped
from tools.fuzz.ways import Trial


class TooSlowError(Exception):
    """A trial that is not over after its time."""


@frozen
class Find:
    """What went wrong with a text: ``cause`` is the same for the same mistake."""

    cause: str
    text: str
    report: str


@frozen
class Settings:
    """How a text is tried, so that it can be tried again."""

    name: str
    seed: str
    limit: float  # seconds of processor time; 0: any
    whole: bool

    def tried(self, text: str) -> Find | None:
        """Return what goes wrong with a text; None if nothing does."""
        trial = Trial(Source(self.name, text), Random(self.seed), self.whole)
        signal.setitimer(signal.ITIMER_PROF, self.limit)
        try:
            trial.run()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also what no library should raise
            return Find(f"{trial.way}: {_cause(error)}", text, traceback.format_exc())
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return None


def trial_of(pool: Pool, seed: str, limit: float = 0) -> tuple[str, Settings]:
    """Return the text of a seed, and how it is tried."""
    random = Random(seed)
    text = mutated(pool, random)
    return text.source.text, Settings(text.source.name, seed, limit, random.random() < 0.01)


def _cause(error: BaseException) -> str:
    """Return the kind of an exception and the function of rlc in which it was raised."""
    if isinstance(error, TooSlowError):
        return "TooSlowError"
    frames = traceback.extract_tb(error.__traceback__)
    places = [f for f in frames if "/rlc/" in f.filename or "/tools/fuzz/" in f.filename]
    place = places[-1]
    path = place.filename.rpartition("/rlc/")[2]
    said = f" {error}" if isinstance(error, AssertionError) else ""
    return f"{type(error).__name__}{said[:60]} in {path}:{place.name}"


def smaller(find: Find, settings: Settings, seconds: float) -> Iterator[Find]:
    """Yield finds of the same cause with ever fewer lines, then words, as the time allows."""
    end = time.monotonic() + seconds
    for pattern in (r".*\n|.+", r'"[^"\n]*"|\w+|\s+|.'):
        size = len(parts := re.findall(pattern, find.text)) // 2
        while size:
            start = 0
            while start < len(parts) and time.monotonic() < end:
                left = parts[:start] + parts[start + size :]
                other = settings.tried("".join(left))
                if other is not None and other.cause == find.cause:
                    find, parts = other, left
                    yield find
                else:
                    start += size
            size //= 2


@define
class Search:
    """The trials of a seed, and what they found: how often by cause."""

    seed: int
    limit: float
    shrink: float
    out: Path | None
    trials: int = 0
    slowest: tuple[float, str] = (0.0, "")
    finds: Counter[str] = field(factory=Counter)

    def run(self, seconds: float) -> None:
        pool, end = shipped(), time.monotonic() + seconds
        while time.monotonic() < end:
            text, settings = trial_of(pool, f"{self.seed} {self.trials}", self.limit)
            began = time.process_time()
            find = settings.tried(text)
            self.slowest = max(self.slowest, (time.process_time() - began, settings.seed))
            self.trials += 1
            if find is not None:
                self.finds[find.cause] += 1
                if self.finds[find.cause] == 1:
                    self._found(find, settings)

    def _found(self, find: Find, settings: Settings) -> None:
        try:
            for small in smaller(find, settings, self.shrink):
                find = small
        finally:  # also what was being made smaller when somebody stopped it
            print(f"--- {find.cause} ({settings.name}, seed {settings.seed})", flush=True)
            whole = f"# {find.cause}\n# {settings.name}\n{find.text}\n{find.report}"
            if self.out is None:
                print(whole, flush=True)
            else:
                self.out.mkdir(parents=True, exist_ok=True)
                name = f"{len([*self.out.iterdir()]):03}.txt"
                (self.out / name).write_text(whole, encoding="utf-8", errors="replace")


def _too_slow(_: int, frame: FrameType | None) -> None:
    raise TooSlowError("".join(traceback.format_stack(frame)[-8:]))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    text = "seconds of processor time that a trial may take"
    parser.add_argument("--limit", type=float, default=20, help=text)
    parser.add_argument("--shrink", type=float, default=60, help="seconds to make a find smaller")
    parser.add_argument("--out", type=Path, help="a folder for the finds")
    args = parser.parse_args()
    signal.signal(signal.SIGPROF, _too_slow)
    search, began = Search(args.seed, args.limit, args.shrink, args.out), time.monotonic()
    try:
        search.run(args.seconds)
    except KeyboardInterrupt:
        print("stopped")
    minutes, finds = (time.monotonic() - began) / 60, search.finds
    print(f"{search.trials} trials in {minutes:.1f} minutes, {finds.total()} finds")
    print(f"slowest: {search.slowest[0]:.1f} s, of seed {search.slowest[1]}")
    for cause, count in finds.most_common():
        print(f"{count:>6}  {cause}")
    return int(bool(finds))


if __name__ == "__main__":
    sys.exit(main())
