"""The tokens of replies with their numbers, in colours, and in words for those who see none."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from rlc.cli.output import Line, Part, visible
from rlc.cli.tokens.vocabulary import Vocabulary
from rlc.report.formatting import signed

if TYPE_CHECKING:
    from rlc.runtime.journal.tokens import SequenceTokens

COLORINGS = ("advantage", "ratio")  # what single tokens are coloured by
LEGEND = {
    "advantage": "tokens above 0 bold, below 0 underlined",
    "ratio": "tokens likelier than when sampled bold, less likely underlined",
}
_NOTABLE = (0.01, 0.05, 0.2)  # distances of a ratio from 1 (of its logarithm from 0) by shade


@frozen
class Token:
    """A token of a reply that was trained on: the logprobs are the sampler's and the trainer's, NaN
    where it computed none."""

    id: int
    text: str
    logprob: float
    trainer: float
    advantage: float

    @property
    def ratio(self) -> float:
        """How much likelier it was in training than when it was sampled; NaN if not known."""
        return math.exp(min(self.trainer - self.logprob, 700.0))


Replies = dict[int, tuple[Token, ...]]  # by turn


def replies_of(sequences: Sequence[SequenceTokens], vocabulary: Vocabulary) -> Replies:
    """Return the tokens of each turn of an episode that was trained on."""
    found: Replies = {}
    for one in sequences:
        at = 0
        for turn, begin, end in one.spans:
            ids = one.tokens[begin:end]
            part = slice(at, at + len(ids))
            numbers = one.logprobs_S[part], one.trainer_S[part], one.advantages_S[part]
            rows = zip(ids, vocabulary.texts(ids), *numbers, strict=True)
            found[turn] = tuple(Token(*row) for row in rows)
            at += len(ids)
    return found


def shade(token: Token, by: str, widest: float) -> int:
    """Return how a token is coloured: from -3 to 3, 0 for not at all. ``widest`` is the largest
    advantage of its reply, without its sign."""
    if by == "ratio":
        distance = token.trainer - token.logprob
        size = sum(abs(distance) >= least for least in _NOTABLE)
        return int(math.copysign(size, distance)) if size else 0
    if not token.advantage or not widest:
        return 0
    return int(math.copysign(max(1, math.ceil(3 * abs(token.advantage) / widest)), token.advantage))


def reply_parts(tokens: Sequence[Token], by: str, chosen: int | None = None) -> list[Part]:
    """Return a reply as parts of lines, each token in the style of its shade; that of the one that
    is ``chosen`` says so."""
    widest = max((abs(token.advantage) for token in tokens), default=0.0)
    parts: list[Part] = ["  "]
    for place, token in enumerate(tokens):
        tone = shade(token, by, widest) if by in COLORINGS else 0
        style = "chosen" if place == chosen else f"token{tone:+d}"
        parts.append((visible(token.text).replace("\n", "↵\n  "), style))
    return parts


def in_words(tokens: Sequence[Token]) -> Line:
    """Return what the colours of a reply say, in a line: the range of its tokens' advantages, and
    of their ratios, with the token that is farthest from 1."""
    low, high = (signed(f(token.advantage for token in tokens)) for f in (min, max))
    count = f"{len(tokens):,} token{'' if len(tokens) == 1 else 's'}"
    said = f"{count}, advantage {low}" + (f" to {high}" if high != low else "")
    known = [token for token in tokens if not math.isnan(token.ratio)]
    if known:
        ratios = [token.ratio for token in known]
        far = max(known, key=lambda token: abs(token.trainer - token.logprob))
        said += f", ratio {min(ratios):.3f} to {max(ratios):.3f}"
        if shade(far, "ratio", 0.0):
            said += f", farthest {far.text!r} {far.ratio:.3f}"
    else:
        said += ", no ratio: it was left out of the gradient"
    return "dim", [said]


def token_line(token: Token, place: int, count: int) -> str:
    """Return all that is known of a token in a line."""
    about = f"token {place + 1:,}/{count:,} {token.text!r} (id {token.id})"
    about += f"  advantage {signed(token.advantage)}"
    if math.isnan(token.ratio):
        return f"{about}  logprob {token.logprob:.3f}, left out of the gradient"
    told = f"logprob {token.logprob:.3f} sampled, {token.trainer:.3f} trained"
    return f"{about}  ratio {token.ratio:.3f}  {told}"


def table(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield a line for each token of a reply, with a heading, for where there are no colours."""
    yield "  token      id  advantage    logprob    trained    ratio  text"
    for place, token in enumerate(tokens, 1):
        ratio = "-" if math.isnan(token.ratio) else f"{token.ratio:.4f}"
        trained = "-" if math.isnan(token.trainer) else f"{token.trainer:.4f}"
        yield (
            f"  {place:>5} {token.id:>7} {token.advantage:>+10.4f} {token.logprob:>10.4f} "
            f"{trained:>10} {ratio:>8}  {token.text!r}"
        )
