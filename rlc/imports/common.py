"""What the importers have in common: a model, an optimiser, checkpoints, names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlc.catalog.facts.models import Model, find_model, find_retired
from rlc.catalog.index import find_anywhere
from rlc.imports.settings import Settings
from rlc.imports.write import Line, Word, block, call, literal

POLICY, MAIN = "policy", "main"
TRAINER = "the trainer's default"
_TAKEN = {POLICY, MAIN, "heldout", "then", "true", "false", "none"}


def current_model(base: str) -> Model | None:
    """Return what the catalogue knows of a base model, or of the one that replaces it."""
    retired = find_retired(base)
    return find_model(retired.use if retired else base)


def base_line(base: str, comment: str = "") -> Line:
    """Write ``base``, with the original in a comment if it is retired."""
    retired = find_retired(base)
    if retired is None:
        return Line("base", literal(base), comment)
    said = f" ({comment})" if comment else ""
    why = f"which the hosted service no longer trains (since {retired.since})"
    return Line("base", literal(retired.use), f'in place of "{base}"{said}, {why}')


def weights_line(base: str, path: str, comment: str = "") -> Line:
    """Write ``weights``, a saved state to start from; those of a retired model fit no other."""
    foreign = f'a state of "{base}", which fits no other model: take it out, or give one that fits'
    return Line("weights", literal(path), remarks(comment, foreign if find_retired(base) else ""))


def model_block(settings: Settings, base: str, rank: str, lines: Sequence[Line] = ()) -> str:
    """Write the ``model``; ``base`` and ``rank`` are the names of its options."""
    return block(
        "model",
        POLICY,
        [
            base_line(settings[base], default_note(settings, base)),
            Line("lora_rank", literal(settings[rank]), default_note(settings, rank)),
            *lines,
        ],
    )


def default_note(settings: Settings, *names: str, whose: str = "the script's default") -> str:
    """Return ``the script's default`` if nothing was given, with names if there are several."""
    missing = [name for name in names if not settings.is_given(name)]
    if not missing:
        return ""
    return whose if len(names) == 1 else f"{', '.join(missing)}: {whose}"


def trainer_default(settings: Settings, *names: str) -> str:
    """Return the same for what calls itself a trainer."""
    return default_note(settings, *names, whose=TRAINER)


def save_line(every: int, comment: str, **more: Word) -> list[Line]:
    """Write ``save``; nothing without an interval, for at the end rlc always saves."""
    if every <= 0:
        return []
    return [Line("save", call("every", literal(every), **more), comment)]


def remarks(*texts: str) -> str:
    """Join the parts of a comment that are not empty."""
    return "; ".join(text for text in texts if text)


def env_name(text: str, others: Sequence[str] = ()) -> str:
    """Return a unique name for an environment: ``sudoku`` for ``game:Sudoku-v0-easy``."""
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
    """Write the first comment: the source, and each option that was left out with the reason."""
    settings.finish()
    lines = [f"{what}, imported with `rlc import`."]
    if settings.notes:
        lines += ["", "Not carried over, or worth knowing:"]
        lines += [f"  - {note}" for note in settings.notes]
    return ["\n".join(lines)]
