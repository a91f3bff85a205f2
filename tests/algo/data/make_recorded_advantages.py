"""Advantages of the recorded rollouts, computed by others: writes recorded_advantages.json.

    python tests/algo/data/make_recorded_advantages.py PATH_OF_VERL

``recorded_rollouts.json`` is a step of a real run: a game of several turns in groups of four, and
two solvers and a judge in groups of three, one group of equals among them. References:

- tinker-cookbook, as installed: ``compute_advantages``
- verl 0.9.1 (``pip download --no-deps verl==0.9.1``, unpacked): ``core_algos``, of which only the
  estimators are loaded, behind stand-ins for the packages that they do not use
- for the rest their formulas, written down below in plain Python

Groups are those of one task in one role.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
Values = list[float | None]

ROLLOUTS: list[dict[str, Any]] = json.loads((HERE / "recorded_rollouts.json").read_text())
REWARDS = [sum(rollout["rewards"]) for rollout in ROLLOUTS]
GROUPS: dict[tuple[str, int, str], list[int]] = {}
for _at, _rollout in enumerate(ROLLOUTS):
    _key = (_rollout["env"], _rollout["task"], _rollout["role"])
    GROUPS.setdefault(_key, []).append(_at)


def by_group(formula: Callable[[list[float]], Values]) -> Values:
    """A formula on the rewards of each group."""
    values: Values = [None] * len(ROLLOUTS)
    for members in GROUPS.values():
        for at, value in zip(members, formula([REWARDS[at] for at in members]), strict=True):
            values[at] = value
    return values


def trl_grpo(rewards: list[float]) -> Values:
    """(r − μ) / (s + 1e-4), s with n − 1"""
    mean, std = statistics.fmean(rewards), statistics.stdev(rewards)
    return [(r - mean) / (std + 1e-4) for r in rewards]


def rllm_legacy_grpo(rewards: list[float]) -> Values:
    """(r − μ) / s, s with n, and 1 instead of 0"""
    mean, std = statistics.fmean(rewards), statistics.pstdev(rewards)
    return [(r - mean) / (std or 1.0) for r in rewards]


def openreward_centered_normalized(rewards: list[float]) -> Values:
    """(r − μ) / s, s with n − 1; a group of equals is left out"""
    mean, std = statistics.fmean(rewards), statistics.stdev(rewards)
    return [None if std < 1e-8 else (r - mean) / std for r in rewards]


def leave_one_out(rewards: list[float]) -> Values:
    """r_i − the mean of the others"""
    others = [rewards[:i] + rewards[i + 1 :] for i in range(len(rewards))]
    return [r - statistics.fmean(rest) for r, rest in zip(rewards, others, strict=True)]


def rebn(gamma: float) -> list[list[float]]:
    """Of each turn: G_t = r_t + γ G_{t+1}; (G − μ) / (s + 1e-9) over all turns, s with n − 1"""
    returns_RT = []
    for rollout in ROLLOUTS:
        to_go, returns = 0.0, list[float]()
        for reward in reversed(rollout["rewards"]):
            to_go = reward + gamma * to_go
            returns.insert(0, to_go)
        returns_RT.append(returns)
    every = [value for returns in returns_RT for value in returns]
    mean, std = statistics.fmean(every), statistics.stdev(every)
    return [[(value - mean) / (std + 1e-9) for value in returns] for returns in returns_RT]


def cookbook_center() -> Values:
    from tinker_cookbook.rl.data_processing import compute_advantages
    from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup

    groups = [
        TrajectoryGroup(
            [Trajectory(transitions=[], final_ob=None) for _ in members],
            [REWARDS[at] for at in members],
            [{} for _ in members],
        )
        for members in GROUPS.values()
    ]
    values: Values = [None] * len(ROLLOUTS)
    for members, found in zip(GROUPS.values(), compute_advantages(groups), strict=True):
        for at, value in zip(members, found.tolist(), strict=True):
            values[at] = value
    return values


def verl_core(path: str) -> Any:
    """verl's module of estimators without what it imports for other things."""
    sys.path.insert(0, path)
    for name in ("verl", "verl.utils", "verl.trainer", "verl.trainer.ppo"):
        package: Any = ModuleType(name)
        package.__path__ = [str(Path(path, *name.split(".")))]
        sys.modules[name] = package
    for name, attributes in {
        "omegaconf": ("DictConfig",),
        "tensordict": ("TensorDict",),
        "verl.trainer.config": ("AlgoConfig",),
        "verl.workers.config": ("ActorConfig",),
        "verl.utils.device": ("get_torch_device",),
    }.items():
        module: Any = ModuleType(name)
        for attribute in attributes:
            setattr(module, attribute, type(attribute, (), {}))
        module.get_device_name = lambda: "cpu"
        sys.modules[name] = module
    utils: Any = sys.modules["verl.utils"]
    groupwise = importlib.import_module("verl.utils.groupwise")
    utils.as_torch_index, utils.group_mean_std = groupwise.as_torch_index, groupwise.group_mean_std
    return importlib.import_module("verl.trainer.ppo.core_algos")


