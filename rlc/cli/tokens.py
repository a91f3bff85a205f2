"""Tokens of episodes for people: decoded, coloured by advantage or ratio."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from rlc.catalog import tokenizer_of
from rlc.cli.output import Line, Part, visible
from rlc.pricing import tokenizer_at_hand
from rlc.report import signed
from rlc.runtime import TOKENS_FILE, EpisodeKey, TokenIndex

if TYPE_CHECKING:
    from rlc.plan import Plan
    from rlc.runtime import Record, SequenceTokens


_FILE = "tokenizer.json"
_LONGEST = 4  # tokens that a character is spread over
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


@frozen
class Vocabulary:
    """Says what tokens stand for; ``missing`` says why it cannot, if it only knows their ids."""

    tokenizer: Any
    missing: str = ""

    def texts(self, tokens: Sequence[int]) -> list[str]:
        """Return the text of each token. The first of those that are one character together has
        it, the others have none."""
        if self.tokenizer is None:
            return [f"{token} " for token in tokens]
        texts = list[str]()
        while len(texts) < len(tokens):
            at = len(texts)
            text, size = self._decoded(tokens[at : at + 1]), 1
            for more in range(2, _LONGEST + 1) if _UNKNOWN in text else ():
                if _UNKNOWN not in (longer := self._decoded(tokens[at : at + more])):
                    text, size = longer, min(more, len(tokens) - at)
                    break
            texts += [text, *[""] * (size - 1)]
        return texts

    def _decoded(self, tokens: Sequence[int]) -> str:
        if any(token < 0 for token in tokens):
            return "(not text)"
        text = str(self.tokenizer.decode(list(tokens), skip_special_tokens=False))
        # A tokenizer of sentencepiece takes a text's first blank for its own.
        starts = (self.tokenizer.id_to_token(tokens[0]) or "").startswith("▁")
        return f" {text}" if starts and not text.startswith(" ") else text


@cache
def vocabulary_of(base: str) -> Vocabulary:
    """Return the vocabulary of a base model: the included one, one in a folder, or one of a hub
    that has been downloaded to this machine before. Nothing is downloaded."""
    try:
        tokenizers = importlib.import_module("tokenizers")
    except ImportError:
        return Vocabulary(None, "the package tokenizers is not installed: pip install 'rlc[local]'")
    if (at_hand := tokenizer_at_hand(base)) is not None:
        return Vocabulary(at_hand)
    file = Path(base) / _FILE
    if not file.is_file():
        found = _downloaded(base)
        if found is None:
            where = "its folder has no tokenizer.json"
            if not Path(base).is_dir():
                where = "no tokenizer.json of it has been downloaded here"
            return Vocabulary(None, f"the tokenizer of {base} cannot be opened: {where}")
        file = found
    try:
        return Vocabulary(tokenizers.Tokenizer.from_file(str(file)))
    except Exception as error:  # the package raises nothing more particular
        return Vocabulary(None, f"the tokenizer {file} cannot be opened: {error}")


def _downloaded(base: str) -> Path | None:
    """Return the tokenizer of a model of the hub, from the cache of downloads."""
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        return None
    if tokenizer_of(base) is None and base.count("/") != 1:
        return None
    found = hub.try_to_load_from_cache(base.partition(":")[0], _FILE)
    return Path(found) if isinstance(found, str) else None


COLORINGS = ("advantage", "ratio")  # what single tokens are coloured by
LEGEND = {
    "advantage": "tokens above 0 bold, below 0 underlined",
    "ratio": "tokens likelier than when sampled bold, less likely underlined",
}
_NOTABLE = (0.01, 0.05, 0.2)  # distances of a ratio from 1 (of its logarithm from 0) by shade


@frozen
class TrainedToken:
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


Replies = dict[int, tuple[TrainedToken, ...]]  # by turn


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
            found[turn] = tuple(TrainedToken(*row) for row in rows)
            at += len(ids)
    return found


def shade(token: TrainedToken, by: str, widest: float) -> int:
    """Return how a token is coloured: from -3 to 3, 0 for not at all. ``widest`` is the largest
    advantage of its reply, without its sign."""
    if by == "ratio":
        distance = token.trainer - token.logprob
        size = sum(abs(distance) >= least for least in _NOTABLE)
        return int(math.copysign(size, distance)) if size else 0
    if not token.advantage or not widest:
        return 0
    return int(math.copysign(max(1, math.ceil(3 * abs(token.advantage) / widest)), token.advantage))


def reply_parts(tokens: Sequence[TrainedToken], by: str, chosen: int | None = None) -> list[Part]:
    """Return a reply as parts of lines, each token in the style of its shade; that of the one that
    is ``chosen`` says so."""
    widest = max((abs(token.advantage) for token in tokens), default=0.0)
    parts: list[Part] = ["  "]
    for place, token in enumerate(tokens):
        tone = shade(token, by, widest) if by in COLORINGS else 0
        style = "chosen" if place == chosen else f"token{tone:+d}"
        parts.append((visible(token.text).replace("\n", "↵\n  "), style))
    return parts


def in_words(tokens: Sequence[TrainedToken]) -> Line:
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


def token_line(token: TrainedToken, place: int, count: int) -> str:
    """Return all that is known of a token in a line."""
    about = f"token {place + 1:,}/{count:,} {token.text!r} (id {token.id})"
    about += f"  advantage {signed(token.advantage)}"
    if math.isnan(token.ratio):
        return f"{about}  logprob {token.logprob:.3f}, left out of the gradient"
    told = f"logprob {token.logprob:.3f} sampled, {token.trainer:.3f} trained"
    return f"{about}  ratio {token.ratio:.3f}  {told}"


def table(tokens: Sequence[TrainedToken]) -> Iterator[str]:
    """Yield a line for each token of a reply, with a heading, for where there are no colours."""
    yield "  token      id  advantage    logprob    trained    ratio  text"
    for place, token in enumerate(tokens, 1):
        ratio = "-" if math.isnan(token.ratio) else f"{token.ratio:.4f}"
        trained = "-" if math.isnan(token.trainer) else f"{token.trainer:.4f}"
        yield (
            f"  {place:>5} {token.id:>7} {token.advantage:>+10.4f} {token.logprob:>10.4f} "
            f"{trained:>10} {ratio:>8}  {token.text!r}"
        )


@define(eq=False)
class TokenReader:
    """Reads them, also while the run goes on."""

    folder: Path
    plan: Plan
    _index: TokenIndex = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._index = TokenIndex(self.folder)

    def replies(self, record: Record) -> Replies:
        """Return the tokens of the turns of an episode; none of those that it was not trained on,
        or whose tokens were not kept."""
        who = (record["env"], record["task"], record["member"], record.get("role") or "")
        key = EpisodeKey(*who, max(0, record.get("reply", 0) - 1))
        found = self._index.episode(record["stage"], record["step"], key)
        return replies_of(found, vocabulary_of(self._base(record))) if found else {}

    def remark(self, record: Record, replies: Replies) -> str:
        """Say why there are no tokens of an episode, or none in words; "" if there is nothing to
        be said."""
        if replies:
            missing = vocabulary_of(self._base(record)).missing
            return f"Ids stand for tokens: {missing}." if missing else ""
        if record["error"] is not None or not record["turns"]:
            return ""
        if not record["advantages"]:
            return "No single tokens of it are here: it was not trained on."
        if not (self.folder / TOKENS_FILE).is_file():
            return f"No single tokens are here: the run has no {TOKENS_FILE}."
        return (
            "No single tokens of it are here: it was left out of training, or they were kept of "
            "the first episodes of its step only (`rlc run --tokens all`)."
        )

    def _base(self, record: Record) -> str:
        stages = {stage.name: stage for stage in self.plan.stages}
        return stages[record["stage"]].model.base
