"""A tokenizer with the special tokens of every family of models, and merges that can go wrong."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

_MARK = re.compile(r"<[|｜][^<>|｜\s]+[|｜]>|</?(?:think|tool_call|tool_response)>|\[gMASK\]|<sop>")
# Ends of texts, and what templates write after them: merged, they hide where a reply ends.
_SEAMS = "A\n\nUser: \n\nAssistant: .\n B\n\n >\n</ ok.\n\n\n\nTool: 4\n\n "


@cache
def family_tokenizer() -> Any:
    """Return a tokenizer that is trained on the sources of tinker-cookbook's renderers, with every
    mark in them as a token. It splits no words, so that anything is merged with anything."""
    import tinker_cookbook.renderers
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    folder = Path(tinker_cookbook.renderers.__file__).parent
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = bytes_of, decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([text[:20_000], *[_SEAMS * 200]], trainer)
    marks = sorted(set(_MARK.findall(text)))
    made.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in marks])
    words = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", bos_token="<|begin_of_text|>"
    )
    words.name_or_path = "made/family"
    return words
