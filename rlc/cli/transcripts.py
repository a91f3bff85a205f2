"""Episodes as lines of text with styles, for `rlc show` and its browser."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rlc.cli.output import Line, Part, visible
from rlc.cli.tokens import COLORINGS as TOKEN_COLORINGS
from rlc.cli.tokens import in_words, reply_parts, table

if TYPE_CHECKING:
    from rich.text import Text

    from rlc.cli.tokens import Replies, TrainedToken
    from rlc.plan import Plan
    from rlc.report.episodes import ShownEpisode
    from rlc.runtime import Failure, Record

# The shades of tokens in a terminal, which may have no more than 16 colours.
TOKEN_STYLES = {
    "token+0": "",
    "token+1": "bold green",
    "token+2": "bold bright_green",
    "token+3": "bold black on green",
    "token-1": "underline red",
    "token-2": "underline bright_red",
    "token-3": "underline black on red",
}


def system_messages(plan: Plan) -> dict[str, str]:
    """Return what `chat(system = …)` says to the model before the first turn, by environment."""
    from rlc.catalog import with_role

    envs = (env for stage in plan.stages for env in stage.environments)
    chats = {env.name: with_role(env, "chat") for env in envs}
    return {name: chat.args.get("system", "") for name, chat in chats.items() if chat is not None}


def transcript(
    episode: ShownEpisode, system: str | None = None, replies: Replies | None = None, by: str = ""
) -> list[Text]:
    """Return an episode line by line: a heading, the ``system`` message of its chat, its turns.

    The tokens of ``replies`` are coloured by something, summed up without ``by``, or with `table`
    listed.
    """
    from rich.text import Text

    lines, replies = [*heading_lines(episode)], replies or {}
    colored = by if by in TOKEN_COLORINGS else None
    for number in range(len(episode.record["turns"])):
        tokens = replies.get(number, ())
        lines += turn_lines(episode.record, number, system, tokens, colored)
        if tokens and by == "table":
            lines += [("", [line]) for line in table(tokens)]
    return [
        Text.assemble(*(_styled(part) for part in parts), style=style) for style, parts in lines
    ]


def _styled(part: Part) -> Part:
    return part if isinstance(part, str) else (part[0], TOKEN_STYLES.get(part[1], part[1]))


def causes(failures: Iterable[Failure]) -> Iterator[Text]:
    """Yield the place and the traceback of each cause."""
    from rich.text import Text

    for failure in failures:
        for style, parts in cause_lines(failure):
            yield Text.assemble(*parts, style=style)


def cause_lines(failure: Failure) -> Iterator[Line]:
    yield "bold", [f"raised at {failure.place}" if failure.place else "raised by rlc"]
    yield "dim", [failure.traceback.rstrip()]


def heading_lines(episode: ShownEpisode) -> Iterator[Line]:
    """Yield what an episode is and how it went."""
    from rlc.report.episodes import about_line, advantage

    record = episode.record
    role = f", {role_of(record)}" if role_of(record) else ""
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


def role_of(record: Record) -> str:
    """Return the role of an episode, with which of the replies in that role it is, if there are
    several."""
    reply = record.get("reply")
    return " ".join(filter(None, (record["role"], f"#{reply}" if reply else "")))


def turn_lines(
    record: Record,
    number: int,
    system: str | None,
    tokens: Sequence[TrainedToken] = (),
    by: str | None = None,
    chosen: int | None = None,
) -> Iterator[Line]:
    """Yield a turn of an episode; the ``system`` message comes before the first.

    Of a reply that was trained on its ``tokens`` are summed up; with ``by`` they take the place of
    its text, coloured by that, the one at ``chosen`` marked.
    """
    turn, advantages = record["turns"][number], record["advantages"]
    yield "dim", [f"── turn {number + 1} of {len(record['turns'])}"]
    said = [("system", system, "magenta")] if system and not number else []
    said += [("environment", turn["observation"], "cyan"), ("model", turn["action"], "bold")]
    said += [(f"call of {name}", given, "") for _, name, given in turn.get("calls", ())]
    for who, text, style in said:
        if who == "model" and tokens and by is not None:
            yield "", [("model:\n", "dim"), *reply_parts(tokens, by, chosen)]
            continue
        indented = "\n".join(f"  {part}" for part in visible(text).splitlines())
        yield "dim", [f"{who}:\n", (indented or "  (nothing)", style)]
    for verdict in turn.get("verdicts", ()):
        why = "\n".join(f"  {part}" for part in visible(verdict["reason"]).splitlines())
        score = f"judge {verdict['judge']}: {verdict['score']:.3g}\n"
        yield "dim", [score, (why or "  (no reason)", "magenta")]
    reward = turn["reward"]
    measured = "".join(f"  {name} {value:g}" for name, value in turn["metrics"].items())
    counts = f"  {turn['prompt_tokens']:,} + {turn['tokens']:,} tokens, {turn['stop_reason']}"
    yield (
        "",
        [
            "no reward" if reward is None else f"reward {reward:.3f}",
            *(_advantage(advantages[number]) if number < len(advantages) else []),
            (measured + counts, "dim"),
        ],
    )
    if tokens:
        yield in_words(tokens)


def _advantage(value: float) -> list[Part]:
    """Green above zero, red below; a mark says the same without colour."""
    from rlc.report import signed

    return ["  advantage ", (signed(value), style_of(value))]


def style_of(value: float) -> str:
    """Return the colour of an advantage or a margin."""
    return "green" if value > 0 else "red" if value < 0 else "dim"
