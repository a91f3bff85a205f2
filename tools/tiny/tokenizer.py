"""The tiny model's tokenizer: bytes, no merges, and the environments' phrases as whole tokens.

A phrase is an ordinary added token, not a special one: it is recognised in any text, survives
decoding, and cannot break out of a message. Text without phrases costs one token a byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
)
from transformers import PreTrainedTokenizerFast

from tools.tiny.chatml import CHAT_TEMPLATE, END_OF_TEXT, IM_END, SPECIALS

MAX_POSITIONS = 8192


def build_tokenizer(phrases: Iterable[str]) -> PreTrainedTokenizerFast:
    """Ids: the 256 bytes, the specials, then ``phrases`` in the order given."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({byte: i for i, byte in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIALS])
    core.add_tokens([AddedToken(phrase, normalized=False) for phrase in phrases])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=IM_END,
        pad_token=END_OF_TEXT,
        model_max_length=MAX_POSITIONS,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json`` with the chat template inside."""
    tokenizer.save_pretrained(folder, save_jinja_files=False)
