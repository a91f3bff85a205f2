"""Losses over preferences: programs of the texts in ``formulas/preferences.rl``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

from rlc.algo.errors import AlgorithmError
from rlc.algo.expressions.formula import derivative_formula, formula
from rlc.algo.expressions.program import Program
from rlc.algo.expressions.vocabulary import INPUTS, trained
from rlc.algo.texts import FormulaText, formula_texts

# What a loss calls the logprobs of a side, those of the reference, and how many there are: sums,
# then tokens.
OF_SIDES: Mapping[str, tuple[str, str, str, str, str]] = {
    "logp": ("logp", "ref", "length", "logp_token", "ref_token"),
    **{
        side: (side, f"{side}_ref", f"{side}_length", f"{side}_token", f"{side}_ref_token")
        for side in ("chosen", "rejected", "mismatched")
    },
}
# The mean log-likelihood that a loss can read, and whether it is that of prompts too.
LIKELIHOODS = {"chosen_nll": False, "chat_nll": True}


def preference_text(name: str) -> FormulaText:
    """Return the text of a loss that comes with rlc. Raise AlgorithmError if there is none."""
    texts = formula_texts("preference_loss")
    if name not in texts:
        raise AlgorithmError(f"there is no preference loss {name!r}; known are {', '.join(texts)}")
    return texts[name]


def preference_program(name: str, config: Mapping[str, float]) -> Program:
    """Return the program of a loss that comes with rlc; what ``config`` leaves out has its
    default."""
    given = {**preference_text(name).defaults, **config}
    return _program(name, tuple(given.items()))


@lru_cache(maxsize=64)
def _program(name: str, config: tuple[tuple[str, float], ...]) -> Program:
    return preference_text(name).program("preference", dict(config))


@cache
def preference_candidates() -> Mapping[str, Program]:
    """Return the losses that come with rlc, by name, as programs that read their parameters like
    inputs."""
    texts = formula_texts("preference_loss")
    return {name: text.program("preference", {}, text.defaults) for name, text in texts.items()}


@cache
def preference_formula(name: str) -> tuple[str, ...]:
    """Return the formula of a loss that comes with rlc, its parameters as they are called, with
    what stands for what."""
    text = preference_text(name)
    return preference_lines(text.program("preference", {}, text.defaults))


def preference_lines(program: Program) -> tuple[str, ...]:
    """Return the formula of a loss, and what its symbols are."""
    inputs = [INPUTS["preference"][n] for n in program.inputs if n in INPUTS["preference"]]
    return (*formula(program), *(f"{each.symbol}: {each.doc}" for each in inputs))


def preference_derivatives(program: Program) -> tuple[str, ...]:
    """Return the derivatives of a loss by the logprobs that it reads, as formulas."""
    lines = (line for name in trained(program) for line in derivative_formula(program, name))
    return tuple(dict.fromkeys(lines))
