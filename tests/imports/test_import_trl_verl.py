"""Jobs of TRL and verl, from their own repositories, become recipes with the same numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden import check_golden
from stage_parts import flat

from rlc.algo.expressions.evaluate import loss_and_grad
from rlc.compile.recipe import compile_source
from rlc.imports import trl, verl
from rlc.imports.convert import convert, job_of_command, job_of_text
from rlc.imports.settings import InputError, Option
from rlc.lang.formatter import format_text
from rlc.lang.source import Source
from rlc.lang.syntax import parse
from rlc.plan.stages import Training

HERE = Path(__file__).parent
FILES = {path.name.partition(".")[0]: path for path in (HERE / "foreign").glob("*_*.*")}
RECIPES = {name: convert(job_of_text(path.read_text("utf-8"))) for name, path in FILES.items()}
TRL = "trl grpo --model_name_or_path Qwen/Qwen3-8B --dataset_name o/n --max_steps 100"
VERL = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-8B"
LOSS = "actor_rollout_ref.actor.policy_loss"


def imported(command: str, source: str | None = None) -> str:
    return convert(job_of_command(command.split()), source)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_the_recipe_of_a_file(name: str) -> None:
    check_golden(HERE / "cases" / f"{name}.rl", RECIPES[name])
    source = Source(f"{name}.rl", RECIPES[name])
    assert format_text(source, parse(source)[0]) == RECIPES[name]
    lines = [line for line in RECIPES[name].splitlines() if not line.startswith("#")]
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_it_compiles_once_its_comments_are_followed(name: str, tmp_path: Path) -> None:
    """With a model that is served, data in its place, and a reward function for each name."""
    text = re.sub(r'base( +)= ".*"', r'base\1= "Qwen/Qwen3-8B"', RECIPES[name])
    text = re.sub(r'"[^"\n]*\.parquet"', '"rows.jsonl"', text)
    names = set(re.findall(r"rewards\.py:(\w+)", text))
    rewards = [f"def {one}(reply, row):\n    return float(len(reply) % 2)\n" for one in names]
    (tmp_path / "rewards.py").write_text("\n".join(rewards))
    chat = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    row = {"prompt": chat[:1], "messages": chat, "question": "2 + 2?", "answer": "4"}
    row["extra_info"] = "2 + 2?"
    rows = "".join(json.dumps({**row, "n": n}) + "\n" for n in range(2_000))
    (tmp_path / "rows.jsonl").write_text(rows)
    found = compile_source(Source(str(tmp_path / "job.rl"), text)).diagnostics
    assert [one for one in found if one.severity == "error"] == []


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (TRL, "groups(1, group_size = 8)"),
        (f"{TRL} --num_processes 8 --num_generations 4", "groups(16, group_size = 4)"),
        (f"{TRL} --gradient_accumulation_steps 4 --num_processes 4", "groups(16, group_size = 8)"),
        (f"{TRL} --steps_per_generation=4", "groups(4, group_size = 8, updates = 4)"),
        (f"{TRL} --generation_batch_size 64", "groups(8, group_size = 8, updates = 8)"),
        (f"{TRL} --steps_per_generation 4", "steps     = 25  # 100 updates"),
        (f"{TRL} --warmup_ratio 0.1", "schedule = linear(warmup = 10)"),
        (f"{TRL} --loss_type dr_grpo", "seq_mean_token_sum_norm(length = 512)"),
        (f"{TRL} --loss_type grpo", "aggregate = seq_mean_token_mean()"),
        (f"{TRL} --loss_type cispo --epsilon_high 5", "cispo(clip_low = 0.0, clip_high = 5.0)"),
        (f"{TRL} --loss_type sapo", "there `sapo`, which lib/losses.rl may have"),
        (f"{TRL} --loss_type sapo", "aggregate = seq_mean_token_mean()"),
        (f"{TRL} --delta 2", "docs/losses.md shows how to write another: delta=2.0"),
        (f"{TRL} --num_iterations 2", "no rollout is used twice here: num_iterations=2"),
        (f"{TRL} --epsilon_high 0.28", "ppo(clip_low = 0.8, clip_high = 1.28)"),
        (f"{TRL} --scale_rewards False", "trl.grpo(scale_rewards = none)"),
        (
            f"{TRL} --reward_funcs mine.rewards.close --reward_weights 0.5",
            "close = 0.5 * grade_with",
        ),
        (f"{TRL} --reward_funcs mine.rewards.close", "from mine.rewards import close as theirs"),
        (f"{TRL} --use_vllm --bf16 --seed 7", "no place here: seed=7"),
        (f"{TRL} --entropy_coef 0.01", "and has no words here: entropy_coef=0.01"),
        (f"{VERL} {LOSS}.loss_mode=gspo", "aggregate = seq_mean_token_mean() # as verl's `gspo`"),
        (f"{VERL} algorithm.rollout_correction.loss_type=reinforce", "has no words here:"),
        (f"{VERL} algorithm.lam=0.95", "of `gae` alone: algorithm.lam=0.95"),
        (f"{VERL} data.train_batch_size=64", "groups(64, group_size = 1)"),
        (f"{VERL} algorithm.adv_estimator=rloo", "advantage = verl.rloo()"),
        (f"{VERL} algorithm.norm_adv_by_std_in_grpo=False", "verl.grpo(norm = false)"),
        (f"{VERL} algorithm.adv_estimator=gae", "there `gae`"),
        (f"{VERL} data.train_batch_size=512", "verl also bounds ratios by 3 where"),
        (
            f"{VERL} algorithm.use_kl_in_reward=True algorithm.adv_estimator=reinforce_plus_plus",
            "reference(policy.base, coef = 0.001, discount = 1.0)",
        ),
        (f"{VERL} actor_rollout_ref.actor.optim.lr_warmup_steps=5", "constant(warmup = 5)"),
        (
            f"{VERL} +data.gen_batch_size=96 algorithm.filter_groups.enable=True "
            "algorithm.filter_groups.max_num_gen_batches=3 data.train_batch_size=32",
            "resample = 64",
        ),
        (f"{VERL} reward.custom_reward_function.path=a/my.py", "from my import compute_score"),
    ],
)
def test_numbers(command: str, expected: str) -> None:
    assert expected in " ".join(imported(command).split()) or expected in imported(command)


VALUES = {"int": "2", "float": "0.25", "floats": "[0.5,0.25]", "mapping": '{"a": 1}'}
OLDER = [("model.partial_pretrain", "m")]


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (
            "trl grpo --model_name_or_path=m --dataset_name=o/n --num_generations=1",
            trl.TABLES["trl-grpo"],
        ),
        ("trl dpo --model_name_or_path=m --dataset_name=o/n", trl.TABLES["trl-dpo"]),
        ("trl sft --model_name_or_path=m --dataset_name=o/n", trl.TABLES["trl-sft"]),
        ("-m verl.trainer.main_ppo model.path=m", verl.PPO),
        (
            "-m verl.trainer.sft_trainer model.path=m data.val_files=v",
            verl.read_settings([], supervised=True).options,
        ),
        (
            "-m verl.trainer.fsdp_sft_trainer model.partial_pretrain=m data.val_files=v",
            verl.read_settings(OLDER, supervised=True).options,
        ),
    ],
)
def test_every_option_changes_or_says_something(command: str, options: dict[str, Option]) -> None:
    words, before = command.split(), imported(command)
    for option in options.values():
        name = f"{'--' if 'trl ' in command else ''}{option.name}="
        value = str(not option.default) if option.type == "bool" else VALUES.get(option.type, "x")
        beside = [word for word in words if not word.startswith(name)]
        assert convert(job_of_command([*beside, name + value])) != before, name


def token_losses(recipe: str, logp: Any, logq: Any, adv: Any, ref: Any) -> Any:
    """The loss of each of several sequences of one token, by the recipe's own loss."""
    compiled = compile_source(Source("imported.rl", recipe))
    assert compiled.plan is not None, list(compiled.diagnostics)
    stage = next(stage for stage in compiled.plan.stages if isinstance(stage, Training))
    program = flat(stage).loss.program
    columns = zip(logp, logq, adv, ref, strict=True)
    names = ("logp", "logq", "adv", "ref")
    values = [dict(zip(names, ([x] for x in column), strict=True)) for column in columns]
    return [
        loss_and_grad(program, {k: v for k, v in value.items() if k in program.inputs})[0]
        for value in values
    ]


