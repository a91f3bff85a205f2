"""The examples of the pages as whole recipes: what they leave out is put in."""

from __future__ import annotations

import re

FIELDS = {
    "model": {"base": '"tiny"', "lora_rank": "8"},
    "sft": {
        "model": "policy",
        "data": "demonstrations(guess, n = 256)",
        "optimizer": "adam(1e-3)",
        "steps": "10",
    },
    "preference": {
        "model": "policy",
        "data": 'pairs("pairs.jsonl")',
        "loss": "dpo()",
        "optimizer": "adam(1e-3)",
        "batch": "8",
        "steps": "50",
    },
    "train": {
        "model": "policy",
        "env": "guess",
        "batch": "groups(16, group_size = 8)",
        "sampling": "sample(max_tokens = 16)",
        "advantage": "grpo()",
        "loss": "importance_sampling()",
        "optimizer": "adam(1e-3)",
        "steps": "50",
    },
    "eval": {"model": "policy", "env": "guess", "samples": "8"},
}
MAIN = "train main {\n  …\n}\n"
DECLARED = {
    "policy": 'model policy {\n  base      = "tiny"\n  lora_rank = 8\n}\n',
    "guess": 'env guess = gem("game:GuessTheNumber-v0-easy") |> chat()\n',
}


def complete(text: str) -> str:
    """The whole recipe of which an example shows the interesting part."""
    is_shared = "…" not in text and all(f" {name} " in text for name in DECLARED)
    if "  …\n" not in re.sub(r"^model \w+ \{\n(?:  .*\n)*\}", "", text) and not is_shared:
        text += MAIN
    text = re.sub(r"^(\w+) \w+ \{\n((?:  .*\n)*?)  …\n", _with_fields, text, flags=re.M)
    for name, declaration in DECLARED.items():
        imported = name == "policy" and '"lib/qwen.rl"' in text
        declared = imported or re.search(rf"^\w+ {name}\b", text, re.M)
        if not declared and re.search(rf"\b{name}\b", text):
            text += declaration
    return text


def _with_fields(match: re.Match[str]) -> str:
    """A block with the fields that stand behind its ``…``."""
    kind, shown = match[1], match[2]
    fields = FIELDS.get(kind, FIELDS["train"])
    given = set(re.findall(r"^  (\w+)", shown, re.M)) | ({"steps"} if "epochs" in shown else set())
    hidden = [f"  {name} = {value}\n" for name, value in fields.items() if name not in given]
    return match[0].removesuffix("  …\n") + "".join(hidden)
