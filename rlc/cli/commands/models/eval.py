"""``rlc eval``: a quick look at a model, without a recipe."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rlc.cli.commands.models.options import (
    add_model_options,
    add_sampling_options,
    sampling_of,
)
from rlc.cli.output import UsageError, standard_output_kept
from rlc.records import evolve

HELP = "evaluate a model, without a recipe"
DESCRIPTION = (
    "Play tasks of an environment with a model, and count what was solved. The environment is "
    "written as in a recipe, or named as in the recipe of the run that the model comes from. An "
    "evaluation of that run is repeated as it was, where options do not say otherwise."
)
EPILOG = """\
examples:
  rlc eval runs/x                                         as the run evaluates
  rlc eval runs/x --env guess                             an environment of that run
  rlc eval runs/x@main:20 --env 'gem("game:Sudoku-v0-easy") |> chat()' --tasks 128
  rlc eval runs/x --against tiny                          both on the same tasks, and the difference
  rlc eval runs/x --json | jq '.runs[0].results.mean_reward'
  rlc eval tiny --env 'rows("sums.jsonl", grader = exact) |> chat()' --samples 8

It is a run like any other: `rlc show` and `rlc report` look at its folder.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_options(parser)
    text = "an environment, or an evaluation of the model's run (default: the only one that it has)"
    parser.add_argument("--env", metavar="ENV", help=text)
    text = "(default 64, or as in that evaluation)"
    parser.add_argument("--tasks", type=int, metavar="N", help=text)
    text = "episodes of each task (default 1, or as in that evaluation)"
    parser.add_argument("--samples", type=int, metavar="N", help=text)
    text = "as in a recipe: `mean_reward()`, `pass_at(8)`; may be repeated"
    parser.add_argument(
        "--metric", dest="metrics", action="append", default=[], metavar="METRIC", help=text
    )
    text = (
        "another model, evaluated alike: both results, and the difference with its standard error"
    )
    parser.add_argument("--against", metavar="MODEL", help=text)
    parser.add_argument("--run-dir", type=Path, help="folder of the run (default runs/NAME-TIME)")
    parser.add_argument("--quiet", action="store_true", help="show errors and the result only")
    text = "print the results as one JSON object, and the progress on standard error"
    parser.add_argument("--json", action="store_true", help=text)
    add_sampling_options(parser)
    parser.set_defaults(resume=None)


def run(args: argparse.Namespace) -> int:
    if min(one for one in (args.tasks, args.samples, 1) if one is not None) < 1:
        raise UsageError("--tasks and --samples are at least 1")
    from rlc.check import check_plan
    from rlc.cli.commands.jobs.run import run_folder
    from rlc.cli.output import print_findings
    from rlc.models import evaluation_of, evaluation_plan, named_model
    from rlc.runtime import open_run
    from rlc.service import SamplingRequest

    sampling = sampling_of(args)
    seed = 1 if args.seed is None else args.seed
    plan = evaluation_plan(
        named_model(args.model, args.base, args.renderer, args.base_url),
        args.env,
        args.tasks,
        args.samples,
        None if evolve(sampling, seed=None) == SamplingRequest(512) else sampling,
        args.metrics,
        seed,
    )
    plans = [plan]
    if args.against is not None:
        plans.append(evaluation_of(plan, named_model(args.against, None, None, args.base_url)))
    for one in plans:
        found = check_plan(one)
        print_findings(found)
        if found.has_errors:
            return 1
    runs, where = list[Path](), args.run_dir
    for one in plans:
        folder = open_run(one, where, args.base_url)
        try:
            with standard_output_kept() if args.json else nullcontext():
                status = run_folder(folder, args)
            if status:
                return status
        finally:
            folder.close()
        runs.append(folder.path)
        where = folder.path.with_name(f"{folder.path.name}-against")
    if args.json:
        print(json.dumps(results_dict([args.model, args.against], runs), indent=2))
    elif args.against is not None:
        from rlc.models import paired_results

        print(f"\n{args.model} against {args.against} (± the standard error of the difference)")
        for result in paired_results(*runs):
            print(f"  {result}")
    return 0


def results_dict(models: Sequence[str], runs: Sequence[Path]) -> dict[str, Any]:
    """Return the data of `rlc eval --json`: the results of each model, and of two the differences
    of the first from the second."""
    from rlc.models import paired_results
    from rlc.runtime import evaluation_results, read_metrics, read_run

    found = []
    for model, run in zip(models, runs, strict=False):
        (record,) = read_metrics(run)
        results = evaluation_results(record, record["stage"])
        spent = read_run(run).spent_usd
        found.append({"model": model, "path": str(run), "spent_usd": spent, "results": results})
    differences = paired_results(*runs) if len(runs) > 1 else []
    return {"runs": found, "differences": [one.to_dict() for one in differences]}
