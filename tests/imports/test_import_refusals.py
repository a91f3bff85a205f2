"""Input that cannot become a recipe is one clear sentence, with what to do."""

from __future__ import annotations

import pytest
from import_cases import OPENREWARD_CONFIG, SOLVER_JUDGE

from rlc.imports.convert import convert, job_of_command, job_of_text, with_overrides
from rlc.imports.settings import InputError

# Ten lists of ten times the list before.
BOMB = "a0: &a0 [x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)


def refusal(words: str, source: str | None = None, env: str | None = None) -> tuple[str, str]:
    """What is said of a command, and the advice."""
    with pytest.raises(InputError) as caught:
        convert(job_of_command(words.split()), source, env)
    return caught.value.message, caught.value.hint or ""


@pytest.mark.parametrize(
    ("command", "message", "advice"),
    [
        ("tinker_train.py gama=1", "no option `gama`", "did you mean `gamma`?"),
        ("tinker_train.py lora_rank=x", "`lora_rank` takes a whole number, not x", ""),
        ("tinker_train.py num_env=4.5", "takes a whole number, not 4.5", ""),
        ("tinker_train.py gamma=nan", "`gamma` takes a number, not nan", ""),
        ("tinker_train.py use_rebn=maybe", "takes true or false, not maybe", ""),
        (
            "tinker_train.py env_wrappers=conat",
            "GEM has no wrapper `conat`",
            "did you mean `concat`?",
        ),
        ("tinker_train.py num_env=4 num_env=8", "given twice, as 4 and as 8", "keep one"),
        ("tinker_train.py verbose", "`verbose` is no option", "name=value"),
        (
            "tinker_cookbook_train.py n_batches=9",
            'GEM has no environment "game:GuessTheNumber-v0"',
            "did you mean `game:GuessTheNumber-v0-",
        ),
        (
            'tinker_cookbook_train.py env_id=math:Math12K env_kwargs_json={"usemp":1}',
            "takes no argument `usemp`",
            "did you mean `use_mp`?",
        ),
        ("tinker_cookbook_train.py env_kwargs_json={", "`env_kwargs_json` takes a mapping", ""),
        ("train.py", "no options are given", "name=value"),
        ("train.py a=1", "nothing tells which trainer", "--from: gem, gem-cookbook"),
        ("my/train.py model.name=Qwen/Qwen3-8B", "stands in its Python code", "--env"),
        (
            f"-m {SOLVER_JUDGE} training.group_sise=8",
            "no option `training.group_sise`",
            "group_size",
        ),
        (
            f"-m {SOLVER_JUDGE} algorithm.adv_estimator=distill",
            "adv_estimator `distill` has no counterpart",
            "known: grpo, reinforce",
        ),
        (f"-m {SOLVER_JUDGE} rllm/backend=verl", "the backend `verl` is not Tinker", ""),
    ],
)
def test_a_command(command: str, message: str, advice: str) -> None:
    said, advised = refusal(command)
    assert message in said
    assert advice in advised


def test_an_environment_that_is_none() -> None:
    assert "is no environment" in refusal("train.py model.name=x", env="problems(")[0]
    assert "is for rllm" in refusal("tinker_train.py gamma=1", env="a")[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2\n", "this is not YAML on line 2"),
        ("a: 1\na: 2\n", "`a` is given twice"),
        ("a: !!python/object:os.system {}\n", "this is not YAML on line 1"),
        ("model: &m\n  name: *m\n", "this is not YAML on line 1"),
        (BOMB, "has over 20,000 values"),
        ("", "no training command"),
        ("ls -l\n", "no training command"),
        ("python t.py a=1\npython t.py a=2\n", "holds 2 training commands"),
        ("environments: {}\n", "`environments` names no environment"),
        ("environments:\n  Org/Name: 3\n", "takes a mapping, not 3"),
        (
            "environments:\n  Org/Name: {num_rollouts: 8}\n",
            "`environments.Org/Name.splits` is missing",
        ),
        ("openreward_run_name: x\n", "`environments` is missing"),
        (OPENREWARD_CONFIG.replace("num_rollouts", "num_rolouts"), "num_rolouts`"),
        (OPENREWARD_CONFIG.replace('"ppo"', '"pppo"'), "there is no loss_fn `pppo`"),
    ],
)
def test_a_text(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        convert(job_of_text(text))
    assert message in caught.value.message


def test_an_override_that_is_none() -> None:
    with pytest.raises(InputError, match="`batch_size` is no override"):
        with_overrides(job_of_text(OPENREWARD_CONFIG), ["batch_size"])


def test_keep_going_leaves_the_unknown_to_comments() -> None:
    words = "tinker_train.py env_id=rg:chain_sum gama=1 api_key=sk-1 num_env=4 num_env=8 loud"
    recipe = convert(job_of_command(words.split()), keep_going=True)
    for note in (
        "gama = 1: no option of the trainer",
        "api_key = …: no option of the trainer",
        "`num_env` is given twice, as 4 and as 8: the last counts",
        "`loud` is no option of the script",
    ):
        assert note in recipe
    assert "parallel = 8" in recipe
    assert "sk-1" not in recipe


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("tinker_train.py env_wrappers=search_tool", 'search_tool(url = "http://127.0.0.1:8000'),
        ("tinker_train.py use_rebn=false gamma=0.5", "advantage = returns(gamma = 0.5)"),
        ("tinker_train.py save_every=10 wandb_project=p", 'track     = [wandb("p")]'),
        (
            "tinker_cookbook_train.py env_id=rg:chain_sum max_steps_off_policy=4",
            "overlap   = asynchronous(max_staleness = 4)",
        ),
        (
            "tinker_cookbook_train.py env_id=rg:chain_sum kl_penalty_coef=0.1",
            "reference(policy.base, coef = 0.1)",
        ),
        (
            "tinker_cookbook_train.py env_id=game:GuessTheNumber-v0-easy model_name=Qwen/Qwen3-8B",
            "history = template",
        ),
    ],
)
def test_less_common_options_compile_too(words: str, text: str) -> None:
    from rlc.compile.recipe import compile_source
    from rlc.lang.source import Source

    recipe = convert(job_of_command(words.split()))
    assert text in recipe
    assert not compile_source(Source("imported.rl", recipe)).diagnostics.has_errors
