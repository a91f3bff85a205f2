"""Replays for people: as text, as data, as tables of a notebook, and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from attrs import frozen

from rlc.plan import change_lines
from rlc.replays.record import ReplayedEpisode, ReplayedSide, ReplayRecord
from rlc.report import number, render

_SHOWN = 12  # episodes that a text names
_ON_PAGE = 400  # that a page has
_NOTHING = "—"


@frozen
class ReplayTable:
    """A table: a title, the names of its columns, and its rows; the first column has names."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def tables(found: ReplayRecord, shown: int = _SHOWN) -> list[ReplayTable]:
    """Return all tables of a replay that have rows."""
    names = ("as it was", "as asked")[: len(found.sides)]
    made = [
        ReplayTable("", ("", *names), tuple(_compared(found.sides)), _cosine(found)),
        ReplayTable(
            "shares of the gradient",
            ("", *names),
            tuple(
                (f"{of} {name}", *(_share(getattr(side, part).get(name)) for side in found.sides))
                for of, part in (("environment", "environments"), ("component", "components"))
                for name in _names(found.sides, part)
            ),
            "by the sizes of the tokens' slopes ∂L/∂log p; of components by what changes without",
        ),
        _groups(found, shown),
        ReplayTable("the gradients themselves", ("", *names), *_taken(found)),
        _episodes(found, shown),
    ]
    return [table for table in made if table.rows]


def _compared(sides: Sequence[ReplayedSide]) -> Iterator[tuple[str, ...]]:
    for name in dict.fromkeys(key for side in sides for key in side.formula):
        yield name, *(side.formula.get(name, _NOTHING) for side in sides)
    yield (
        "episodes with an advantage",
        *(f"{side.episodes[0]:,} of {side.episodes[1]:,}" for side in sides),
    )
    for key, words in (("std", "spread of the advantages"), ("min", "least"), ("max", "most")):
        yield words, *(number(side.advantages[key]) if side.advantages else "" for side in sides)
    yield "loss", *(_NOTHING if side.loss is None else number(side.loss) for side in sides)
    keys = dict.fromkeys(key for side in sides for key in side.metrics)
    for key in keys:
        if key != "loss/sum":
            values = (side.metrics.get(key) for side in sides)
            yield key, *(_NOTHING if value is None else number(value) for value in values)


def _names(sides: Sequence[ReplayedSide], part: str) -> list[str]:
    return list(dict.fromkeys(name for side in sides for name in getattr(side, part)))


def _share(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.1%}"


def _cosine(found: ReplayRecord) -> str:
    if found.cosine is None:
        return ""
    return f"cosine of both gradients by the tokens' logprobs: {found.cosine:.4f}"


def _taken(found: ReplayRecord) -> tuple[tuple[tuple[str, ...], ...], str]:
    if found.gradient is None:
        return (), ""
    steps, cosine = found.gradient.steps, found.gradient.cosine
    rows = (
        ("length of the gradient", *(number(one.norm) for one in steps)),
        *(
            (words, *(_NOTHING if v is None else number(v) for v in values))
            for words, values in (
                ("loss before the step", [one.before for one in steps]),
                ("loss after the step", [one.after for one in steps]),
            )
        ),
    )
    return rows, "" if cosine is None else f"cosine of both gradients: {cosine:.4f}"


def _groups(found: ReplayRecord, shown: int) -> ReplayTable:
    """Return the groups whose part of the gradient changes most, or is largest."""
    known = [one for one in found.groups if any(one.share)]
    chosen = sorted(
        known, key=lambda one: -abs(one.share[-1] - (one.share[0] * len(one.share[1:])))
    )
    names = ("weight", "share")
    pairs = tuple(f"{name} {side}" for name in names for side in ("as it was", "as asked"))
    columns = pairs if found.after else names
    rows = [
        (
            f"{one.env} {one.task}",
            f"{min(one.rewards):.3g} to {max(one.rewards):.3g}",
            *(_share(value) for value in (*one.weight, *one.share)),
        )
        for one in chosen[: shown // 2]
    ]
    title = "groups whose share changes most" if found.after else "groups with the largest shares"
    return ReplayTable(title, ("group", "rewards", *columns), tuple(rows))


def _episodes(found: ReplayRecord, shown: int) -> ReplayTable:
    if found.after is None:
        chosen = sorted(found.episodes, key=lambda one: -abs(one.advantage[0]))
        title = "the episodes with the largest advantages"
        rows = [(*_about(one), *(_share(x) for x in one.share)) for one in chosen[:shown]]
        return ReplayTable(title, ("episode", "reward", "advantage", "share"), tuple(rows))
    chosen = sorted(found.changing, key=lambda one: -abs(one.advantage[1] - one.advantage[0]))
    left = len(chosen) - shown
    count = f"{len(chosen):,} of {len(found.episodes):,} episodes change sides"
    return ReplayTable(
        count,
        ("episode", "reward", "as it was", "as asked"),
        tuple(_about(one) for one in chosen[:shown]),
        f"and {left:,} more" if left > 0 else "",
    )


def _about(one: ReplayedEpisode) -> tuple[str, ...]:
    return one.name, number(one.reward), *(f"{value:+.4f}" for value in one.advantage)


def agreement(found: ReplayRecord) -> str:
    """Return a sentence on whether the run has journalled what was computed anew."""
    if not found.differences:
        return "the run has journalled nothing to compare this with"
    exact = [x for name, x in found.differences.items() if name != "loss/sum"]
    apart = max(exact, default=0.0)
    said = (
        f"computed anew it is as the run journalled it, {f'to {apart:.1e}' if apart else 'exactly'}"
    )
    if not found.agrees:
        worst = max(found.differences, key=lambda name: found.differences[name])
        said = f"`{worst}` is not as the run journalled it: {found.differences[worst]:.3g} apart"
    if "loss/sum" in found.differences:
        said += f"; the service's own loss, in float32, to {found.differences['loss/sum']:.1e}"
    return said


def heading(found: ReplayRecord) -> str:
    """Return what was replayed."""
    groups = {(one.env, one.task) for one in found.episodes}
    count = f"{len(found.episodes):,} episodes in {len(groups):,} groups"
    return f"{found.run}   {found.stage} step {found.step:,}   {count}"


def replay_text(found: ReplayRecord) -> str:
    """Return a replay as the terminal shows it."""
    lines = [heading(found)]
    lines += ["", *(f"    asked  {one}" for one in found.asked)] if found.asked else []
    for table in tables(found):
        lines += ["", *([f"  {table.title}"] if table.title else [])]
        widths = [max(map(len, column)) for column in zip(table.columns, *table.rows, strict=True)]
        for row in (table.columns, *table.rows):
            first, *rest = row
            cells = (f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True))
            lines.append(f"    {first:{widths[0]}}  {'  '.join(cells)}".rstrip())
        lines += [f"    {table.note}"] if table.note else []
    if found.after is not None and not found.changing:
        lines += ["", f"  none of {len(found.episodes):,} episodes changes sides"]
    lines += ["", f"  {agreement(found)}", *(f"  note: {note}" for note in found.notes)]
    return "\n".join(lines) + "\n"


