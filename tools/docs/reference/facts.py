"""What the catalogue knows of models, environments, data sets and metrics, as tables."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from rlc.catalog import metrics
from rlc.catalog.facts import find_model, model_names, prices_as_of, storage_price
from rlc.catalog.search import OTHER_KINDS, NameEntry, entries
from rlc.explanation.entries import default_of
from tools.docs.markdown import code, escaped, page, table


def _of(kind: str) -> list[NameEntry]:
    return [entry for entry in entries() if entry.kind == kind]


def model_page() -> str:
    """Return the page of the base models, with prices and their date."""
    rows = []
    models = [model for name in model_names() if (model := find_model(name))]
    for model in models:
        price = model.price
        usd = (price.prefill, price.cached, price.sample, price.train)
        rows.append(
            (
                code(model.base),
                "unknown" if model.context is None else f"{model.context:,}",
                *("unknown" if each is None else f"{each:.2f}" for each in usd),
            )
        )
    retired = [(code(entry.name), escaped(entry.reason)) for entry in _of("base") if entry.reason]
    heads = ("model", "context", "prefill", "cached", "sample", "train")
    return page(
        "# Models",
        f"Prices in USD per million tokens, {_linked(prices_as_of())}. Checkpoints cost "
        f"${storage_price():.2f} for a GB and month. Any folder with a Hugging Face model works "
        "too, on the embedded engine: see [models](../models.md).",
        table(heads, rows),
        "## Renderers",
        "How a chat becomes tokens; the first is the one that is recommended.",
        table(
            ("model", "renderers"),
            [(code(model.base), ", ".join(map(code, model.renderers))) for model in models],
        ),
        "## Retired",
        table(("model", "why not"), retired),
    )


def _linked(text: str) -> str:
    return re.sub(r"https?://\S+", r"<\g<0>>", text)


def environment_page() -> str:
    """Return the page of environments, problem sets and prompt templates, by their names."""
    return page(
        "# Environments and data",
        "By the strings that recipes name them with. Environments of other frameworks, and one's "
        "own, need no list: see [environments](../environments.md).",
        "## Sets of problems",
        table(
            ("name", "what it is"),
            [(code(entry.usage), escaped(entry.doc)) for entry in _of("problems")],
        ),
        "## Prompt templates",
        ", ".join(code(entry.usage) for entry in _of("prompt")),
        "## Environments of GEM",
        f"{OTHER_KINDS['environment'].capitalize()}, with the arguments that each takes.",
        table(("name", "what it is", "arguments"), map(_environment, _of("environment"))),
        "## Known elsewhere, not possible here",
        table(
            ("name", "why not"),
            [(code(entry.name), escaped(entry.reason or "")) for entry in _of("unsupported")],
        ),
    )


def _environment(entry: NameEntry) -> Sequence[str]:
    arguments = ", ".join(code(f"{p.name} = {default_of(p)}") for p in entry.params)
    doc = f"{entry.doc}: {entry.reason}" if entry.reason else entry.doc
    needs = f"; needs {entry.facts['needs']}" if "needs" in entry.facts else ""
    return code(entry.name), escaped(doc + needs), arguments


def metric_page() -> str:
    """Return the page of the entries of metrics.jsonl, by the stages that have them."""
    rows = [
        (
            ", ".join(map(code, entry.keys)),
            ", ".join(map(code, entry.of)),
            entry.unit,
            _between(entry),
        )
        for entry in metrics.ENTRIES
    ]
    return page(
        "# Metrics",
        "Every entry of `metrics.jsonl`: which stages have it, its unit and its bounds. "
        "[Metrics](../metrics.md) says what each means. `expect` reads them by the same names, "
        "with `.` for `/` and without `mean`: `expect main.reward >= 0.8`.",
        table(("entry", "stages", "unit", "bounds"), rows),
    )


def _between(entry: metrics.MetricEntry) -> str:
    if math.isinf(entry.low):
        return ""
    return f"from {entry.low:g}" + ("" if math.isinf(entry.high) else f" to {entry.high:g}")
