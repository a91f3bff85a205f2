"""Advantages of random batches, by the libraries' own functions: writes dialect_vectors.json.

    PYTHONPATH=.:tests/support python tests/algo/data/make_dialect_vectors.py FOLDER [COUNT]

FOLDER has a folder for each library: ``verl``, ``trl``, ``openrlhf``, ``areal`` and ``skyrl`` are
wheels of the package index, unpacked (``pip download --no-deps verl==0.9.1 trl==1.16.0
openrlhf==0.11.2 areal==1.0.4 skyrl==0.3.0``); ``nemo_rl`` and ``rllm`` are checkouts of NeMo-RL
0.7 and rLLM 0.3. Their functions are taken out of their files, so that nothing of what they import
is needed but torch. tinker-cookbook is used as installed.

The first batches are written. With COUNT, rlc's own advantages of so many batches are compared, and
the largest difference is printed for each scheme.
"""

from __future__ import annotations

import ast
import json
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from dialect_batches import Batch, Values, draw_batch
from library_functions import by_turn, members, rows, run, spread, square, taken, totals
from make_recorded_advantages import Config, verl_core

HERE = Path(__file__).parent
WRITTEN = 12
Estimate = Callable[[Batch], Values]


def verl(folder: Path) -> Iterator[tuple[str, Estimate]]:
    core, whole = verl_core(str(folder)), Config(gamma=1.0)

    def by(name: str, needs_peers: bool = False, **args: Any) -> Estimate:
        def estimate(batch: Batch) -> Values:
            if needs_peers and any(len(g) < 2 for g in members(batch)):
                return []
            rewards, mask = rows(batch)
            given = dict(args)
            if name != "reinforce_plus_plus":
                given["index"] = np.array([rollout.group for rollout in batch])
            function = getattr(core, f"compute_{name}_outcome_advantage")
            return by_turn(batch, function(rewards, mask, **given)[0])

        return estimate

    unscaled = Config(norm_adv_by_std_in_grpo=False)
    yield "verl.grpo()", by("grpo")
    yield "verl.grpo(norm = false)", by("grpo", norm_adv_by_std_in_grpo=False)
    yield "verl.rloo()", by("rloo")
    yield "verl.rloo_vectorized()", by("rloo_vectorized")
    yield "verl.opo()", by("opo")
    yield "verl.gpg()", by("gpg")
    yield "verl.reinforce_pp()", by("reinforce_plus_plus", config=whole)
    yield "verl.reinforce_pp_baseline()", by("reinforce_plus_plus_baseline", config=whole)
    scaled = Config(norm_adv_by_std_in_grpo=True)
    yield "verl.grpo_passk()", by("grpo_passk", True, config=scaled)
    yield "verl.grpo_passk(norm = false)", by("grpo_passk", True, config=unscaled)


def skyrl(folder: Path) -> Iterator[tuple[str, Estimate]]:
    sys.modules["loguru"] = ModuleType("loguru")
    sys.modules["loguru"].logger = SimpleNamespace(warning=lambda _: None)  # type: ignore[attr-defined]
    file = folder / "skyrl/backends/skyrl_train/utils/ppo_utils.py"
    names = {
        "skyrl.grpo()": ("compute_grpo_outcome_advantage", {}),
        "skyrl.grpo(norm = false)": (
            "compute_grpo_outcome_advantage",
            {"grpo_norm_by_std": False},
        ),
        "skyrl.rloo()": ("compute_rloo_outcome_advantage", {}),
        "skyrl.maxrl()": ("compute_maxrl_advantage", {}),
    }
    for text, (name, args) in names.items():
        function = getattr(taken(file, name), name)

        def estimate(batch: Batch, function: Any = function, args: Any = args) -> Values:
            rewards, mask = rows(batch)
            index = np.array([rollout.group for rollout in batch])
            return by_turn(batch, function(rewards, mask, index=index, **args)[0])

        def positive(batch: Batch, estimate: Any = estimate) -> Values:
            """A mean that is not positive turns signs around there and gives 0 here."""
            rewards = totals(batch)
            means = [sum(rewards[at] for at in group) for group in members(batch)]
            return estimate(batch) if min(means) > 0.01 else []

        yield text, positive if "maxrl" in text else estimate


