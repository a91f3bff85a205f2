"""Write the text of a recipe: literals, comments, blocks, and what all importers have in common."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import frozen

from rlc.catalog import BaseModelFacts, find_model, find_retired, is_taken
from rlc.imports.settings import InputError, Settings, shown
from rlc.lang import Source, format_text
from rlc.lang.syntax import parse

WIDTH = 100
LONGEST_TRAILING = 58  # a longer comment stands above its field
_GROUPED = 10_000  # from which a number is written with separators


@frozen
class RecipeLine:
    """``name = value``, with a comment."""

    name: str
    value: str
    comment: str = ""


def block(kind: str, name: str, lines: Iterable[RecipeLine], above: Sequence[str] = ()) -> str:
    """Write ``kind name { … }`` with comments, to be laid out by the formatter."""
    body = []
    for line in lines:
        field = f"{line.name} = {line.value}"
        beside = len(field) + len(line.comment) < WIDTH - 14
        if line.comment and len(line.comment) <= LONGEST_TRAILING and beside:
            field = f"{field}  # {line.comment}"
        elif line.comment:
            body.append(comment(line.comment, indent=2))
        body.append(field)
    return "\n".join([*(comment(text) for text in above), f"{kind} {name} {{", *body, "}\n"])


def declaration(kind: str, name: str, value: str, above: Sequence[str] = ()) -> str:
    """Write ``kind name = value``."""
    return "\n".join([*(comment(text) for text in above), f"{kind} {name} = {value}\n"])


def call(name: str, *arguments: str, **named: Any) -> str:
    """Write ``name(arguments, key = value)``; a named argument of None is left out."""
    given = [f"{key} = {literal(value)}" for key, value in named.items() if value is not None]
    return f"{name}({', '.join([*arguments, *given])})"


def pipeline(*steps: str) -> str:
    return " |> ".join(steps)


@frozen
class Word:
    """A word of the language, or an expression that is already written."""

    text: str


def literal(value: Any) -> str:
    """Write a value. Raise InputError if no recipe can hold it."""
    if isinstance(value, Word):
        return value.text
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, str):
        return string(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(literal(item) for item in value)}]"
    if isinstance(value, dict):
        for name in value:
            if not name.isidentifier() or not name.isascii():
                message = f'"{shown(name)}" cannot be the name of an argument'
                raise InputError(message, "correct it")
        fields = [f"{name} = {literal(item)}" for name, item in value.items()]
        return f"{{ {' '.join(fields)} }}"
    raise InputError(f"a recipe cannot hold {shown(value)}", "remove it")


def choice(value: str, choices: Iterable[str]) -> str:
    """Write one of the ``choices`` as a word, and anything else as a string."""
    return value if value in choices else string(value)


def number(value: int | float) -> str:
    """Write a number: ``32_768``, ``4e-5``, ``0.9``."""
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e15):
        text = f"{int(value):_}" if abs(value) >= _GROUPED else str(int(value))
        return text if isinstance(value, int) else f"{text}.0"
    mantissa, exponent, power = repr(float(value)).partition("e")
    return f"{mantissa}e{int(power)}" if exponent else mantissa


def string(value: str) -> str:
    """Write a string with its escapes. Raise InputError if no recipe can hold a character."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("\n", "\\n").replace("\t", "\\t")
    if not escaped.isprintable():
        message = f'"{shown(value)}" holds a character that a recipe cannot'
        raise InputError(message, "write it without control characters")
    return f'"{escaped}"'


