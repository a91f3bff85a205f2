"""What the importers have in common: a model, an optimiser, checkpoints, names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rlc.catalog import BaseModelFacts, find_model, find_retired, is_taken
from rlc.imports.settings import Settings
from rlc.imports.write import RecipeLine, Word, block, call, literal, recipe_text

POLICY, MAIN = "policy", "main"
TRAINER_LOSSES = ("importance_sampling", "ppo", "cispo", "dro")  # what Tinker's trainers accept
_TAKEN = {POLICY, MAIN, "heldout", "then", "true", "false", "none"}


def current_model(base: str) -> BaseModelFacts | None:
    """Return what the catalogue knows of a base model, or of the one that replaces it."""
    retired = find_retired(base)
    return find_model(retired.use if retired else base)


def quiet_renderer(base: str) -> str | None:
    """Return the renderer of a base model that disables its thinking, or None."""
    model = current_model(base)
    renderers = model.renderers if model else ()
    return next((name for name in renderers if "disable_thinking" in name), None)


def base_line(base: str, comment: str = "") -> RecipeLine:
    """Write ``base``, with the original in a comment if it is retired."""
    retired = find_retired(base)
    if retired is None:
        return RecipeLine("base", literal(base), comment)
    said = f" ({comment})" if comment else ""
    why = f"which the hosted service no longer trains (since {retired.since})"
    return RecipeLine("base", literal(retired.use), f'in place of "{base}"{said}, {why}')


def weights_line(base: str, path: str, comment: str = "") -> RecipeLine:
    """Write ``weights``, a saved state to start from; those of a retired model fit no other."""
    foreign = f'a state of "{base}", which fits no other model: take it out, or give one that fits'
    return RecipeLine(
        "weights", literal(path), remarks(comment, foreign if find_retired(base) else "")
    )


def model_block(settings: Settings, base: str, rank: str, lines: Sequence[RecipeLine] = ()) -> str:
    """Write the ``model``; ``base`` and ``rank`` are the names of its options."""
    return block(
        "model",
        POLICY,
        [
            base_line(settings[base], settings.default_note(base)),
            RecipeLine("lora_rank", literal(settings[rank]), settings.default_note(rank)),
            *lines,
        ],
    )


def save_line(every: int, comment: str, **more: Word) -> list[RecipeLine]:
    """Write ``save``; nothing without an interval, for at the end rlc always saves."""
    if every <= 0:
        return []
    return [RecipeLine("save", call("every", literal(every), **more), comment)]


def remarks(*texts: str) -> str:
    """Join the parts of a comment that are not empty."""
    return "; ".join(text for text in texts if text)


def env_name(text: str, others: Sequence[str] = ()) -> str:
    """Return a unique name for an environment: ``sudoku`` for ``game:Sudoku-v0-easy``."""
    last = re.split(r"[:/]", text.strip(":/"))[-1]
    plain = re.sub(r"\W+", "_", re.sub(r"-v\d.*", "", last), flags=re.ASCII).strip("_").lower()
    name = plain if plain[:1].isalpha() else f"env_{plain}".rstrip("_")
    if name in _TAKEN or is_taken(name):
        name = f"{name}_env"
    count, unique = 1, name
    while unique in others:
        count += 1
        unique = f"{name}_{count}"
    return unique


def recipe_of(what: str, settings: Settings, parts: Iterable[str]) -> str:
    """Return the recipe. Its first comment names the source, and each option that was left out with
    the reason."""
    settings.finish()
    lines = [f"{what}, imported with `rlc import`."]
    if settings.notes:
        lines += ["", "Not carried over, or worth knowing:"]
        lines += [f"  - {note}" for note in settings.notes]
    return recipe_text("\n".join(lines), parts)
