"""Losses over preferences of random batches, by the libraries' own functions: writes
preference_vectors.json.

    python tests/algo/data/make_preference_vectors.py FOLDER

FOLDER has the wheel of TRL, unpacked (``pip download --no-deps trl==1.16.0``). Its functions are
taken out of their files, so that nothing of what they import is needed but torch; tinker-cookbook
is used as installed. The numbers are float64, and so are the gradients in every token's logprob.
"""

from __future__ import annotations

import ast
import json
import math
import sys
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

HERE = Path(__file__).parent
PAIRS, CASES = 3, 3
TRL = "1.16.0"


def method(file: Path, name: str, **scope: Any) -> Any:
    """A function or method of a file, as a function of its own."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name)
    found.decorator_list, found.returns = [], None
    for argument in found.args.args:
        argument.annotation = None
    names = {"torch": torch, "F": nn.functional, "math": math, "nn": nn, **scope}
    exec(compile(ast.Module([found], []), str(file), "exec"), names)
    return names[name]


def accelerator() -> Any:
    def same(value: Any) -> Any:
        return value

    return SimpleNamespace(device="cpu", gather=same, gather_for_metrics=same)


class Batch:
    """Random logprobs of replies, padded to one length; ``prompt`` tokens before each."""

    def __init__(self, seed: int, rows: int, prompt: int = 2) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.lengths = torch.randint(1, 7, (rows,), generator=draw).tolist()
        self.prompt, width = prompt, prompt + max(self.lengths)
        values = -2.5 * torch.rand((rows, width), generator=draw, dtype=torch.float64) - 0.01
        self.logprobs = values.requires_grad_()
        self.reference = (
            values.detach()
            - 0.3
            + 0.6 * torch.rand(values.shape, generator=draw, dtype=torch.float64)
        )
        self.mask = torch.zeros((rows, width), dtype=torch.bool)
        self.present = torch.zeros_like(self.mask)
        for row, length in enumerate(self.lengths):
            self.mask[row, prompt : prompt + length] = True
            self.present[row, : prompt + length] = True

    def sums(self, of: Tensor | None = None) -> Tensor:
        return ((self.logprobs if of is None else of) * self.mask).sum(1)

    def written(self, value: Tensor) -> dict[str, Any]:
        (gradient,) = torch.autograd.grad(value, self.logprobs)
        ends = [self.prompt + length for length in self.lengths]
        cut = [
            [row[:end].tolist() for row, end in zip(values.detach(), ends, strict=True)]
            for values in (self.logprobs, self.reference, gradient)
        ]
        names = ("logprobs", "reference", "gradient")
        return {
            "prompt": self.prompt,
            **dict(zip(names, cut, strict=True)),
            "loss_value": value.item(),
        }


def dpo(folder: Path, batch: Batch, kind: str, beta: float) -> Tensor:
    compute = method(folder / "trl/trainer/dpo_trainer.py", "_compute_loss")
    mask = torch.cat([torch.zeros(len(batch.mask), 1, dtype=torch.long), batch.mask.long()], dim=1)
    zeros = torch.zeros_like(batch.logprobs)
    outputs = SimpleNamespace(
        log_probs=batch.logprobs * batch.mask, entropy=zeros, mean_logits=zeros, is_top1=batch.mask
    )
    chosen, rejected = batch.sums(batch.reference).chunk(2)
    inputs = {
        "input_ids": torch.zeros_like(mask),
        "attention_mask": torch.ones_like(mask),
        "completion_mask": mask,
        "ref_chosen_logps": chosen,
        "ref_rejected_logps": rejected,
    }
    trainer = SimpleNamespace(
        model=SimpleNamespace(training=True),
        accelerator=accelerator(),
        aux_loss_enabled=False,
        ld_alpha=None,
        precompute_ref_logps=True,
        f_divergence_type="reverse_kl",
        loss_types=[kind],
        loss_weights=[1.0],
        beta=beta,
        label_smoothing=0.0,
        use_weighting=False,
        _metrics={"train": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
    )
    value: Tensor = compute(trainer, lambda **_: outputs, inputs, False)
    return value


def kto(folder: Path, batch: Batch, good: list[bool], **config: float) -> Tensor:
    """The rows of a batch are replies, then mismatched ones."""
    compute = method(folder / "trl/trainer/kto_trainer.py", "_compute_loss")
    rows = len(good)
    ids = torch.zeros(rows, batch.mask.shape[1] + 1, dtype=torch.long)
    mask = torch.cat([torch.zeros(rows, 1, dtype=torch.long), batch.mask[:rows].long()], dim=1)
    zeros = torch.zeros_like(batch.logprobs[:rows])
    outputs = SimpleNamespace(
        log_probs=(batch.logprobs * batch.mask)[:rows], entropy=zeros, mean_logits=zeros
    )
    trainer = SimpleNamespace(
        model=SimpleNamespace(training=True),
        accelerator=accelerator(),
        aux_loss_enabled=False,
        precompute_ref_logps=True,
        calculate_KL=True,
        loss_type="kto",
        beta=config["beta"],
        desirable_weight=config["desirable"],
        undesirable_weight=config["undesirable"],
        _compute_kl_logps=lambda *_: batch.sums()[rows:].detach(),
        _metrics={"train": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
    )
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "completion_mask": mask,
        "label": torch.tensor(good),
        "ref_logps": batch.sums(batch.reference)[:rows],
        "ref_KL_logps": batch.sums(batch.reference)[rows:],
    }
    value: Tensor = compute(trainer, lambda **_: outputs, inputs, False)
    return value


def cpo(folder: Path, batch: Batch, kind: str, alpha: float, **config: float) -> Tensor:
    """`cpo_loss`, and beside it `get_batch_loss_metrics`' sum with the likelihood."""
    compute = method(folder / "trl/experimental/cpo/cpo_trainer.py", "cpo_loss")
    trainer = SimpleNamespace(alpha=0.0, loss_type=kind, accelerator=accelerator(), **config)
    scores = batch.sums() / (batch.mask.sum(1) if kind == "simpo" else 1.0)
    losses = compute(trainer, *scores.chunk(2))[0]
    rows = len(batch.mask) // 2
    likelihood = -batch.logprobs[:rows][batch.mask[:rows]].mean()
    value: Tensor = losses.mean() + alpha * likelihood
    return value


