"""Data sets of the Hugging Face hub: ``hub:openai/gsm8k/main`` in a recipe."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlc.data.errors import DataError, FilePlace, PackageMissingError
from rlc.data.rows import DataRow
from rlc.data.splits import NoSplitError
from rlc.plan import hub_dataset

MISSING = "comes from the Hugging Face hub, which needs a package: pip install datasets"


def hub_rows(name: str, split: str) -> Iterator[DataRow]:
    """The rows of a split of a data set, from the hub or from its cache.

    Raise DataError if it cannot be loaded, NoSplitError if it has no such split.
    """
    parts = hub_dataset(name)
    assert parts is not None, "the form of the parameter ensures it"
    dataset, revision, config = parts
    try:
        library = importlib.import_module("datasets")
    except ImportError as error:
        raise PackageMissingError(f"{name} {MISSING}") from error
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
