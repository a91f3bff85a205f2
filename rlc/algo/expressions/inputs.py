"""Inputs of expressions: what is known of one, the shapes that values have, which of them fit where
others are, and the inputs of preference losses. Those of other kinds are in
:mod:`~rlc.algo.expressions.vocabulary`, which says more of shapes.

Shapes of a preference loss: a value of a ``pair`` of replies, one for each ``chosen_token`` or
``rejected_token`` of its replies; or one of a labelled ``reply``, and for each ``reply_token``. Of
the tokens of two replies none belong together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol, TypeVar

from rlc.algo.expressions.program import Kind, Shape
from rlc.records import frozen

# The shapes that each fits where they are, from narrow to wide.
WIDER: Mapping[Shape, tuple[Shape, ...]] = {
    "number": (
        *("sequence", "token", "episode", "turn", "component", "turn_component", "turn_token"),
        *("pair", "chosen_token", "rejected_token", "reply", "reply_token"),
    ),
    "sequence": ("token",),
    "token": (),
    "episode": ("turn", "component", "turn_component", "turn_token"),
    "turn": ("turn_component", "turn_token"),
    "component": ("turn_component",),
    "turn_component": (),
    "turn_token": (),
    "pair": ("chosen_token", "rejected_token"),
    "chosen_token": (),
    "rejected_token": (),
    "reply": ("reply_token",),
    "reply_token": (),
}
# What is made of the values of tokens, and the input that counts these.
OF_TOKENS: Mapping[Shape, Shape] = {
    "token": "sequence",
    "chosen_token": "pair",
    "rejected_token": "pair",
    "reply_token": "reply",
}
LENGTHS: Mapping[Shape, str] = {
    "token": "length",
    "chosen_token": "chosen_length",
    "rejected_token": "rejected_length",
    "reply_token": "length",
}
# What a mean over the batch is taken of.
OF_BATCH: Mapping[Kind, tuple[Shape, ...]] = {"loss": ("token",), "preference": ("pair", "reply")}
# The inputs with a gradient.
TRAINED: Mapping[Kind, tuple[str, ...]] = {
    "loss": ("logp",),
    "preference": (
        *("chosen", "rejected", "chosen_token", "rejected_token", "chosen_nll", "chat_nll"),
        *("logp", "logp_token"),
    ),
}


def widest(shapes: Iterable[Shape]) -> Shape | None:
    """Return the narrowest shape that all of some fit; None if they do not go together."""
    given = set(shapes)
    fitting = (w for w in WIDER if all(one == w or w in WIDER[one] for one in given))
    return next(fitting, None)


@frozen(eq=False)
class Input:
    """An input of an expression.

    ``symbol`` is what formulas call it. ``low`` and ``high`` bound its values. ``flag``: it is 1
    or 0, and stands for a condition where one is needed.
    """

    name: str
    shape: Shape
    doc: str
    symbol: str
    low: float = -math.inf
    high: float = math.inf
    flag: bool = False


class _Named(Protocol):
    @property
    def name(self) -> str: ...


E = TypeVar("E", bound=_Named)


def table(*entries: E) -> MappingProxyType[str, E]:
    return MappingProxyType({entry.name: entry for entry in entries})


def flag(name: str, shape: Shape, doc: str) -> Input:
    return Input(name, shape, doc, name, low=0, high=1, flag=True)


def _logprob(name: str, shape: Shape, doc: str, symbol: str) -> Input:
    return Input(name, shape, doc, symbol, high=0)


def _of_side(name: str, token: Shape, which: str, mark: str) -> tuple[Input, ...]:
    """Return the inputs of one reply of a pair."""
    of, token_of = f"of the {which} reply", f"of each token of the {which} reply"
    return (
        _logprob(name, "pair", f"the logprob {of}, summed over its tokens", f"log p{mark}"),
        _logprob(f"{name}_ref", "pair", f"the reference's logprob {of}", f"log p_ref{mark}"),
        Input(f"{name}_length", "pair", f"the number of tokens {of}", f"n{mark}", low=1),
        _logprob(f"{name}_token", token, f"the logprob {token_of}", f"log p{mark}_t"),
        _logprob(
            f"{name}_ref_token", token, f"the reference's logprob {token_of}", f"log p_ref{mark}_t"
        ),
    )


# The inputs that the rows of the data have, and no model computes.
RATING_INPUTS = ("chosen_rating", "rejected_rating", "rating_margin", "rating")

OF_REPLIES = table(
    *_of_side("chosen", "chosen_token", "better", "⁺"),
    *_of_side("rejected", "rejected_token", "worse", "⁻"),
    Input(
        "chosen_nll",
        "pair",
        "minus the mean logprob of all tokens of the batch's better replies",
        "nll⁺",
        low=0,
    ),
    Input(
        "chat_nll",
        "pair",
        "minus that of all tokens of the batch's better chats, prompts included",
        "nll_chat⁺",
        low=0,
    ),
    Input("chosen_rating", "pair", "how good the better reply is, by its row", "s⁺"),
    Input("rejected_rating", "pair", "how good the worse reply is, by its row", "s⁻"),
    Input(
        "rating_margin",
        "pair",
        "by how much the better reply is better, by its row: its margin, or the difference of its "
        "ratings",
        "m",
    ),
    _logprob("logp", "reply", "the logprob of the reply, summed over its tokens", "log p"),
    _logprob("ref", "reply", "the reference's logprob of the reply", "log p_ref"),
    Input("length", "reply", "the number of tokens of the reply", "n", low=1),
    flag("good", "reply", "1 if the reply is labelled good, 0 if bad"),
    Input("rating", "reply", "how good the reply is, by its row", "s"),
    _logprob("logp_token", "reply_token", "the logprob of each token of the reply", "log p_t"),
    _logprob(
        "ref_token",
        "reply_token",
        "the reference's logprob of each token of the reply",
        "log p_ref,t",
    ),
    _logprob(
        "mismatched",
        "reply",
        "the logprob, without a gradient, of a reply to another prompt after this one",
        "log p*",
    ),
    _logprob(
        "mismatched_ref", "reply", "the reference's logprob of the mismatched reply", "log p_ref*"
    ),
    Input(
        "mismatched_length", "reply", "the number of tokens of the mismatched reply", "n*", low=1
    ),
)