def orpo(folder: Path, batch: Batch, beta: float) -> Tensor:
    file = folder / "trl/experimental/orpo/orpo_trainer.py"
    log1mexp = method(file, "log1mexp")
    compute = method(file, "odds_ratio_loss", log1mexp=log1mexp)
    trainer = SimpleNamespace(beta=beta, accelerator=accelerator())
    kept = torch.Tensor.float
    torch.Tensor.float = lambda self: self  # type: ignore[assignment, method-assign, return-value]
    try:  # it casts to 32 bits
        losses = compute(trainer, *(batch.sums() / batch.mask.sum(1)).chunk(2))[0]
    finally:
        torch.Tensor.float = kept  # type: ignore[method-assign]
    rows = len(batch.mask) // 2
    value: Tensor = -batch.logprobs[:rows][batch.present[:rows]].mean() - losses.mean()
    return value


def cookbook(batch: Batch, beta: float) -> Tensor:
    from tinker_cookbook.preference.train_dpo import compute_dpo_loss

    chosen, rejected = batch.sums().chunk(2)
    known_chosen, known_rejected = batch.sums(batch.reference).chunk(2)
    sides = (chosen, rejected, known_chosen, known_rejected)
    value: Tensor = compute_dpo_loss(*(list(side) for side in sides), dpo_beta=beta)[0]
    return value


def main() -> None:
    folder = Path(sys.argv[1])
    found: list[dict[str, Any]] = []

    def add(source: str, loss: str, config: dict[str, float], batch: Batch, value: Tensor) -> None:
        found.append({"source": source, "loss": loss, "config": config, **batch.written(value)})

    trl, book = f"TRL {TRL}", f"tinker-cookbook {version('tinker-cookbook')}"
    for seed in range(CASES):
        batch = Batch(seed, 2 * PAIRS)
        beta = (0.05, 0.1, 0.7)[seed]
        plain = {"beta": beta, "label_smoothing": 0.0}
        add(trl, "dpo", plain, batch, dpo(folder, batch, "sigmoid", beta))
        add(book, "dpo", plain, batch, cookbook(batch, beta))
        add(trl, "ipo", {"beta": beta}, batch, dpo(folder, batch, "ipo", beta))
        margin = {"beta": 20 * beta, "gamma": 0.5 + seed}
        value = cpo(
            *(folder, batch, "simpo", 0.0),
            beta=margin["beta"],
            simpo_gamma=margin["gamma"],
            label_smoothing=0.0,
        )
        add(trl, "simpo", margin, batch, value)
        smooth = {"beta": beta, "alpha": 0.5 * seed, "label_smoothing": 0.1 * seed}
        value = cpo(
            *(folder, batch, "sigmoid", smooth["alpha"]),
            beta=beta,
            label_smoothing=smooth["label_smoothing"],
        )
        add(trl, "cpo", smooth, batch, value)
        add(trl, "orpo", {"beta": beta}, batch, orpo(folder, batch, beta))
        weights = {"beta": beta, "desirable": 1.0 + seed, "undesirable": 1.5}
        good = [bool((row + seed) % 3) for row in range(PAIRS)]
        add(trl, "kto", weights, batch, kto(folder, batch, good, **weights))
        found[-1]["good"] = good
    text = json.dumps(found)
    (HERE / "preference_vectors.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
