"""What the importers have in common: a model, an optimiser, checkpoints, names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlc.catalog.facts.models import Model, find_model, find_retired
from rlc.catalog.index import find_anywhere
from rlc.imports.settings import Settings
from rlc.imports.write import Line, Word, block, call, literal

POLICY, MAIN = "policy", "main"
SCRIPT, TRAINER = "the script's default", "the trainer's default"
_TAKEN = {POLICY, MAIN, "heldout", "then", "true", "false", "none"}


def current_base(base: str) -> str:
    """The base model, or what takes its place where the service no longer trains it."""
    retired = find_retired(base)
    return retired.use if retired else base


def current_model(base: str) -> Model | None:
    """What the catalogue knows of it."""
    return find_model(current_base(base))


def base_line(base: str, comment: str = "") -> Line:
    """``base``, with the original in a comment where it is retired."""
    retired = find_retired(base)
    if retired is None:
        return Line("base", literal(base), comment)
    said = f" ({comment})" if comment else ""
    text = (
        f'in place of "{base}"{said}, which the hosted service no longer trains (since '
        f"{retired.since})"
    )
    return Line("base", literal(retired.use), text)


def weights_line(base: str, path: str, comment: str = "") -> Line:
    """``weights``, a saved state to start from; those of a retired model fit no other."""
    foreign = f'a state of "{base}", which fits no other model: take it out, or give one that fits'
    return Line("weights", literal(path), remarks(comment, foreign if find_retired(base) else ""))


def model_block(settings: Settings, base: str, rank: str, lines: Sequence[Line] = ()) -> str:
    """The ``model``; ``base`` and ``rank`` name the options that say so."""
    return block(
        "model",
        POLICY,
        [
            base_line(settings[base], default_note(settings, base)),
            Line("lora_rank", literal(settings[rank]), default_note(settings, rank)),
            *lines,
        ],
    )


def default_note(settings: Settings, *names: str, whose: str = SCRIPT) -> str:
    """``the script's default`` where nothing was given; with several options, which of them."""
    missing = [name for name in names if not settings.is_given(name)]
    if not missing:
        return ""
    return whose if len(names) == 1 else f"{', '.join(missing)}: {whose}"


def save_line(every: int, comment: str, **more: Word) -> list[Line]:
    """``save`` every so many steps; without an interval no field: at the end rlc always saves."""
    if every <= 0:
        return []
    return [Line("save", call("every", literal(every), **more), comment)]


def remarks(*texts: str) -> str:
    """One comment of several."""
    return "; ".join(text for text in texts if text)


def env_name(text: str, others: Sequence[str] = ()) -> str:
    """A name for an environment that nothing else has: ``game:Sudoku-v0-easy`` is ``sudoku``."""
    last = re.split(r"[:/]", text.strip(":/"))[-1]
    plain = re.sub(r"\W+", "_", re.sub(r"-v\d.*", "", last), flags=re.ASCII).strip("_").lower()
    name = plain if plain[:1].isalpha() else f"env_{plain}".rstrip("_")
    if name in _TAKEN or find_anywhere(name):
        name = f"{name}_env"
    count, unique = 1, name
    while unique in others:
        count += 1
        unique = f"{name}_{count}"
    return unique


def header(what: str, settings: Settings) -> list[str]:
    """The first comment: what this was, and every option that is not in it with the reason."""
    settings.finish()
    lines = [f"{what}, imported with `rlc import`."]
    if settings.notes:
        lines += ["", "Not carried over, or worth knowing:"]
        lines += [f"  - {note}" for note in settings.notes]
    return ["\n".join(lines)]
