"""Stand-ins for what the recipes of `recipes/yardstick` load or ask, of the same shape and small.

Data sets of the hub have a few rows each, in `data/hub.json`, five times over; what needs sounds,
images, an index or a sandbox is played on prompts of text.
"""

from __future__ import annotations

import csv
import importlib
import json
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from paths import RECIPES, SUPPORT
from plan_recipes import without_tests

YARDSTICK = RECIPES / "yardstick"
RECIPES_OF_COOKBOOK = "tinker_cookbook.recipes"
# Modules of the cookbook that hold a loader of their own, by the name it has there.
LOADERS = {
    "math_rl.math_env": ("load_dataset", "get_dataset_config_names"),
    "code_rl.code_env": ("load_dataset",),
}
PROMPTS, EXAMPLES = "yardstick_builders:PromptsBuilder", "yardstick_builders:ExamplesBuilder"
# What cannot be built here: it needs photos, sounds, or an index and a key.
BUILDERS = {
    "audio.asr.env:AudioASRRLDatasetBuilder": PROMPTS,
    "audio.emotion.env:ExpressoRLDatasetBuilder": PROMPTS,
    "search_tool.search_env:SearchR1DatasetBuilder": PROMPTS,
    "vlm_classifier.data:Caltech101DatasetBuilder": EXAMPLES,
    "audio.asr.env:AudioASRDatasetBuilder": EXAMPLES,
    "audio.emotion.sl_train:ExpressoSFTDatasetBuilder": EXAMPLES,
    "audio.medical_asr.env:EkacareASRDatasetBuilder": EXAMPLES,
}


@cache
def published() -> dict[str, dict[str, list[dict[str, Any]]]]:
    rows: Any = json.loads((SUPPORT / "data" / "hub.json").read_text("utf-8"))
    text = "The time after the war , when they had known many such days , was over . " * 80
    rows["Salesforce/wikitext"] = {"train": [{"text": text}] * 18}
    return {name: {split: many * 5 for split, many in of.items()} for name, of in rows.items()}


def load_dataset(
    name: str, config: str | None = None, *, split: str | None = None, **_: Any
) -> Any:
    """As ``datasets.load_dataset``, of the rows that are published here. ``config`` is known by the
    name of ``name``, too, as in the library."""
    datasets: Any = importlib.import_module("datasets")
    splits = {key: datasets.Dataset.from_list(rows) for key, rows in published()[name].items()}
    return datasets.DatasetDict(splits) if split is None else splits[split]


def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let everybody who loads data sets find only those of `data/hub.json`."""
    datasets: Any = importlib.import_module("datasets")
    loaders = {
        "load_dataset": lambda path, name=None, **given: load_dataset(path, name, **given),
        "get_dataset_config_names": lambda _: ["default"],
    }
    for name, loader in loaders.items():
        monkeypatch.setattr(datasets, name, loader)
    for module, names in LOADERS.items():
        loaded = importlib.import_module(f"{RECIPES_OF_COOKBOOK}.{module}")
        for name in names:
            monkeypatch.setattr(loaded, name, loaders[name])
    forecasting = importlib.import_module(f"{RECIPES_OF_COOKBOOK}.forecasting.env")
    monkeypatch.setattr(forecasting, "fetch_prophet_arena", partial(markets, tmp_path))


def markets(folder: Path, *_: Any) -> Path:
    """Events of Prophet Arena before and after its split, with their outcomes."""
    rows = [
        {
            "submission_id": f"s{number}",
            "event_ticker": f"e{number}",
            "title": f"Match {number}",
            "snapshot_time": f"2025-{month:02}-01",
            "close_time": f"2025-{month:02}-02",
            "market_outcome": json.dumps({"Home": number % 2}),
            "category": "Sports",
            "markets": json.dumps(["Home"]),
            "sources": json.dumps([{"title": "Form", "summary": "Even.", "ranking": 1}]),
        }
        for month in (6, 11)
        for number in range(month * 100, month * 100 + 40)
    ]
    path = folder / "markets.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def standing_in(text: str) -> str:
    """The text of a recipe without its tests, with stand-ins for the environments that cannot be
    built here."""
    text = without_tests(text)
    for builder, stand_in in BUILDERS.items():
        text = text.replace(f"{RECIPES_OF_COOKBOOK}.{builder}", stand_in)
    text = text.replace('harbor("', 'harbor(runtime = subprocess, id = "')
    return text.replace("primeintellect/reverse-text", "vf_environments")
