"""GDPO's advantages of random batches, by the libraries' own functions: writes gdpo_vectors.json.

    PYTHONPATH=.:tests/support:tests/algo/data python tests/algo/data/make_gdpo_vectors.py FOLDER

FOLDER has ``verl`` and ``trl``, unpacked wheels (``pip download --no-deps verl==0.9.1
trl==1.16.0``). A batch has groups of one size, episodes of one turn, and two to four rewards by
name, each with a weight; some groups are equal in some of them.
"""

from __future__ import annotations

import ast
import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from library_functions import run, taken
from make_recorded_advantages import Config, verl_core

HERE = Path(__file__).parent
BATCHES = 24
NAMES = ("right", "form", "brief", "style")


def draw_batch(draw: random.Random) -> dict[str, Any]:
    """Rewards in eighths, of which float32 loses nothing."""
    groups, size = draw.randint(2, 5), draw.choice([2, 3, 4, 6])
    weights = {name: draw.randint(1, 12) / 4 for name in NAMES[: draw.randint(2, 4)]}
    rewards: list[dict[str, float]] = []
    for _ in range(groups):
        equal = {name: draw.randint(-8, 16) / 8 for name in weights if draw.random() < 0.25}
        rewards += [
            {name: equal.get(name, draw.randint(-8, 16) / 8) for name in weights}
            for _ in range(size)
        ]
    tokens = [draw.randint(1, 9) for _ in rewards]
    return {"size": size, "weights": weights, "tokens": tokens, "rewards": rewards}


def verl(core: Any, batch: dict[str, Any], norm: bool) -> list[float]:
    tokens, rewards = batch["tokens"], batch["rewards"]
    mask = (torch.arange(max(tokens))[None] < torch.tensor(tokens)[:, None]).float()
    config = Config(
        gdpo_reward_keys=list(batch["weights"]),
        gdpo_reward_weights=list(batch["weights"].values()),
    )
    found, _ = core.compute_gdpo_outcome_advantage(
        token_level_rewards=torch.zeros_like(mask),
        response_mask=mask,
        index=np.array([at // batch["size"] for at in range(len(rewards))]),
        norm_adv_by_std_in_grpo=norm,
        config=config,
        non_tensor_batch={name: [row[name] for row in rewards] for name in batch["weights"]},
        batch={
            "prompts": torch.zeros(len(rewards), 0),
            "attention_mask": mask.long(),
        },
    )
    return [float(row[0]) for row in found]


def trl(folder: Path, batch: dict[str, Any]) -> list[float]:
    trainer = folder / "trl/trainer/grpo_trainer.py"
    rows = [list(row.values()) for row in batch["rewards"]]
    space: dict[str, Any] = {
        "self": SimpleNamespace(
            multi_objective_aggregation="normalize_then_sum",
            reward_weights=torch.tensor(list(batch["weights"].values()), dtype=torch.float64),
            reward_funcs=list(batch["weights"]),
        ),
        "rewards_per_func": torch.tensor(rows, dtype=torch.float64),
        "unscorable_mask": torch.zeros(len(rows), dtype=torch.bool),
        "num_generations": batch["size"],
        "device": "cpu",
        "torch": torch,
        "nanstd": taken(folder / "trl/trainer/utils.py", "nanstd").nanstd,
    }
    body = next(
        node
        for node in ast.walk(ast.parse(trainer.read_text()))
        if isinstance(node, ast.If) and "'sum_then_normalize'" in ast.unparse(node.test)
    )
    run([body], trainer, space)
    return [float(value) for value in space["advantages"]]


def main(folder: str) -> None:
    draw, core = random.Random(0), verl_core(str(Path(folder, "verl")))
    batches = [draw_batch(draw) for _ in range(BATCHES)]
    for batch in batches:
        found = {
            "verl.gdpo()": verl(core, batch, True),
            "verl.gdpo(norm = false)": verl(core, batch, False),
            "trl.gdpo()": trl(Path(folder, "trl"), batch),
        }
        batch["advantages"] = {
            text: [round(value, 7) for value in values] for text, values in found.items()
        }
    lines = ",\n".join(json.dumps(batch, separators=(",", ":")) for batch in batches)
    (HERE / "gdpo_vectors.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