def verl(core: Any, name: str, **args: Any) -> Values:
    """An estimator on one row of tokens for each rollout, its reward on the last of them. The
    values of its tokens are all the same, as long as nothing is discounted."""
    import numpy as np
    import torch

    lengths = [sum(rollout["tokens"]) for rollout in ROLLOUTS]
    mask = torch.zeros(len(ROLLOUTS), max(lengths), dtype=torch.float64)
    rewards = torch.zeros_like(mask)
    for at, length in enumerate(lengths):
        mask[at, :length] = 1
        rewards[at, length - 1] = REWARDS[at]
    labels = {at: group for group, members in enumerate(GROUPS.values()) for at in members}
    index = np.array([labels[at] for at in range(len(ROLLOUTS))])
    estimate = getattr(core, f"compute_{name}_outcome_advantage")
    if name != "reinforce_plus_plus":
        args["index"] = index
    advantages, _ = estimate(token_level_rewards=rewards, response_mask=mask, **args)
    return [float(advantages[at, 0]) for at in range(len(ROLLOUTS))]


class Config(dict[str, Any]):
    """verl reads its settings both ways."""

    __getattr__ = dict.__getitem__


def main(path: str) -> None:
    core, plain = verl_core(path), "the formula, in plain Python"
    cookbook = importlib.import_module("importlib.metadata").version("tinker_cookbook")
    scaled, unscaled = Config(norm_adv_by_std_in_grpo=True), Config(norm_adv_by_std_in_grpo=False)
    whole = Config(gamma=1.0)
    made: list[tuple[str, str, Any]] = [
        ("cookbook.center(scope = role)", f"tinker-cookbook {cookbook}", cookbook_center()),
        ("verl.grpo(scope = role)", "verl 0.9.1", verl(core, "grpo")),
        (
            "verl.grpo(scope = role, norm = false)",
            "verl 0.9.1",
            verl(core, "grpo", norm_adv_by_std_in_grpo=False),
        ),
        ("verl.rloo(scope = role)", "verl 0.9.1", verl(core, "rloo")),
        ("verl.rloo_vectorized(scope = role)", "verl 0.9.1", verl(core, "rloo_vectorized")),
        ("verl.opo(scope = role)", "verl 0.9.1", verl(core, "opo")),
        (
            "verl.reinforce_pp_baseline(scope = role)",
            "verl 0.9.1",
            verl(core, "reinforce_plus_plus_baseline", config=whole),
        ),
        ("verl.reinforce_pp()", "verl 0.9.1", verl(core, "reinforce_plus_plus", config=whole)),
        (
            "verl.grpo_passk(scope = role)",
            "verl 0.9.1",
            verl(core, "grpo_passk", config=scaled),
        ),
        (
            "verl.grpo_passk(scope = role, norm = false)",
            "verl 0.9.1",
            verl(core, "grpo_passk", config=unscaled),
        ),
        ("verl.gpg(scope = role)", "verl 0.9.1", verl(core, "gpg")),
        ("trl.grpo(scope = role)", plain, by_group(trl_grpo)),
        ("rllm.legacy_grpo(scope = role)", plain, by_group(rllm_legacy_grpo)),
        (
            "openreward.centered_normalized(scope = role)",
            plain,
            by_group(openreward_centered_normalized),
        ),
        ("rloo(scope = role)", plain, by_group(leave_one_out)),
        ("rebn(gamma = 0.9)", plain, rebn(0.9)),
    ]
    records = [{"scheme": scheme, "by": by, "values": values} for scheme, by, values in made]
    text = ",\n".join(json.dumps(record) for record in records)
    (HERE / "recorded_advantages.json").write_text(f"[\n{text}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