def trl(folder: Path) -> Iterator[tuple[str, Estimate]]:
    utils = taken(folder / "trl/trainer/utils.py", "nanstd")
    grpo, rloo = (folder / f"trl/trainer/{name}_trainer.py" for name in ("grpo", "rloo"))

    def padded(batch: Batch) -> tuple[torch.Tensor, int]:
        """Groups of one size, their missing members as rewards that could not be computed."""
        groups, rewards = members(batch), totals(batch)
        size = max(2, *map(len, groups))
        nan = float("nan")
        cells = [[*(rewards[at] for at in g), *[nan] * (size - len(g))] for g in groups]
        return torch.tensor(cells, dtype=torch.float64).flatten(), size

    def unpadded(batch: Batch, advantages: torch.Tensor, size: int) -> Values:
        groups, by_rollout = members(batch), [0.0] * len(batch)
        for row, group in zip(advantages.view(-1, size).tolist(), groups, strict=True):
            for at, value in zip(group, row, strict=False):
                by_rollout[at] = value
        return spread(batch, by_rollout)

    def by_grpo(batch: Batch, scale: str) -> Values:
        rewards, size = padded(batch)
        space: dict[str, Any] = {
            "self": SimpleNamespace(
                multi_objective_aggregation="sum_then_normalize",
                scale_rewards=scale,
                reward_weights=torch.ones(1, dtype=torch.float64),
            ),
            "rewards_per_func": rewards.unsqueeze(1),
            "unscorable_mask": torch.isnan(rewards),
            "num_generations": size,
            "device": "cpu",
            "torch": torch,
            "nanstd": utils.nanstd,
        }
        body = next(
            node
            for node in ast.walk(ast.parse(grpo.read_text()))
            if isinstance(node, ast.If) and "'sum_then_normalize'" in ast.unparse(node.test)
        )
        run([body], grpo, space)
        return unpadded(batch, torch.nan_to_num(space["advantages"], nan=0.0), size)

    def by_rloo(batch: Batch, normalize: bool) -> Values:
        rewards, size = padded(batch)
        space: dict[str, Any] = {
            "self": SimpleNamespace(normalize_advantages=normalize),
            "rewards": rewards,
            "num_generations": size,
            "torch": torch,
            "nanstd": utils.nanstd,
        }
        for node in ast.walk(ast.parse(rloo.read_text())):
            lines = map(ast.unparse, node.body) if isinstance(node, ast.FunctionDef) else ()
            found = dict(enumerate(lines))
            begin = [i for i, line in found.items() if line.startswith("grouped_rewards = ")]
            if begin and isinstance(node, ast.FunctionDef):
                end = [i for i, line in found.items() if "nan_to_num(advantages" in line]
                run(node.body[begin[0] : end[0] + 1], rloo, space)
        return unpadded(batch, space["advantages"], size)

    for scale in ("group", "batch", "none"):
        yield f"trl.grpo(scale_rewards = {scale})", partial(by_grpo, scale=scale)
    yield "trl.rloo()", partial(by_rloo, normalize=False)
    yield "trl.rloo(normalize = true)", partial(by_rloo, normalize=True)


