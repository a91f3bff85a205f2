"""What the ids of tokens stand for, by the tokenizer of a model where it is on this machine."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from attrs import frozen

from rlc.catalog.facts.models import tokenizer_of
from rlc.pricing.texts import tokenizer_at_hand

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
