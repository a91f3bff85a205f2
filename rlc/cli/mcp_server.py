"""The server of `rlc mcp`: each tool calls what the command of its name calls."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import wraps
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import ValidationError

import rlc
from rlc.catalog import as_data, reread_providers
from rlc.cli.approved_runs import needs_approval, require_approved, start
from rlc.cli.commands.jobs.gc import stored_data
from rlc.cli.commands.jobs.runs import run_rows
from rlc.cli.commands.recipes.catalog import look_up
from rlc.cli.commands.recipes.explain import is_code, page_of
from rlc.compile import check as check_file
from rlc.compile import compile_source, read_plan
from rlc.data import Reader
from rlc.errors import Error
from rlc.lang import Diagnostics, Source, did_you_mean, finding_dicts, in_order
from rlc.lang.render import render_human
from rlc.plan import plan_hash
from rlc.records import asdict
from rlc.report import read_files, typical_episodes
from rlc.report.findings import findings

_INSTRUCTIONS = """\
rlc compiles recipes (.rl) to post-training jobs of language models. Look words up with `catalog`
instead of guessing them; `check` after each change, and `explain` the codes it reports. `plan` with
rehearse = true and `run` try a recipe on this machine for nothing. A plan that costs money, or that
trains for real, is run only after a person has approved it in a terminal: show them its cost.
"""
_TOOLS: list[tuple[Callable[..., Any], ToolAnnotations]] = []


def serve() -> None:
    """Serve over standard input and output until the client ends it."""
    server = _Server("rlc", instructions=_INSTRUCTIONS, log_level="WARNING")
    server._mcp_server.version = rlc.__version__  # it would say that of mcp
    for function, hints in _TOOLS:
        server.tool(annotations=hints)(function)
    for tool in server._tool_manager.list_tools():
        tool.parameters["additionalProperties"] = False
    server.run()
    sys.stdout = sys.stderr  # mcp has closed standard output, which is flushed at the end


class _Server(FastMCP[None]):
    """Refuses arguments that a tool does not have, which FastMCP ignores."""

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        tool = self._tool_manager.get_tool(name)
        if tool is None:
            return await super().call_tool(name, arguments)
        known = tool.parameters["properties"]
        for given in arguments:
            if given not in known:
                meant = did_you_mean(given, known) or f"it takes {', '.join(known)}"
                raise ToolError(f"`{name}` has no argument `{given}`\n  help: {meant}")
        for missing in tool.parameters.get("required", ()):
            if missing not in arguments:
                raise ToolError(f"`{name}` needs the argument `{missing}`")
        reread_providers()
        try:
            return await super().call_tool(name, arguments)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            found = (f"`{each['loc'][0]}`: {each['msg']}" for each in error.__cause__.errors())
            raise ToolError("; ".join(found)) from None


def _tool(reads: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function a tool, whose errors are messages of rlc."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        async def answer(*args: Any, **kwargs: Any) -> Any:
            try:
                with redirect_stdout(sys.stderr):  # standard output belongs to the protocol
                    found = function(*args, **kwargs)
                    return await found if iscoroutinefunction(function) else found
            except Error as error:
                lines = filter(None, (error.message, error.hint))
                raise ToolError("\n  help: ".join(lines)) from None
            except Exception as error:
                what = f"{type(error).__name__}: {error}".splitlines()[0]
                raise ToolError(f"a mistake in rlc itself ({what}); please report it") from error

        _TOOLS.append((answer, ToolAnnotations(readOnlyHint=reads, openWorldHint=not reads)))
        return function

    return add


@_tool(reads=True)
def check(recipe: str | None = None, text: str | None = None, data: bool = True) -> dict[str, Any]:
    """Find every mistake in a recipe: the file `recipe`, or a `text` that is not saved yet. Each
    finding has its code, place, an excerpt that shows it, help, and a fix if there is a clear one.
    The data that the recipe names is read too, unless `data` is false. Nothing is run or paid for.
    """
    if (recipe is None) == (text is None):
        raise Error("give a recipe, or a text")
    reader = Reader() if data else None
    if recipe is not None:
        found = check_file(recipe, reader)
    else:
        found = compile_source(Source("recipe.rl", text or ""), reader=reader).diagnostics
    shown = (render_human(Diagnostics([item]), color=False) for item in in_order(found))
    excerpts = (text.rsplit("\n", 2)[0].rstrip() for text in shown)  # without the line that counts
    listed = zip(finding_dicts(found), excerpts, strict=True)
    return {
        "clean": not found,
        "errors": found.has_errors,
        "findings": [{**finding, "excerpt": excerpt} for finding, excerpt in listed],
    }


@_tool(reads=True)
def explain(
    recipe: str, set: list[str] | None = None, rehearse: bool = False, full: bool = False
) -> str:
    """Say what a recipe (.rl) or a saved plan (.json) trains, how, how long and for how much; with
    `full` every value and where it comes from, the formulas and the bill. `set` changes values of a
    recipe (["main.steps=10"]). In place of a recipe, the code of a finding, such as RL0204, has a
    page.
    """
    if is_code(recipe) or recipe.endswith(".json"):
        if set or rehearse:
            raise Error("set and rehearse decide what a recipe means, and are for recipes only")
        is_page = is_code(recipe)
        return page_of(recipe) if is_page else rlc.explain(read_plan(recipe).plan).text(full=full)
    explanation = rlc.load(recipe, set or (), rehearse=rehearse).explain()
    if explanation.plan is None:
        raise rlc.RecipeError(explanation.diagnostics)
    return explanation.text(full=full)


@_tool(reads=True)
def catalog(term: str | None = None, kind: str | None = None) -> dict[str, Any]:
    """Look up what the language knows: builtins with parameters, types, ranges and formulas, fields
    of declarations, models with prices, environments. `term` is a name or a word; `kind` narrows
    it (advantage, loss, base, declaration …). Without a term, the names of each kind.
    """
    found = look_up(term, kind)
    if term is not None:
        return {"entries": [as_data(entry) for entry in found]}
    names: dict[str, list[str]] = {}
    for entry in found:
        names.setdefault(entry.kind, []).append(entry.name)
    return {"names": names}


@_tool(reads=False)
def plan(
    recipe: str,
    out: str,
    set: list[str] | None = None,
    seed: int | None = None,
    rehearse: bool = False,
    service: str | None = None,
) -> dict[str, Any]:
    """Save the plan of a recipe to a file (`out`, such as plan.json), with every value decided, for
    a person to approve and for `run`. `rehearse` makes it small and short, on the tiny model;
    `service` is `local`, `tinker` or another provider. Says the plan's hash, what it costs in USD,
    and whether it needs an approval.
    """
    if not rlc.api.is_saved_plan(out):
        raise Error(f"a plan is saved as JSON, and {out} does not end so", "call it plan.json")
    if os.path.exists(out):
        read_plan(out)  # raises if it is something else, which must not be lost
    job = rlc.load(recipe, set or (), seed, rehearse, service)
    job.save(out)
    saved = rlc.load_plan(out)
    explanation = rlc.explain(saved)
    cost = explanation.to_dict()["cost"]
    asks = needs_approval(read_plan(out))
    return {
        "plan": out,
        "hash": plan_hash(saved),
        "cost": {name: cost[name] for name in ("currency", "prices", "total", "at_least")},
        "needs_approval": asks,
        "to_approve": f"a person runs `rlc mcp --approve {out}` in a terminal" if asks else None,
        "summary": explanation.text(),
    }


@_tool(reads=False)
def grade(
    recipe: str,
    replies: list[str | list[str]],
    env: str | None = None,
    task: int | dict[str, Any] = 0,
    judge: float | list[float] | dict[str, float] | None = None,
) -> dict[str, Any]:
    """Show what a run of a recipe would make of replies: the prompt, reward with its components,
    metrics, why the episode ended, errors of graders. Each of `replies` is a text, or a list of
    texts, the turns of a conversation; several are a group. `task` is the number of a task, or a
    row; `judge` is what judges say, from 0 to 1. No model is asked, nothing is paid for; graders
    and environments of the recipe's own are run.
    """
    return rlc.grade(recipe, replies, env, task, judge).to_dict()


@_tool(reads=False)
def audit(recipe: str, env: str | None = None) -> dict[str, Any]:
    """Find what the rewards of a recipe can be earned without: replies that know nothing, wrong
    answers, players that do nothing, each finding with a reply that shows it. Takes up to 20
    seconds; no model is asked, nothing is paid for; graders and environments of the recipe's own
    are run.
    """
    return rlc.audit(recipe, env).to_dict()


@_tool(reads=False)
def test(path: str, keyword: str = "") -> dict[str, Any]:  # noqa: PT028 (a tool)
    """Run the tests that a recipe, or each recipe in a folder, declares: what replies earn, what
    the plan says, what a rehearsal does. `keyword` selects those with it in PATH::NAME. Each
    failure has its place, what was given, expected and found. Nothing is paid for; graders and
    environments of the recipes' own are run.
    """
    return rlc.test(path, keyword=keyword).to_dict()


@_tool(reads=False)
async def probe(plan: str, groups: int | None = None) -> dict[str, Any]:
    """Play a few episodes of each environment of a saved plan with its real model, and train
    nothing: whether there is anything to learn, what fails, what the job will cost. A plan that
    `run` runs only with an approval needs one for this, too; it is still good for one run.
    """
    require_approved(plan)
    found = await asyncio.to_thread(rlc.probe, rlc.load_plan(plan), groups)
    return found.to_dict()


@_tool(reads=False)
async def run(plan: str, wait_seconds: float = 30) -> dict[str, Any]:
    """Run a saved plan, once, if a person has approved it; a rehearsal that costs nothing needs no
    approval. Returns after `wait_seconds` at most, or when the run has ended; it goes on in a
    process of its own, and `status` says how it stands.
    """
    return await start(plan, max(0.0, wait_seconds))


@_tool(reads=True)
def status(folder: str = "runs") -> dict[str, Any]:
    """List the runs in a folder, or say how one run (`runs/NAME`) stands: state and cause, steps of
    each stage, its last metrics, spend, expectations, and whether it can be gone on with.
    """
    return {"runs": run_rows(Path(folder))}


@_tool(reads=True)
def replay(
    run: str,
    step: int | None = None,
    set: list[str] | None = None,
    stage: str | None = None,
    bisect: str | None = None,
) -> dict[str, Any]:
    """Compute a finished step of a run again from its stored episodes: advantages, losses, shares
    of the gradient; with `set` (["main.advantage=rloo()", "main.loss=ppo()"]) also as another
    objective would have made them, and which episodes change sides. `bisect` ("kl > 0.1") finds the
    first step at which that holds of its metrics. Nothing is sampled or paid for.
    """
    return rlc.replay(run, step, set or (), stage, bisect=bisect).to_dict()


@_tool(reads=True)
def gc(folder: str = "runs") -> dict[str, Any]:
    """Say what is stored of the runs in a folder and needed by nothing: states of the embedded
    engine, folders, checkpoints on services, with bytes and USD a month. Deletes nothing: a person
    runs `rlc gc --yes` in a terminal.
    """
    return stored_data(rlc.stored(folder))


@_tool(reads=True)
def bill(runs: list[str]) -> dict[str, Any]:
    """Set side by side what runs (`runs/NAME`) were expected to cost, what they have metered, and
    what their service has billed, by stage and kind of token; and what of it taught nothing.
    """
    return {"bills": [one.to_dict() for one in rlc.bill(*runs)]}


@_tool(reads=True)
def report(run: str, steps: int = 10, episodes: int = 4) -> dict[str, Any]:
    """Say what came out of a run: how it stands, what was found about it with advice, the metrics
    of its last `steps`, and some of its `episodes` to read: of the last step the best, the median
    and the worst of each environment.
    """
    files = read_files(Path(run))
    (row,) = run_rows(files.path)
    shown = [episode for step in typical_episodes(files) for episode in step.episodes]
    return {
        "run": row,
        "findings": [asdict(finding) for finding in findings(files)],
        "metrics": files.metrics[-steps:] if steps > 0 else [],
        "episodes": [{"why": one.why, **one.record} for one in shown[: max(0, episodes)]],
    }
