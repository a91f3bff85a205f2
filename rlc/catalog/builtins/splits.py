"""Splits: which part of some rows a stage reads."""

from __future__ import annotations

from typing import Any

from rlc.catalog.records import Args, Builtin, Param, builtin, word
from rlc.plan.splits import Split, base_split

USUAL = ("train", "test")  # they may be written as words; there are others
_NAMED = (r".+", "validation")


def _part(part: str, doc: str, shown: str) -> Builtin:
    def build(args: Args) -> dict[str, Any]:
        return {"part": part, **args.values}

    return builtin(
        part,
        "split",
        doc,
        build,
        Param(
            "share",
            "float",
            "how much of the rows",
            above=0,
            high=1,
            instead=f"a share is written `{part}(10%)`; `samples` or `n` limits the number of rows",
        ),
        word(
            "by",
            "what decides about a row: its place in the file, or the hash of what it asks, so that "
            "equal questions stay together wherever they stand",
            ("order", "hash"),
            "order",
        ),
        Param(
            "of", "string", "the split that it is a part of", "train", choices=USUAL, form=_NAMED
        ),
        example=f'env = problems("sums.jsonl", split = {part}({shown}))',
    )


def have_tasks_in_common(one: Split, other: Split) -> bool:
    """Whether two splits of the same rows share any: of two parts, one may be what the other
    leaves."""
    if base_split(one) != base_split(other):
        return False
    if isinstance(one, str) or isinstance(other, str) or one["by"] != other["by"]:
        return True
    return bool(one["part"] == other["part"] or one["share"] + other["share"] > 1 + 1e-9)


def tasks_of_part(split: Split, count: int | None) -> int | None:
    """How many of the ``count`` tasks of its named split a plan's split has; None if unknown: the
    hash of each task decides, or there is no end of them."""
    if isinstance(split, str) or count is None:
        return count
    from rlc.data.splits import Part  # few recipes take parts

    return Part(**split).count(count)


SPLITS = (
    _part("first", "the rows of a split up to a share of them", shown="90%"),
    _part("last", "the rows of a split that `first()` of the rest leaves", shown="10%"),
)

# For a source whose rows can be taken apart, and for one that only knows its splits by name.
SPLIT = Param("split", "split", "which part of the rows", "train", choices=USUAL, form=_NAMED)
SPLIT_NAME = Param(
    "split", "string", "which part of the tasks", "train", choices=USUAL, form=_NAMED
)
