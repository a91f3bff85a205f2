"""What people have: the commands and configurations of published guides."""

from __future__ import annotations

from rlc.imports.convert import ForeignJob, convert, job_of_command, job_of_text

SOLVER_JUDGE = "examples.solver_judge_tinker.train_solver_judge_flow_tinker"

COMMANDS = {
    "gem_math": (
        "python -m examples.train_tinker.tinker_cookbook_train env_id=math:Math12K "
        "groups_per_batch=64 group_size=16 learning_rate=2e-5 max_tokens=2048 "
        "model_name=Qwen/Qwen3-8B-Base env_kwargs_json='{\"use_mp\": false}'"
    ),
    "gem_reasoning": (
        "python tinker_cookbook_train.py env_id=rg:simple_equations groups_per_batch=64 "
        "group_size=8 learning_rate=2e-5 max_tokens=2048 model_name=Qwen/Qwen3-8B-Base"
    ),
    "gem_deepscaler": (
        "python tinker_train.py model_name=Qwen/Qwen3-8B-Base env_id=math:DeepScaleR40K "
        "num_env=128 max_tokens=8192"
    ),
    "gem_python_tool": (
        "python tinker_train.py env_id=math:Math12K num_env=128 max_tokens=2048 template=no "
        "model_name=meta-llama/Llama-3.1-8B-Instruct "
        "env_wrappers=python_tool_no_int_reward_last_line_error,concat_chat gamma=1"
    ),
    "sudoku": (
        "python tinker_train.py model_name=Qwen/Qwen3-8B-Base num_env=64 "
        "env_id=game:Sudoku-v0-easy max_tokens=1024 template=qwen3_game "
        "model_name=Qwen/Qwen3-8B-Base env_wrappers=concat"
    ),
    "solver_judge_overrides": f"""\
cd examples/solver_judge_tinker
python -m {SOLVER_JUDGE} \\
    model.name=Qwen/Qwen3-8B \\
    model.lora_rank=16 \\
    training.group_size=8 \\
    data.train_batch_size=32 \\
    trainer.total_epochs=20 \\
    trainer.logger=['console','wandb'] \\
    trainer.project_name='solver-judge-tinker' \\
    trainer.experiment_name='countdown-grpo-qwen3-8b'
""",
    "solver_judge_script": f"""\
set -x

MODEL_PATH=Qwen/Qwen3-4B-Instruct-2507

python3 -m {SOLVER_JUDGE} \\
    model.name=$MODEL_PATH model.lora_rank=32 \\
    training.group_size=4 training.learning_rate=4e-5 \\
    sampling.temperature=0.6 sampling.top_p=1.0 \\
    algorithm.adv_estimator=grpo algorithm.norm_adv_by_std_in_grpo=false \\
    data.max_prompt_length=2048 data.max_response_length=1024 \\
    data.train_batch_size=64 data.val_batch_size=512 \\
    trainer.total_epochs=10 trainer.logger=['console','wandb'] \\
    trainer.project_name='tinker-workflow' trainer.experiment_name='countdown-solver-judge' \\
    trainer.val_before_train=False trainer.test_freq=20 trainer.save_freq=20 \\
    trainer.default_local_dir='/tmp/countdown-solver-judge'
""",
    "solver_judge_unified": (
        f"python -m {SOLVER_JUDGE} rllm/backend=tinker model.name=Qwen/Qwen3-4B-Instruct-2507 "
        "training.group_size=4 validation.group_size=4 data.train_batch_size=32 "
        "data.max_prompt_length=4096 data.max_response_length=1024 "
        "rllm.trainer.total_epochs=1 rllm.trainer.test_freq=10 "
        "rllm.algorithm.lr_schedule=cosine rllm.algorithm.warmup_steps_ratio=0.05 "
        "rllm.async_training.enable=true rllm.async_training.staleness_threshold=1.5"
    ),
}

OPENREWARD_CONFIG = """\
wandb_project_name: "tinker-test"
wandb_run_name: "tinker-rl-test-openreward"
openreward_run_name: "tinker-rl-test-openreward"
log_path: "/tmp/tinker-rl"

model_name: "Qwen/Qwen3-30B-A3B"
lora_rank: 8
# resume_from: "tinker://run-id/weights/checkpoint_000050"  # Optional

loss_fn: "ppo"  # Options: importance_sampling, ppo, cispo, dro
batch_size: 32
learning_rate: 1e-5
save_every: 10  # Save checkpoint every N steps

environments:
  GeneralReasoning/WhoDunIt:
    splits:
      train:
        shuffle: true
        num_samples: null  # null = use all tasks
    num_rollouts: 16
    max_failing_rollouts: 2
    temperature: 1.0
    reward_reduction: "sum"
    nonterminal_reward: 0.0
"""

SECOND_ENVIRONMENT = """\

  MATH/GSM8K:
    splits:
      train:
        shuffle: true
    num_rollouts: 8
    temperature: 0.7
    reward_reduction: "mean"
"""

OPENREWARD_RESUMED = OPENREWARD_CONFIG.replace("# resume_from", "resume_from") + SECOND_ENVIRONMENT

RLLM_YAML = """\
rllm:
  trainer:
    total_epochs: 2
    logger: ['console', 'tensorboard']
    project_name: countdown
  algorithm:
    adv_estimator: rloo
    loss_agg_mode: token-mean
model:
  name: Qwen/Qwen3-8B
  train_unembed: false
training:
  group_size: 8
  learning_rate: 1e-5
  max_length: 8192
validation:
  group_size: ???
data:
  max_prompt_length: 4096
  max_response_length: ${training.max_length}
hydra:
  run:
    dir: outputs
"""


def imported(text: str) -> str:
    """The recipe of a command or a configuration."""
    return convert(job_of_text(text))


def job(*words: str) -> ForeignJob:
    return job_of_command(words)
