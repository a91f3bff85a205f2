"""``rlc grade``: what a run would make of a reply."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlc.cli.options import add_plan_options, recipe_of
from rlc.cli.output import UsageError, standard_output_kept, visible

if TYPE_CHECKING:
    from rlc.plan import Plan
    from rlc.proof import EpisodeGrade, GroupGrade

HELP = "show what a run would make of a reply"
DESCRIPTION = (
    "Put replies, or a conversation of several turns, through what a run does with those of the "
    "model: prompt, template, parser, grader, judges, shaping, limits. Nothing is asked of a "
    "model, so there is no key and no cost. Several replies are a group."
)
EPILOG = """\
examples:
  rlc grade recipes/quickstart.rl --reply '\\boxed{5}'
  rlc grade maths.rl --task '{"question": "2 + 2?", "answer": "4"}' --reply 4 --reply 5
  rlc grade maths.rl --env heldout --task 7 --reply @reply.txt
  rlc grade recipes/quickstart.rl --turns --reply '\\boxed{5}' --reply '\\boxed{8}'
  rlc grade recipes/judged.rl --env essays --judge 0.8 --reply @essay.txt
  generate | rlc grade maths.rl --reply - --json

exit status: 0 graded, 1 an episode failed, 2 usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", help="the recipe (.rl), or a saved plan (.json)")
    add_plan_options(parser)
    parser.add_argument("--env", help="an environment (default: the only one)")
    text = "the number of a task in the run (default 0), or a row of data as a JSON object"
    parser.add_argument("--task", default="0", metavar="N|JSON", help=text)
    text = "a reply; @FILE has one, a .json file a list of them, which is a conversation; - is "
    text += "standard input; may be repeated"
    parser.add_argument(
        "--reply", dest="replies", metavar="TEXT", action="append", required=True, help=text
    )
    text = "the replies are the turns of one conversation, not a group"
    parser.add_argument("--turns", action="store_true", help=text)
    text = "what judges say, from 0 to 1: for all replies, for each in order, or of a judge by name"
    parser.add_argument("--judge", metavar="[NAME=]SCORE", action="append", default=[], help=text)
    parser.add_argument("--prompt", action="store_true", help="show the whole first prompt")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    from rlc.proof import grade

    plan = plan_of(args)
    replies: Any = [_reply(text) for text in args.replies]
    if args.turns:
        if any(isinstance(one, list) for one in replies):
            raise UsageError("a .json file is a conversation already: leave --turns")
        replies = [replies]
    with standard_output_kept():  # graders and environments may print
        graded = grade(plan, replies, args.env, task_of(args.task), _scores(args.judge))
    if args.json:
        print(json.dumps(graded.to_dict(), indent=2, ensure_ascii=False))
    else:
        sys.stdout.write("".join(f"{visible(line)}\n" for line in grade_lines(graded, args.prompt)))
    return int(any(one.error is not None for one in graded.episodes))


def plan_of(args: argparse.Namespace) -> Plan:
    """Return the plan that is named. Raise RecipeError if its recipe has errors, UsageError for
    options that a saved one does not take."""
    from rlc.api import is_saved_plan, load_plan, tried_plan
    from rlc.cli.options import changes_plan

    if not is_saved_plan(args.recipe):
        return tried_plan(recipe_of(args))
    if changes_plan(args):
        raise UsageError("a saved plan stays as it is: give its recipe, to decide something else")
    return load_plan(args.recipe)


def task_of(text: str) -> int | dict[str, Any]:
    """Return the number of a task, or a row. Raise UsageError for anything else."""
    try:
        task = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--task {text}: this is neither a number nor JSON: {error}") from error
    if isinstance(task, dict) or (isinstance(task, int) and not isinstance(task, bool)):
        return task
    raise UsageError(f"--task {text}: give a number, or a row as an object of JSON")


def _reply(text: str) -> str | list[str]:
    if text == "-":
        return sys.stdin.read()
    if not text.startswith("@"):
        return text
    path = Path(text[1:])
    try:
        read = path.read_text(encoding="utf-8")
        if path.suffix != ".json":
            return read.removesuffix("\n")
        turns = json.loads(read)
    except (OSError, ValueError) as error:
        raise UsageError(f"--reply {text}: {getattr(error, 'strerror', None) or error}") from error
    if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns):
        raise UsageError(f"--reply {text}: a conversation is a list of texts")
    return turns


def _scores(given: list[str]) -> float | dict[str, float] | list[float] | None:
    pairs = [text.rpartition("=") for text in given]
    try:
        scores = [float(score) for *_, score in pairs]
    except ValueError as error:
        raise UsageError(f"--judge takes numbers from 0 to 1: {error}") from error
    names = [name for name, *_ in pairs]
    if not given:
        return None
    if all(names):
        return dict(zip(names, scores, strict=True))
    if any(names):
        raise UsageError("--judge has names for all scores, or for none")
    return scores if len(scores) > 1 else scores[0]


def grade_lines(graded: GroupGrade, whole_prompt: bool = False) -> Iterator[str]:
    """Yield the lines that show a group."""
    where = f" ({graded.row})" if graded.row else ""
    yield f"{graded.env} in {graded.stage}, task {graded.task}{where}"
    if graded.note:
        yield f"note: {graded.note}"
    if whole_prompt:
        yield "prompt"
        yield from _block(graded.episodes[0].prompt)
    several = len(graded.episodes) > 1
    for number, episode in enumerate(graded.episodes, start=1):
        yield ""
        role = f" ({episode.role})" if episode.role else ""
        title = f"episode {number} of {len(graded.episodes)}{role}: " if several else ""
        yield f"{title}{_outcome(episode, several)}"
        yield from _episode_lines(episode)


def _outcome(episode: EpisodeGrade, several: bool) -> str:
    if episode.reward is None:
        said = {"unfinished": "the episode goes on after the last reply"}
        return f"no reward: {episode.error or said.get(episode.ended, episode.ended)}"
    solved = ", solved" if episode.solved else ""
    raw = "" if episode.raw is None else f" (before it was shaped {episode.raw:g})"
    rank = f", rank {episode.rank}" if several else ""
    return f"reward {episode.reward:g}{raw}{solved}{rank}, ended: {episode.ended}"


def _episode_lines(episode: EpisodeGrade) -> Iterator[str]:
    many = len(episode.turns) > 1
    for turn in episode.turns:
        if turn.observation:
            yield "  environment"
            yield from _block(turn.observation)
        cut = " (cut off at max_tokens)" if turn.stop_reason == "length" else ""
        yield f"  reply{cut}"
        yield from _block(turn.reply or "(empty)")
        yield from (f"  call  {tool}({arguments})" for tool, arguments in turn.calls)
        yield from (f"  judge {name}: {reason}" for name, reason in turn.verdicts.items())
        if many and turn.reward is not None:
            yield f"  turn reward {turn.reward:g}"
    if episode.components:
        yield f"  components  {_listed(episode.components)}"
    if episode.metrics:
        yield f"  metrics     {_listed(episode.metrics)}"
    if episode.waiting is not None:
        yield "  the environment goes on"
        yield from _block(episode.waiting)
    if episode.traceback:
        yield "  traceback"
        yield from _block(episode.traceback)


def _listed(numbers: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in numbers.items())


def _block(text: str) -> Iterator[str]:
    return (f"    {line}".rstrip() for line in text.strip("\n").splitlines())