def test_own_losses_are_those_of_the_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On ratios that both bounds cut, with the k3 of each: verl's stays within limits."""
    monkeypatch.chdir(tmp_path)
    Path("train.jsonl").write_text('{"prompt": "2 + 2?"}\n' * 64)
    Path("rewards.py").write_text(
        "def score(reply, row):\n    return float(len(reply) % 2)\nreward = score\n"
    )
    logp, logq = np.array([-0.1, -3.0, -0.2, -1.0]), np.array([-2.0, -0.5, -2.5, -1.1])
    adv, ref = np.array([1.0, 1.0, -2.0, -1.0]), np.array([-0.5, -1.0, -24.0, -1.2])
    ratio, clipped = np.exp(logp - logq), np.clip(np.exp(logp - logq), 0.8, 1.2)
    gain = np.minimum(ratio * adv, clipped * adv)
    k3 = np.exp(ref - logp) - (ref - logp) - 1
    job = f"{VERL} data.train_files=train.jsonl data.train_batch_size=32"
    job += " trainer.val_before_train=False actor_rollout_ref.rollout.n=4"
    job += " trainer.total_training_steps=9"
    split = (
        "actor_rollout_ref.actor.ppo_mini_batch_size=16 actor_rollout_ref.actor.use_kl_loss=True"
    )
    apart = np.clip(ref - logp, -20, 20)
    expected = 0.001 * np.clip(np.exp(apart) - apart - 1, -10, 10) - gain
    found = token_losses(imported(f"{job} {split}"), logp, logq, adv, ref)
    assert np.allclose(found, expected)
    job = TRL.replace("o/n", "train.jsonl") + " --beta 0.04 --steps_per_generation 4"
    found = token_losses(imported(job), logp, logq, adv, ref)
    assert np.allclose(found, 0.04 * k3 - gain)