def openrlhf(folder: Path) -> Iterator[tuple[str, Estimate]]:
    package = next(folder.glob("*.data")) / "purelib/openrlhf"
    reward = taken(package / "models/utils.py", "compute_reward", Union=Any, Tuple=Any)
    maker = taken(
        package / "trainer/ppo_utils/experience_maker.py",
        "compute_advantages_and_returns",
        "get_cumulative_returns",
        compute_reward=reward.compute_reward,
        apply_length_penalties=lambda *_: None,
        itertools=sys.modules["itertools"],
    )

    def by(name: str) -> Estimate:
        def estimate(batch: Batch) -> Values:
            if (size := square(batch)) < 2:
                return []
            _, mask = rows(batch)
            episodes = [
                SimpleNamespace(
                    rewards=torch.tensor([total], dtype=torch.float64),
                    index=[at],
                    action_mask=mask[at : at + 1],
                    kl=torch.zeros_like(mask[at : at + 1]),
                    info={},
                )
                for at, total in enumerate(totals(batch))
            ]
            advantage = SimpleNamespace(estimator=name, gamma=1.0, lambd=1.0, no_std_norm=False)
            args = SimpleNamespace(
                algo=SimpleNamespace(advantage=advantage),
                rollout=SimpleNamespace(n_samples_per_prompt=size),
                reward=SimpleNamespace(clip_range=None),
            )
            me = SimpleNamespace(
                strategy=SimpleNamespace(args=args),
                advantage_estimator=name,
                kl_ctl=SimpleNamespace(value=0.0),
                get_cumulative_returns=lambda *a: maker.get_cumulative_returns(None, *a),
            )
            maker.compute_advantages_and_returns(me, episodes)
            return by_turn(batch, torch.cat([episode.advantages for episode in episodes]))

        return estimate

    yield "openrlhf.reinforce_pp()", by("reinforce")
    yield "openrlhf.reinforce_pp_baseline()", by("reinforce_baseline")
    yield "openrlhf.grpo()", by("group_norm")
    yield "openrlhf.flash_reinforce()", by("flash_reinforce")


def areal(folder: Path) -> Iterator[tuple[str, Estimate]]:
    dist = SimpleNamespace(is_initialized=lambda: False)
    normalization: Any = taken(folder / "areal/utils/data.py", "Normalization", dist=dist)
    for mean, std, out, unbiased in (
        ("batch", "batch", False, True),
        ("group", "group", False, True),
        ("group", "batch", False, False),
        ("batch", "group", False, True),
        ("group", "group", True, True),
        ("batch", "batch", True, False),
        ("group", "none", False, True),
        ("group", "none", True, True),
        ("none", "batch", False, True),
    ):

        def estimate(
            batch: Batch, levels: Any = (mean, std), out: bool = out, unbiased: bool = unbiased
        ) -> Values:
            if not (size := square(batch)):
                return []
            config = SimpleNamespace(
                mean_level=levels[0],
                mean_leave1out=out,
                std_level=levels[1],
                std_unbiased=unbiased,
                group_size=size,
                eps=1e-5,
            )
            values = torch.tensor(totals(batch), dtype=torch.float64)
            return spread(batch, normalization.Normalization(config)(values))

        text = f"areal.normalize(mean_level = {mean}, std_level = {std}"
        text += ", leave_one_out = true" if out else ""
        text += "" if unbiased else ", unbiased = false"
        yield f"{text})", estimate


def nemo(folder: Path) -> Iterator[tuple[str, Estimate]]:
    files, name = folder / "nemo_rl/algorithms", "calculate_baseline_and_std_per_prompt"
    baseline = getattr(taken(files / "utils.py", name), name)
    kinds = ("GRPOAdvantageEstimator", "ReinforcePlusPlusAdvantageEstimator")
    estimators = taken(files / "advantage_estimator.py", *kinds, **{name: baseline})
    loss = SimpleNamespace(
        use_kl_in_reward=False, reference_policy_kl_penalty=0.0, reference_policy_kl_type="k3"
    )

    def by(kind: str, **settings: bool) -> Estimate:
        def estimate(batch: Batch) -> Values:
            _, mask = rows(batch)
            prompts = torch.tensor([[rollout.group] for rollout in batch])
            rewards = torch.tensor(totals(batch), dtype=torch.float64)
            made = getattr(estimators, kind)(Config(settings), loss)
            torch.set_default_dtype(torch.float64)  # its variance loses digits in float32
            try:
                return by_turn(batch, made.compute_advantage(prompts, rewards, mask))
            finally:
                torch.set_default_dtype(torch.float32)

        return estimate

    for others in (True, False):
        for norm in (True, False):
            text = f"leave_one_out = {str(others).lower()}, normalize = {str(norm).lower()}"
            yield (
                f"nemo.grpo({text})",
                by(kinds[0], use_leave_one_out_baseline=others, normalize_rewards=norm),
            )
    yield "nemo.reinforce_pp()", by(kinds[1], minus_baseline=True)
    yield "nemo.reinforce_pp(minus_baseline = false)", by(kinds[1], minus_baseline=False)