def comment(text: str, indent: int = 0) -> str:
    """Wrap a text as comment lines; its line breaks stay."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        rest = "  " * paragraph.startswith("  ")
        lines += textwrap.wrap(
            paragraph,
            WIDTH - indent - 2,
            subsequent_indent=rest and "    ",
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(f"# {line}".rstrip() for line in lines)


POLICY, MAIN = "policy", "main"
TRAINER_LOSSES = ("importance_sampling", "ppo", "cispo", "dro")  # what Tinker's trainers accept
_TAKEN = {POLICY, MAIN, "heldout", "then", "true", "false", "none"}


TRAINED = RecipeLine("model", POLICY)


def current_model(base: str) -> BaseModelFacts | None:
    """Return what the catalogue knows of a base model, or of the one that replaces it."""
    retired = find_retired(base)
    return find_model(retired.use if retired else base)


def quiet_renderer(base: str) -> str | None:
    """Return the renderer of a base model that disables its thinking, or None."""
    model = current_model(base)
    renderers = model.renderers if model else ()
    return next((name for name in renderers if "disable_thinking" in name), None)


def weights_line(
    base: str, path: str, comment: str = "", with_optimizer: bool = False
) -> RecipeLine:
    """Write ``weights``, a saved state to start from; those of a retired model fit no other."""
    if find_retired(base):
        foreign = f'a state of "{base}", which fits no other model'
        comment = remarks(comment, f"{foreign}: remove it, or give one that fits")
    value = f"state({literal(path)})" if with_optimizer else literal(path)
    return RecipeLine("weights", value, comment)


FULL = "all weights are trained there; here an adapter is, which takes about ten times the rate"
UNKNOWN_MODEL = (
    "the catalogue does not know it: choose one of `rlc models`, or keep it on a server of yours, "
    "with `service = tinker` and a `renderer`"
)


def model_block(
    settings: Settings, base: str, rank: str | None, lines: Sequence[RecipeLine] = ()
) -> str:
    """Write the ``model``, with a retired one in a comment beside the one that replaces it;
    ``base`` and ``rank`` are the names of its options, the latter None where all weights are
    trained."""
    name, note, retired = settings[base], settings.default_note(base), find_retired(settings[base])
    if retired is not None:
        why = f"which the hosted service no longer trains (since {retired.since})"
        name, note = retired.use, f'in place of "{name}"{f" ({note})" if note else ""}, {why}'
    elif find_model(name) is None:
        note = remarks(note, UNKNOWN_MODEL)
    size = RecipeLine("lora_rank", "32", FULL)
    if rank is not None:
        size = RecipeLine("lora_rank", literal(settings[rank]), settings.default_note(rank))
    return block("model", POLICY, [RecipeLine("base", literal(name), note), size, *lines])


def save_line(every: int, comment: str, **more: Word) -> list[RecipeLine]:
    """Write ``save``; nothing without an interval, for at the end rlc always saves."""
    save = RecipeLine("save", call("every", literal(every), **more), comment)
    return [save] if every > 0 else []


def track_lines(
    settings: Settings,
    loggers: str = "trainer.logger",
    names: Sequence[str] = ("trainer.project_name", "trainer.experiment_name"),
) -> list[RecipeLine]:
    """Write ``track``; ``names`` are the options of the project and of the run."""
    trackers = []
    for name in settings[loggers]:
        if name in ("wandb", "trackio"):
            project, run = (settings[option] for option in names)
            trackers.append(call(name, literal(project), run=run))
        elif name == "tensorboard":
            trackers.append("tensorboard()")
        elif name not in ("console", "none"):
            settings.problem(f"there is no logger `{shown(name)}` in rlc")
    for name in names:
        if settings.is_given(name) and name not in settings.used:
            settings.note(f"{name} = {shown(settings[name])}: names a W&B run, and there is none")
    return [RecipeLine("track", f"[{', '.join(trackers)}]")] if trackers else []


def remarks(*texts: str) -> str:
    """Join the parts of a comment that are not empty."""
    return "; ".join(filter(None, texts))


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
    """Return the recipe in its canonical layout. Its first comment names the source, and each
    option that was left out with the reason."""
    settings.finish()
    lines = [f"{what}, imported with `rlc import`."]
    if settings.notes:
        lines += ["", "Not carried over, or worth knowing:"]
        lines += [f"  - {note}" for note in settings.notes]
    source = Source("<import>", "\n".join([comment("\n".join(lines)), "", *parts]))
    recipe, found = parse(source)
    assert not found.has_errors, found
    return format_text(source, recipe)