def replay_dict(found: ReplayRecord) -> dict[str, Any]:
    """Return a replay as plain data."""

    def side(one: ReplayedSide) -> dict[str, Any]:
        names = ("formula", "advantages", "loss", "metrics", "environments", "components")
        data = {name: getattr(one, name) for name in names}
        plain = {k: dict(v) if isinstance(v, Mapping) else v for k, v in data.items()}
        return plain | {"with_advantage": one.episodes[0], "episodes": one.episodes[1]}

    taken = found.gradient and {
        "cosine": found.gradient.cosine,
        "steps": [
            {"norm": one.norm, "loss_before": one.before, "loss_after": one.after}
            for one in found.gradient.steps
        ],
    }
    return {
        "run": found.run,
        "stage": found.stage,
        "step": found.step,
        "as_it_was": side(found.before),
        "as_asked": found.after and side(found.after),
        "asked": list(found.asked),
        "changes": list(change_lines(found.changes)),
        "cosine_by_logprobs": found.cosine,
        "gradient": taken,
        "agrees": found.agrees,
        "differences": dict(found.differences),
        "notes": list(found.notes),
        "groups": [
            {
                "env": one.env,
                "task": one.task,
                "rewards": list(one.rewards),
                "weight": list(one.weight),
                "share": list(one.share),
            }
            for one in found.groups
        ],
        "episodes": [
            {
                **{name: getattr(one, name) for name in ("env", "task", "member", "role")},
                "reward": one.reward,
                "error": one.error,
                "advantage": list(one.advantage),
                "share": list(one.share),
                "weight": list(one.weight),
                "changes_sign": one.changes_sign,
            }
            for one in found.episodes
        ],
    }


def replay_tables(found: ReplayRecord) -> str:
    """Return the tables of a replay as HTML, for a notebook."""
    parts = [f"<p><b>{escape(heading(found))}</b></p>"]
    parts += [f"<p>asked: <code>{escape(one)}</code></p>" for one in found.asked]
    for table in tables(found):
        cells = [[f"<th>{escape(cell)}</th>" for cell in table.columns]]
        cells += [[f"<td>{escape(cell)}</td>" for cell in row] for row in table.rows]
        rows = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
        caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
        parts.append(f"<table>{caption}{rows}</table>")
        parts += [f"<p>{escape(table.note)}</p>"] if table.note else []
    parts += [f"<p>{escape(text)}</p>" for text in (agreement(found), *found.notes)]
    return f"<div>{''.join(parts)}</div>"


@frozen
class ReplayPage:
    """What the template of a page shows."""

    heading: str
    changes: tuple[str, ...]
    tables: tuple[ReplayTable, ...]
    agreement: str
    agrees: bool
    notes: tuple[str, ...]
    episodes: tuple[ReplayedEpisode, ...]
    left_out: int
    asked: bool


def replay_page(found: ReplayRecord) -> str:
    """Return a replay as one self-contained page."""
    chosen = sorted(found.episodes, key=lambda one: not one.changes_sign)[:_ON_PAGE]
    page = ReplayPage(
        heading(found),
        tuple(change_lines(found.changes)),
        tuple(tables(found)),
        agreement(found),
        found.agrees,
        found.notes,
        tuple(chosen),
        len(found.episodes) - len(chosen),
        found.after is not None,
    )
    return render(page, "replay.html.j2")


@frozen(eq=False)
class Replay(ReplayRecord):
    """A step of a run, replayed; ``print`` shows it, and so does a notebook."""

    def __str__(self) -> str:
        return replay_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the data of `rlc replay --json`."""
        return replay_dict(self)

    def html(self) -> str:
        """Return the page of `rlc replay -o`."""
        return replay_page(self)

    def _repr_html_(self) -> str:
        return replay_tables(self)
