"""``rlc test``: the tests that stand in recipes, and beside them."""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import groupby
from typing import TYPE_CHECKING

from rlc.cli.output import UsageError, has_color, standard_output_kept
from rlc.lang import recipe_files

if TYPE_CHECKING:
    from rlc.proof import RecipeTestResult, RecipeTestResults

HELP = "run the tests of recipes"
DESCRIPTION = (
    "Run the tests that recipes declare, in a folder those of all its recipes: what replies earn, "
    "what the plan says, what a rehearsal on the tiny model does. No model is asked but that, and "
    "nothing is paid for. What a test needs and is not installed here, it is skipped for."
)
EPILOG = """\
examples:
  rlc test                         every recipe in this folder
  rlc test recipes/quickstart.rl
  rlc test -k strict recipes       those whose path or name has `strict` in it
  rlc test --format github .       annotations in a pull request
  rlc test --format junit . > tests.xml

exit status: 0 all passed (or skipped), 1 some failed, 2 usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "a recipe, or a folder (default: this one)"
    parser.add_argument("paths", nargs="*", metavar="PATH", default=["."], help=text)
    text = "run only the tests with this in PATH::NAME"
    parser.add_argument("-k", dest="keyword", metavar="TEXT", default="", help=text)
    parser.add_argument("--verbose", "-v", action="store_true", help="a line for each test")
    group = parser.add_mutually_exclusive_group()
    formats, text = ("human", "json", "github", "junit"), "how results are printed"
    group.add_argument("--format", choices=formats, default="human", help=text)
    text = "the same as --format json"
    group.add_argument("--json", dest="format", action="store_const", const="json", help=text)


def run(args: argparse.Namespace) -> int:
    from rlc.proof import run_recipe_tests

    began = time.perf_counter()
    with standard_output_kept():  # graders of one's own may print
        found = run_recipe_tests(recipe_files(args.paths), args.keyword)
    if not found.results:
        what = f" with `{args.keyword}` in PATH::NAME" if args.keyword else ""
        advice = 'for example `test strict { env = maths  expect = [reward("") == 0] }`'
        raise UsageError(f"there is no test{what} in {' '.join(args.paths)}", advice)
    if args.format == "human":
        _print(found, args.verbose, time.perf_counter() - began)
    elif args.format == "github":
        from rlc.lang import render_github

        sys.stdout.write(render_github(found.findings))
    else:
        print(_junit(found) if args.format == "junit" else json.dumps(found.to_dict(), indent=2))
    return 0 if found else 1


def _print(found: RecipeTestResults, verbose: bool, seconds: float) -> None:
    from rlc.lang.render import render_human

    for recipe, several in groupby(found.results, lambda one: one.recipe):
        tests = list(several)
        if verbose:
            print("\n".join(f"{recipe}::{_line(one)}" for one in tests))
        elif any(one.state != "passed" for one in tests):
            print("\n".join(f"{recipe}::{_line(one)}" for one in tests if one.state != "passed"))
    if found.findings:
        print(f"\n{render_human(found.findings, has_color(sys.stdout))}", end="")
    counts = ((len(found.of(state)), state) for state in ("failed", "passed", "skipped"))
    print(f"{', '.join(f'{n:,} {state}' for n, state in counts if n)} in {seconds:.1f} s")


def _line(one: RecipeTestResult) -> str:
    why = f" ({one.why})" if one.why else "" if one.name else " (the recipe has errors)"
    return f"{one.name} {one.state}{why} {one.seconds:.2f} s".lstrip()


def _junit(found: RecipeTestResults) -> str:
    """Return the results as JUnit's XML, which most CI systems read."""
    from xml.etree.ElementTree import Element, SubElement, indent, tostring

    counts = {"tests": len(found.results), "failures": len(found.of("failed"))}
    counts["skipped"] = len(found.of("skipped"))
    suite = Element("testsuite", {"name": "rlc", **{name: str(n) for name, n in counts.items()}})
    for one in found.results:
        name, taken = one.name or "the recipe", f"{one.seconds:.3f}"
        case = SubElement(suite, "testcase", classname=one.recipe, name=name, time=taken)
        if one.state == "skipped":
            SubElement(case, "skipped", message=one.why)
        for finding in one.findings:
            failure = SubElement(case, "failure", message=finding.message)
            place = "" if finding.span is None else f"{finding.span.place()}\n"
            failure.text = f"{place}{finding.help or ''}"
    indent(suite)
    return tostring(suite, encoding="unicode")
