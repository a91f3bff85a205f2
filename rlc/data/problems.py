"""Sets of problems: those known by name, the rows of a file, or of a data set of the Hugging Face
hub (``hub:openai/gsm8k/main``). Task n is a pure function of n and of the seed of the order, so
that a resumed run continues with the next task."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar

from rlc.data.errors import DataError, FilePlace, PackageMissingError, at_place
from rlc.data.grading.countdown import SPLITS, STAGE_SIZE, TEST_SIZE, problem, test_problems
from rlc.data.grading.graders import boxed
from rlc.data.rows import DataRow, rows_of
from rlc.data.splits import NoSplitError, rows_of_part, rows_of_split, said
from rlc.plan import Split, base_split, hub_dataset
from rlc.records import frozen
from rlc.seeds import derive_seed


def hub_rows(name: str, split: str) -> Iterator[DataRow]:
    """Yield the rows of a split from the hub. Raise DataError, or NoSplitError without one."""
    parts = hub_dataset(name)
    assert parts is not None, "the form of the parameter ensures it"
    dataset, revision, config = parts
    try:
        library = importlib.import_module("datasets")
    except ImportError as error:
        raise PackageMissingError(
            f"{name} comes from the Hugging Face hub, which needs a package: pip install datasets"
        ) from error
    try:  # all splits, which are downloaded together: then it is known which there are
        splits: Mapping[str, Sequence[Mapping[str, Any]]] = library.load_dataset(
            dataset, config, revision=revision
        )
    except Exception as error:  # the library and its network stack raise many kinds
        # The first line says what is wrong, the second which configurations there are.
        what = " ".join(str(error).splitlines()[:2]) or type(error).__name__
        hint = "its rows in a .jsonl file do as well"
        if isinstance(error, ValueError) and "onfig" in what:
            hint = f'a configuration is named behind it: "hub:{dataset}/CONFIG"'
        raise DataError(
            f"{name} cannot be loaded from the Hugging Face hub: {what}", hint
        ) from error
    if split not in splits:
        raise NoSplitError(name, split, splits)
    for number, fields in enumerate(splits[split], start=1):
        yield DataRow(fields, FilePlace(name, number))


T = TypeVar("T")
Row = Mapping[str, Any]


@frozen
class ListedProblems(Generic[T]):
    """The rows of a list, epoch after epoch; with ``shuffle`` each in an order of its own."""

    rows: Sequence[T]
    shuffle: bool

    @property
    def count(self) -> int:
        return len(self.rows)

    def first(self, samples: int | None) -> ListedProblems[T]:
        """Return the first ``samples`` rows (None: all); with ``shuffle``, of one fixed order."""
        if samples is None:
            return self
        return ListedProblems([self.row(0, number) for number in range(samples)], self.shuffle)

    def row(self, order: int, number: int) -> T:
        """Return row ``number`` (0, 1, …) in the order that the seed ``order`` names."""
        epoch, at = divmod(number, len(self.rows))
        return self.rows[permutation(order, epoch, len(self.rows))[at] if self.shuffle else at]


@frozen
class GeneratedProblems:
    """Countdown problems, made on demand, endless without a ``count`` of an epoch."""

    split: str
    shuffle: bool
    count: int | None

    def row(self, order: int, number: int) -> DataRow:
        if self.count is not None:
            seed = ListedProblems(range(self.count), self.shuffle).row(order, number)
        else:
            seed = derive_seed(order, "task", number) if self.shuffle else number
        return DataRow(problem(self.split, seed), FilePlace("countdown", seed))


def problem_set(
    data: str,
    split: Split,
    question: str,
    shuffle: bool,
    samples: int | None,
    check: Callable[[Row], None],
) -> ListedProblems[DataRow] | GeneratedProblems:
    """Return the problems of a set or file; ``check`` raises DataError for an unusable row. A part
    of a split is cut by the field ``question``; ``samples`` limits the number. Raise DataError if
    there are fewer, or none."""
    if data == "countdown" and (base := base_split(split)) != "test":
        if base not in SPLITS:
            raise NoSplitError("countdown", base, SPLITS)
        if not isinstance(split, str):
            raise DataError(f"`{base}` of countdown has no end, so it has no {split['part']}")
        return GeneratedProblems(split, shuffle, samples)
    rows = []
    for row in rows_in(data, split, question):
        with at_place(row.place):
            check(row.fields)
        rows.append(row)
    if samples is not None and samples > len(rows):
        there = f"{data} has {len(rows):,} problems in {said(split)}"
        raise DataError(f"`samples = {samples}`, but {there}")
    return ListedProblems(rows, shuffle).first(samples)


def rows_in(data: str, split: Split, question: str) -> Sequence[DataRow]:
    """Return the rows of a split of a set. Raise DataError if there are none."""
    if data in _KNOWN:
        known = enumerate(_KNOWN[data](base_split(split)), start=1)
        rows = [DataRow(fields, FilePlace(data, number)) for number, fields in known]
        return rows_of_part(data, rows, split, question)
    if hub_dataset(data) is not None:
        return rows_of_part(data, [*hub_rows(data, base_split(split))], split, question)
    return rows_of_split(data, rows_of(data), split, question)


@lru_cache(maxsize=8)
def permutation(order: int, epoch: int, count: int) -> tuple[int, ...]:
    """Return the order of an epoch: the places of its rows, by their number."""
    numbers = list(range(count))
    random.Random(derive_seed(order, "epoch", epoch)).shuffle(numbers)
    return tuple(numbers)


def published(dataset: str, split: str) -> list[Row]:
    """Return the rows of a data set of the hub: OWNER/NAME, or OWNER/NAME/CONFIG."""
    return [row.fields for row in hub_rows(f"hub:{dataset}", split)]


def rows_of_gsm8k(split: str) -> list[Row]:
    """Return the rows of GSM8K, whose answers are bare numbers."""
    return [
        {**row, "answer": row["answer"].rpartition("####")[2].strip()}
        for row in published("openai/gsm8k/main", split)
    ]


_SUBJECTS = [
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
]


def rows_of_math(split: str) -> list[Row]:
    """Return all of MATH except the 500 problems that are the usual test, or those 500."""
    test = published("HuggingFaceH4/MATH-500", "test")
    rows = test
    if split == "train":
        known = {row["problem"] for row in test}
        rows = [
            row
            for subject in _SUBJECTS
            for part in ("train", "test")
            for row in published(f"EleutherAI/hendrycks_math/{subject}", part)
            if row["problem"] not in known
        ]
    return [
        {**row, "question": row["problem"], "answer": boxed(row["solution"]) or row["solution"]}
        for row in rows
    ]


def rows_of_countdown_tasks(split: str) -> list[Row]:
    """The public Countdown problems, which have one split: a fixed draw of them is the test, and of
    the others two draws are for later stages of training, as rLLM has them."""
    rows = published("Jiayi-Pan/Countdown-Tasks-3to4", "train")
    order = permutation(0, 0, len(rows))
    test, stage = TEST_SIZE, min(STAGE_SIZE, (len(rows) - TEST_SIZE) // 2)
    parts = {
        "train": order[test:],
        "test": order[:test],
        "stage2": order[test : test + stage],
        "stage3": order[test + stage : test + 2 * stage],
    }
    if split not in parts:
        raise NoSplitError("countdown_tasks", split, parts)
    return [rows[at] for at in sorted(parts[split])]


def rows_of_countdown(_split: str) -> Sequence[Row]:
    """Return the problems of Countdown's test."""
    return test_problems()


_KNOWN: dict[str, Callable[[str], Sequence[Row]]] = {
    "countdown": rows_of_countdown,
    "gsm8k": rows_of_gsm8k,
    "math": rows_of_math,
    "countdown_tasks": rows_of_countdown_tasks,
}
