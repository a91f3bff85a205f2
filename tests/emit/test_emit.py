"""Scripts: valid, formatted, and refused where they could not do what the plan says."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from golden import check_golden

from rlc.compile.recipe import compile_source
from rlc.emit.write import EmitError, emit, literal
from rlc.lang.source import Source
from rlc.plan.records import Plan

EXPECTED = Path(__file__).with_name("expected")

MODEL = 'model policy { base = "tiny"  lora_rank = 8 }\n'
PLAIN = """
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
train main {
  model = policy  env = guess  batch = groups(4, group_size = 4)  sampling = sample(max_tokens = 16)
  advantage = dr_grpo()  loss = importance_sampling()  optimizer = adam(1e-3)  steps = 2
}
"""
# Everything that the low-level script can express, in one or the other.
FULL = """
env guess = gem("game:GuessTheNumber-v0-easy") |> chat(instruction = "Say \\"now\\"")
env spell = gem("rg:spell_backward") |> template(qwen3_general) |> rollouts(group_size = 2)
train main {
  model     = policy
  env       = 2 * guess + 1 * spell
  batch     = groups(6, group_size = 4)
  sampling  = sample(max_tokens = 16, temperature = 0.9, top_p = 95%)
  advantage = returns(gamma = 0.9, constant = drop)
    |> baseline(leave_one_out, over = env)
    |> scale(std, over = batch, eps = 1e-6, eps_place = inside)
    |> clip(-5, 5)
  aggregate = seq_mean_token_mean()
  loss      = cispo()
  optimizer = adam(1e-3, schedule = cosine(warmup = 2, floor = 0.1), grad_clip_norm = 1)
  steps     = 3
  save      = every(1, keep = 2, ttl = 7d)
  on_error  = retry(2) then stop
  budget    = limit(usd = $5, tokens = 1_000_000, time = 2h)
}
"""
WAVES = """
env guess = gem("game:GuessTheNumber-v0-easy") |> concat() |> template(qwen3_game)
train main {
  model = policy  env = guess  batch = turns(12, parallel = 4)
  sampling = sample(max_tokens = 16)  advantage = rebn(gamma = 0.9)  loss = dro(beta = 0.05)
  optimizer = adam(1e-3, schedule = linear(warmup = 1))  steps = 3
}
"""


NAMED = """
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
train main {
  model = policy  env = guess  batch = groups(4, group_size = 4)  sampling = sample(max_tokens = 16)
  advantage = dr_grpo()  loss = stable_reinforce(kl_coeff = 0.1)
  optimizer = adam(1e-3)  steps = 2
}
"""


OWN = """
loss soft {
  tau   = where(adv > 0, 1, 1.05)
  gate  = 4 / tau * sigmoid(tau * (ratio - 1))
  token = -gate * adv + 0.01 * (logp - logq) * (logp - logq)
}
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
train main {
  model = policy  env = guess  batch = groups(4, group_size = 4)  sampling = sample(max_tokens = 16)
  advantage = grpo()  loss = soft  aggregate = token_mean()  optimizer = adam(1e-3)  steps = 2
}
"""


def plan_of(text: str) -> Plan:
    compiled = compile_source(Source("job.rl", MODEL + text))
    assert compiled.plan is not None, [item.message for item in compiled.diagnostics]
    return compiled.plan


@pytest.mark.parametrize(
    ("name", "text", "target"),
    [
        ("plain", PLAIN, "tinker"),
        ("full", FULL, "tinker"),
        ("waves", WAVES, "tinker"),
        ("named", NAMED, "tinker"),
        ("own", OWN, "tinker"),
        ("plain", PLAIN, "cookbook"),
    ],
)
def test_a_script_is_valid_formatted_and_stands_alone(
    name: str, text: str, target: str, tmp_path: Path
) -> None:
    script = emit(plan_of(text), target)
    check_golden(EXPECTED / f"{name}_{target}.txt", script)
    tree = ast.parse(script)
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert not any(module.split(".")[0] == "rlc" for module in imported)
    path = tmp_path / "script.py"
    path.write_text(script)
    ruff = str(Path(sys.executable).with_name("ruff"))
    checks = (["format", "--check"], ["check", "--select", "F,E9"])
    for arguments in checks:
        done = subprocess.run(
            [ruff, *arguments, "--isolated", str(path)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("change", "target", "reason"),
    [
        ("kl = reference(policy.base, coef = 0.1)", "tinker", "`kl`"),
        ("overlap = streamed(minibatches = 2)", "tinker", "`streamed()`"),
        ("aggregate = token_mean()", "cookbook", "`token_mean()`"),
        (
            "overlap = streamed(2)  kl = reference(policy.base, coef = 0.1)",
            "cookbook",
            "`streamed()`: `kl` takes the mean",
        ),
        ("loss = stable_reinforce(kl_coeff = 0.1)", "cookbook", "`stable_reinforce()` is not a"),
        ("loss = own()", "cookbook", "`own()` is not a loss"),
        ("loss = top()", "tinker", "`top`: the script computes nothing over a batch"),
        ("advantage = grpo()", "cookbook", "advantage `grpo`"),
        ("optimizer = adam(1e-3, beta1 = 0.8)", "cookbook", "beta1 = 0.9"),
        ("optimizer = adam(1e-3, schedule = cosine())", "cookbook", "constant learning rate"),
        ("budget = limit(tokens = 1_000)", "cookbook", "`budget`"),
        ("on_error = penalise(-1)", "tinker", "`penalise()`"),
        ("track = [tensorboard()]", "tinker", "`track`"),
    ],
)
def test_what_a_target_cannot_express_is_refused(change: str, target: str, reason: str) -> None:
    field = change.split(" = ")[0]
    old = {
        "advantage": "advantage = dr_grpo()",
        "loss": "loss = importance_sampling()",
        "optimizer": "optimizer = adam(1e-3)",
    }.get(field)
    text = PLAIN.replace(old, change) if old else PLAIN.replace("steps = 2", f"steps = 2  {change}")
    own = "loss own() { token = -abs(ratio) * logp * adv }\n"
    own += "loss top() { token = -ratio * adv * batch_top(adv, 5%) }\n"
    with pytest.raises(EmitError) as refused:
        emit(plan_of(own + text), target)
    assert any(reason in why for why in refused.value.reasons), refused.value.reasons


def test_several_stages_are_refused() -> None:
    plan = plan_of(PLAIN + PLAIN.replace("main", "again").replace("env guess", "env more"))
    with pytest.raises(EmitError, match="tinker"):
        emit(plan)


@pytest.mark.parametrize(
    "value", [1, 1_000_000, 0.5, True, None, "a\nb", 'say "x"', 'it\'s "x"', [1, {"a": (2,)}], {}]
)
def test_literals_mean_what_they_were(value: object) -> None:
    def plain(node: object) -> object:
        if isinstance(node, list | tuple):
            return [plain(item) for item in node]
        return {k: plain(v) for k, v in node.items()} if isinstance(node, dict) else node

    assert ast.literal_eval(literal(value)) == plain(value)