SCRIPT = """\
\"\"\"The users' own words.

python this.py --model_name_or_path=a/b --weight_decay 0.5
\"\"\"
from trl import GRPOConfig, GRPOTrainer
from datasets import load_dataset
raise SystemExit("never run")
BASE = "Qwen/Qwen3-8B"
def close(completions, **kwargs):
    return [1.0 for _ in completions]
args = GRPOConfig(learning_rate=1e-5, max_steps=10, num_generations=4, output_dir=f"{BASE}-x")
args.temperature = 0.7
data = load_dataset("owner/name", "main", split="train")
more = load_dataset("csv", data_files="more.csv")
GRPOTrainer(BASE, reward_funcs=[close], tools=[close], args=args, train_dataset=data).train()
"""


def test_a_script_is_read_and_not_run() -> None:
    recipe = convert(job_of_text(SCRIPT))
    for part in (
        'base      = "Qwen/Qwen3-8B"',
        '"hub:owner/name/main"',
        "groups(2, group_size = 4)",
        "close: rewards.py is to be written",
        "from script import close as theirs  # or copy its `def`",
        "in Python code only, which is not run: output_dir = f'{BASE}-x'",
        "weight_decay = 0.5",
        "temperature = 0.7",
        "not run: dataset_name = 'more.csv', beside the first one",
        "not run: tools = [close]",
    ):
        assert part in recipe


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SCRIPT.replace("num_generations=4", "num_generations=("), "not Python on line 11"),
        (SCRIPT + "from trl import DPOTrainer\nDPOTrainer()\n", "this has dpo, grpo"),
        ("trl rloo --model_name_or_path x\n", "`trl rloo` has no counterpart here"),
        ("trl grpo --num_generations 8\n", "`model_name_or_path` is missing"),
        ("model_name_or_path: x\n", "which trainer of TRL"),
        (f"{TRL} --num_generations 3\n", "8 completions a step are no groups"),
        (f"{TRL} --beta much\n", "`beta` takes a number, not much"),
        (f"{VERL} data.train_batch_size=$SIZE\n", "takes a whole number, not $SIZE"),
        (
            "python tinker_train.py model_name=$MODEL\n",
            "value of $MODEL does not stand in the script",
        ),
        ("actor_rollout_ref:\n  rollout: [\n", "this is not YAML on line 3"),
    ],
)
def test_what_cannot_become_a_recipe(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        convert(job_of_text(text))
    assert message in caught.value.message
