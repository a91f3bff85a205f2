"""A stand-in for the Hugging Face hub: data sets of the library's own kind, without a network."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

Rows = Sequence[Mapping[str, Any]]
Published = Mapping[tuple[str, str | None, str | None], Mapping[str, Rows]]


def fake_hub(
    monkeypatch: pytest.MonkeyPatch,
    published: Published,
) -> list[str]:
    """Let the library find only ``published``: (name, configuration, revision) -> splits. Return
    the names that are loaded from then on."""
    datasets: Any = importlib.import_module("datasets")
    loaded = list[str]()

    def load(name: str, config: str | None, revision: str | None) -> Any:
        loaded.append(name)
        if (name, config, revision) in published:
            splits = published[name, config, revision].items()
            made = {split: datasets.Dataset.from_list(list(rows)) for split, rows in splits}
            return datasets.DatasetDict(made)
        there = [known for dataset, known, _ in published if dataset == name]
        if there and config is None:  # in the words of datasets 5.2.0
            raise ValueError(
                "Config name is missing.\nPlease pick one among the available configs: "
                f"{there}\nExample of usage:\n\t`load_dataset({name!r}, {there[0]!r})`"
            )
        raise datasets.exceptions.DatasetNotFoundError(f"Dataset '{name}' doesn't exist on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", load)
    return loaded
