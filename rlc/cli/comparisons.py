"""Preferences as `rlc show` prints them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rlc.cli.output import print_error, visible

if TYPE_CHECKING:
    from rlc.plan import Training
    from rlc.report.episodes import StepComparison
    from rlc.runtime import Record


def show_comparisons(
    args: argparse.Namespace, plan: Training, metrics: Sequence[Record], limit: int
) -> int:
    """Print what a step compared: by default the widest, the median and the worst margin of the
    last one. Return the exit status."""
    from rich.console import Console

    from rlc.report.episodes import comparisons, last_compared, typical

    odd = [n for n in ("env", "task", "member", "failed", "tokens") if getattr(args, n)]
    odd += [n for n in ("task", "member") if getattr(args, n) == 0]
    if odd:
        message = f"--{odd[0]} does not go with `{plan.name}`: it learns from preferences"
        hint = "it compares replies in its data: --step, --row and --limit choose among them"
        return print_error(message, 2, hint)
    last = last_compared(metrics, plan.name)
    if last is None:
        message = f"no step of {plan.name} is done yet"
        return print_error(message, 1, "`rlc runs` says how far it is")
    found = comparisons(args.run_dir, plan, last if args.step is None else args.step)
    if args.row is not None:
        found = [one for one in found if args.row in (str(one.number), one.place)]
    if not found:
        hint = f"{plan.name} has done the steps 1 to {last:,}"
        return print_error("there are no such preferences", 1, hint)
    asked = args.limit is not None or args.row is not None
    chosen = found[: args.limit or limit] if asked else typical(found)
    console = Console(highlight=False)
    for number, one in enumerate(chosen):
        if args.json:
            print(json.dumps(one.written(), ensure_ascii=False))
            continue
        if number:
            console.print()
        for text, style in _lines(one):
            console.print(text, style=style, markup=False, soft_wrap=True)
    return 0


def _lines(one: StepComparison) -> Iterator[tuple[str, str]]:
    from rlc.report import signed

    why = f"{one.why}  " if one.why else ""
    yield f"{why}{one.stage} step {one.step:,}, {one.place}  margin {signed(one.margin)}", "bold"
    replies = [(f"{r.side}, reward {signed(r.reward)}", r.text, "bold") for r in one.replies]
    for who, text, style in [("prompt", one.prompt, "cyan"), *replies]:
        yield f"{who}:", "dim"
        yield "\n".join(f"  {line}" for line in visible(text).splitlines()) or "  (nothing)", style