def rllm(folder: Path) -> Iterator[tuple[str, Estimate]]:
    files = folder / "rllm/trainer/algorithms"
    parts = ("calculate_grpo_advantages_per_group", "calculate_rloo_advantages_per_group")
    names = {
        "rllm.grpo()": "calculate_grpo_advantages",
        "rllm.grpo(norm = false)": "calculate_grpo_advantages",
        "rllm.rloo()": "calculate_rloo_advantages",
        "rllm.reinforce_pp_baseline()": "calculate_reinforce_plus_plus_baseline_advantages",
        "rllm.prpo()": "calculate_prpo_advantages",
    }
    inner = vars(taken(files / "rl_algo.py", *parts))
    functions = taken(files / "advantage.py", *names.values(), **inner)
    for text, name in names.items():

        def estimate(batch: Batch, name: str = name, norm: bool = "false" not in text) -> Values:
            """Each role for itself, its groups those of one task."""
            values, rewards = [0.0] * len(batch), totals(batch)
            for role in {rollout.role for rollout in batch}:
                groups = [[at for at in g if batch[at].role == role] for g in members(batch)]
                groups = [group for group in groups if group]
                config = SimpleNamespace(norm_adv_by_std_in_grpo=norm)
                given = [np.array([rewards[at] for at in group]) for group in groups]
                found, _ = getattr(functions, name)(given, config)
                for at, value in zip(chain(*groups), chain(*found), strict=True):
                    values[at] = value
            return spread(batch, values)

        yield text, estimate


def cookbook(_: Path) -> Iterator[tuple[str, Estimate]]:
    from tinker_cookbook.rl.data_processing import compute_advantages
    from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup

    def estimate(batch: Batch) -> Values:
        groups, rewards, values = members(batch), totals(batch), [0.0] * len(batch)
        given = [
            TrajectoryGroup(
                [Trajectory(transitions=[], final_ob=None) for _ in group],
                [rewards[at] for at in group],
                [{} for _ in group],
            )
            for group in groups
        ]
        for group, found in zip(groups, compute_advantages(given), strict=True):
            for at, value in zip(group, found.tolist(), strict=True):
                values[at] = value
        return spread(batch, values)

    yield "cookbook.center()", estimate


LIBRARIES: dict[str, tuple[str, Callable[[Path], Iterator[tuple[str, Estimate]]]]] = {
    "verl": ("verl 0.9.1", verl),
    "trl": ("TRL 1.16.0", trl),
    "openrlhf": ("OpenRLHF 0.11.2", openrlhf),
    "areal": ("AReaL 1.0.4", areal),
    "skyrl": ("SkyRL 0.3.0", skyrl),
    "nemo_rl": ("NeMo-RL 0.7.0", nemo),
    "rllm": ("rLLM 0.3.0", rllm),
    "cookbook": (f"tinker-cookbook {version('tinker_cookbook')}", cookbook),
}


def main(folder: str, count: int = 0) -> None:
    from dialect_batches import difference, scheme_of

    draw = random.Random(0)
    batches = [draw_batch(draw, square=number % 2 == 1) for number in range(max(count, WRITTEN))]
    records = []
    for name, (by, library) in LIBRARIES.items():
        for text, estimate in library(Path(folder, name)):
            found = [estimate(batch) for batch in batches]
            if count:
                pairs = [(b, v) for b, v in zip(batches, found, strict=True) if v]
                worst = max(difference(scheme_of(text), b, v) for b, v in pairs)
                print(f"{worst:9.1e}  {len(pairs):4} batches  {text}  ({by})")
            short = [[[round(v, 7) for v in turns] for turns in values] for values in found]
            records.append({"scheme": text, "by": by, "values": short[:WRITTEN]})
    parts: dict[str, list[Any]] = {
        "batches": [[rollout.record() for rollout in batch] for batch in batches[:WRITTEN]],
        "advantages": records,
    }
    lines = [
        f'"{name}": [\n' + ",\n".join(json.dumps(item, separators=(",", ":")) for item in items)
        for name, items in parts.items()
    ]
    text = "{\n" + "\n],\n".join(lines) + "\n]\n}\n"
    (HERE / "dialect_vectors.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
