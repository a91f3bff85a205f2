"""``rlc show``: the episodes of a run, to read."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from rlc.cli.matches import is_match, match_lines, match_of
from rlc.cli.output import print_error, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from rlc.plan.records import Plan
    from rlc.report.episodes import Episode, EpisodeFilter
    from rlc.runtime.failures import Failure
    from rlc.runtime.journal.history import Record

HELP = "print episodes, or compared replies, of a run"
DESCRIPTION = (
    "Print episodes of a run: what the environment said, what the model did, "
    "rewards and advantages. By default, of each environment the best, the median and the "
    "worst of the last step, and its failures. Of a stage that learns from preferences the replies "
    "that it compared, with their rewards."
)
EPILOG = """\
examples:
  rlc show runs/sudoku-20261121-093000                 best, median and worst of the last step
  rlc show runs/sudoku-20261121-093000 --step 40 --env sudoku
  rlc show runs/sudoku-20261121-093000 --step 40 --task 7      a whole group
  rlc show runs/sudoku-20261121-093000 --row gsm-17            one row of data, at every step
  rlc show runs/sudoku-20261121-093000 --failed --limit 3      what went wrong
  rlc show runs/sudoku-20261121-093000 --json | jq .reward

exit status: 0 shown, 1 no such run or episode, 2 usage
"""
_LIMIT = 10
Part = str | tuple[str, str]  # of a line: text, with a style


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", metavar="RUN", type=Path, help="the folder of the run")
    parser.add_argument("--stage", help="a stage (default: the one that trained last)")
    parser.add_argument("--step", type=int, help="a step (default: the last)")
    parser.add_argument("--env", help="an environment (default: all)")
    parser.add_argument("--task", type=int, help="a task: its whole group")
    parser.add_argument("--member", type=int, help="a member of its group")
    parser.add_argument("--row", metavar="ID", help="the row of data with that id, or place")
    parser.add_argument("--failed", action="store_true", help="only those that failed, of any step")
    parser.add_argument(
        "--limit", type=_positive, help=f"at most so many, in their order (default {_LIMIT})"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object a line")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from rlc.cli.comparisons import show_comparisons
    from rlc.plan.records import EvalPlan, PreferencePlan
    from rlc.report.run_files import read_plan
    from rlc.runtime.failures import read_failures
    from rlc.runtime.journal.history import read_metrics
    from rlc.sweeps.read import TRIALS, is_sweep

    if is_sweep(args.run_dir):
        message = f"{args.run_dir} is a sweep: each folder in {args.run_dir / TRIALS} is a run"
        return print_error(message, 1, f"`rlc runs {args.run_dir}` lists them")
    plan = read_plan(args.run_dir)
    stages = {stage.name: stage for stage in plan.stages}
    if args.stage is not None and args.stage not in stages:
        return print_error(f"there is no stage `{args.stage}`", 1, f"known: {', '.join(stages)}")
    envs = list(dict.fromkeys(e.name for s in plan.stages for e in getattr(s, "envs", ())))
    if args.env is not None and args.env not in envs:
        return print_error(f"there is no environment `{args.env}`", 1, f"known: {', '.join(envs)}")
    metrics = read_metrics(args.run_dir)
    trained = [r["stage"] for r in metrics if not isinstance(stages.get(r["stage"]), EvalPlan)]
    latest = stages.get(args.stage or (trained[-1] if trained else ""))
    if isinstance(latest, PreferencePlan):
        return show_comparisons(args, latest, metrics, _LIMIT)
    wanted = _filter(args, metrics)
    if wanted is None:
        for line in causes(read_failures(args.run_dir)):
            Console(highlight=False).print(line, soft_wrap=True)
        where = f"of {args.stage} " if args.stage else ""
        return print_error(
            f"no step {where}with episodes is done yet", 1, "`rlc runs` says how far it is"
        )
    return _show(args, wanted, metrics, system_messages(plan), _games(plan))


def _filter(args: argparse.Namespace, metrics: Sequence[Record]) -> EpisodeFilter | None:
    """Return which episodes to show: by default those of the last step, or any that failed."""
    from rlc.report.episodes import EpisodeFilter, last_step

    found = last_step(metrics, args.stage)
    if found is None:
        return None
    if (args.failed or args.row) and args.step is None:
        found = EpisodeFilter(stage=args.stage)
    elif args.step is not None:
        found = evolve(found, step=args.step)
    return evolve(
        found, env=args.env, task=args.task, member=args.member, failed=args.failed, row=args.row
    )


def system_messages(plan: Plan) -> dict[str, str]:
    """Return what `chat(system = …)` says to the model before the first turn, by environment."""
    from rlc.catalog.environments import with_role
    from rlc.plan.records import environments_of

    envs = (env for stage in plan.stages for env in environments_of(stage))
    chats = {env.name: with_role(env, "chat") for env in envs}
    return {name: chat.args.get("system", "") for name, chat in chats.items() if chat is not None}


def _games(plan: Plan) -> dict[tuple[str, str], tuple[Sequence[str], str]]:
    """Return the seats of each game, by stage and environment, and who is played against."""
    from rlc.catalog.environments import opponent_name, seats_of
    from rlc.plan.records import environments_of

    return {
        (stage.name, env.name): (seats_of(env), opponent_name(env))
        for stage in plan.stages
        for env in environments_of(stage)
        if env.play is not None
    }


def _show(
    args: argparse.Namespace,
    wanted: EpisodeFilter,
    metrics: Sequence[Record],
    systems: Mapping[str, str],
    games: Mapping[tuple[str, str], tuple[Sequence[str], str]],
) -> int:
    from itertools import islice

    from rich.console import Console

    from rlc.report.episodes import Episode, read_episodes, representatives
    from rlc.runtime.failures import read_failures

    records = read_episodes(args.run_dir, wanted)
    asked = (args.task, args.member, args.limit, args.row)
    if asked == (None,) * len(asked) and not args.failed:
        chosen = representatives(list(records))
    else:
        chosen = [Episode(record) for record in islice(records, args.limit or _LIMIT)]
    if not chosen:
        steps = [int(r["step"]) for r in metrics if r["stage"] == wanted.stage]
        hint = "`rlc runs` says how far the run is"
        if wanted.stage is not None and steps:
            hint = f"{wanted.stage} has done the steps {min(steps):,} to {max(steps):,}"
        return print_error("there are no such episodes", 1, hint)
    if args.json:
        for episode in chosen:
            print(json.dumps(episode.record, ensure_ascii=False))
        return 0
    console = Console(highlight=False)
    failures = {failure.key: failure for failure in read_failures(args.run_dir)}
    shown = set[tuple[object, ...]]()
    for number, episode in enumerate(chosen):
        if is_match(episode.record):
            if (key := match_of(episode.record)) not in shown:
                if number:
                    console.print()
                shown.add(key)
                _show_match(
                    args.run_dir,
                    console,
                    key,
                    games[episode.record["stage"], episode.record["env"]],
                )
            continue
        if number:
            console.print()
        failure = failures.pop(str(episode.record.get("failure")), None)  # shown once
        for line in [
            *transcript(episode, systems.get(episode.record["env"])),
            *causes([failure] if failure else []),
        ]:
            console.print(line, soft_wrap=True)
    return 0


def _show_match(
    path: Path, console: Console, key: tuple[object, ...], game: tuple[Sequence[str], str]
) -> None:
    from rich.text import Text

    from rlc.report.episodes import EpisodeFilter, read_episodes

    parts = [r for r in read_episodes(path, EpisodeFilter(*key)) if r["turns"]]  # type: ignore[arg-type]
    for style, line in match_lines(parts, *game):
        console.print(Text.assemble(*line, style=style), soft_wrap=True)


def causes(failures: Iterable[Failure]) -> Iterator[Text]:
    """Yield the place and the traceback of each cause."""
    from rich.text import Text

    for failure in failures:
        yield Text(f"raised at {failure.place}" if failure.place else "raised by rlc", "bold")
        yield Text(failure.traceback.rstrip(), "dim")


def transcript(episode: Episode, system: str | None = None) -> list[Text]:
    """Return an episode line by line: a heading, the ``system`` message of its chat, its turns."""
    from rich.text import Text

    return [Text.assemble(*parts, style=style) for style, parts in _lines(episode, system)]


def _lines(episode: Episode, system: str | None) -> Iterator[tuple[str, list[Part]]]:
    """Yield the style of each line, and its parts."""
    from rlc.report.episodes import about_line, advantage

    record = episode.record
    role = f", {record['role']}" if record["role"] else ""
    stale = f", {record['staleness']} steps stale" if record["staleness"] else ""
    replaced = ", replaced by another group" if record.get("replaced") else ""
    where = f"  {record['stage']} step {record['step']:,}, task {record['task']:,}, "
    advantages, raw = record["advantages"], record.get("raw_reward")
    yield (
        "bold",
        [
            str(record["env"]),
            (f"  {episode.why}" if episode.why else "", "bold yellow"),
            (f"{where}member {record['member']}{role}", "dim"),
            f"  reward {record['reward']:.3f}",
            (f" ({raw:.3f} before it was shaped)" if raw is not None else "", "dim"),
            *(_advantage(advantage(record)) if advantages else []),
            (f"  {record['ended']}{stale}{replaced}", "dim"),
        ],
    )
    if about := about_line(record):
        yield "dim", [" ".join(about.split())]
    for error in record.get("retried", ()):
        yield "yellow", [f"↻ played again after: {visible(error)}"]
    if record["error"] is not None:
        yield "red", [f"✕ {visible(record['error'])}"]
    for number, turn in enumerate(record["turns"]):
        yield "dim", [f"── turn {number + 1} of {len(record['turns'])}"]
        said = [("system", system, "magenta")] if system and not number else []
        said += [("environment", turn["observation"], "cyan"), ("model", turn["action"], "bold")]
        said += [(f"call of {name}", given, "") for _, name, given in turn.get("calls", ())]
        for who, text, style in said:
            indented = "\n".join(f"  {part}" for part in visible(text).splitlines())
            yield "dim", [f"{who}:\n", (indented or "  (nothing)", style)]
        for verdict in turn.get("verdicts", ()):
            why = "\n".join(f"  {part}" for part in visible(verdict["reason"]).splitlines())
            score = f"judge {verdict['judge']}: {verdict['score']:.3g}\n"
            yield "dim", [score, (why or "  (no reason)", "magenta")]
        reward = turn["reward"]
        measured = "".join(f"  {name} {value:g}" for name, value in turn["metrics"].items())
        tokens = f"  {turn['prompt_tokens']:,} + {turn['tokens']:,} tokens, {turn['stop_reason']}"
        yield (
            "",
            [
                "no reward" if reward is None else f"reward {reward:.3f}",
                *(_advantage(advantages[number]) if number < len(advantages) else []),
                (measured + tokens, "dim"),
            ],
        )


def _advantage(value: float) -> list[Part]:
    """Green above zero, red below; a mark says the same without colour."""
    from rlc.report.formatting import signed

    style = "green" if value > 0 else "red" if value < 0 else "dim"
    return ["  advantage ", (signed(value), style)]
