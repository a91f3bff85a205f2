"""Scripts: valid, formatted, and refused where they could not do what the plan says."""

from __future__ import annotations

import ast
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from statistics import median

import pytest
from golden import check_golden
from paths import ROOT

import rlc
from rlc.compile.recipe import compile_source
from rlc.emit.errors import EmitError
from rlc.emit.script.literals import literal
from rlc.emit.script.program import script
from rlc.lang.source import Source
from rlc.plan.records import Plan

EXPECTED = Path(__file__).with_name("expected")

# Recipes that scripts are written of, and those of the jobs that rlc began with.
COVERED = 43
SEEDS = {"gem_math", "gem_reasoning", "gem_deepscaler", "gem_python_tool", "sudoku"}
SEEDS |= {"cookbook_tutorial"}
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


CHATS = """
sft main {
  model = policy  data = chats("chats.jsonl", train_on = last)  batch = 4
  optimizer = adam(1e-3, schedule = linear(warmup = 1))  steps = 3  save = every(2)
}
"""


def plan_of(text: str) -> Plan:
    compiled = compile_source(Source("job.rl", MODEL + text))
    assert compiled.plan is not None, [item.message for item in compiled.diagnostics]
    return compiled.plan


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain", PLAIN),
        ("full", FULL),
        ("waves", WAVES),
        ("named", NAMED),
        ("own", OWN),
        ("chats", CHATS),
    ],
)
def test_a_script_is_valid_formatted_and_stands_alone(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chats.jsonl").write_text("", encoding="utf-8")
    made = script(plan_of(text))
    check_golden(EXPECTED / f"{name}.txt", made)
    tree = ast.parse(made)
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert not any(module.split(".")[0] == "rlc" for module in imported)
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert len(defined) == len(set(defined))
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert set(defined) <= read  # nothing that is not needed
    path = tmp_path / "script.py"
    path.write_text(made)
    require_clean(path)


def require_clean(*paths: Path) -> None:
    """Fail if scripts are not formatted, or have faults that are found without running them."""
    ruff, faults = str(Path(sys.executable).with_name("ruff")), "B,E4,E7,E9,F,I,UP,W"
    settings = ["--isolated", "--line-length", "100", "--target-version", "py311"]
    for arguments in (["format", "--check"], ["check", "--select", faults]):
        done = subprocess.run(
            [ruff, *arguments, *settings, *map(str, paths)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("change", "code", "reason"),
    [
        ("overlap = streamed(minibatches = 2)", "RL0822", "`streamed()`"),
        ("overlap = asynchronous()", "RL0822", "`asynchronous()`"),
        ("observations = 0.1", "RL0822", "`observations`: a script learns from replies alone"),
        ("loss = top()", "RL0822", "`top`: a script computes nothing over a batch"),
        ("on_error = penalise(-1)", "RL0823", "`penalise()`"),
        ("track = [tensorboard()]", "RL0823", "`tensorboard()`"),
        ("save = every(1, best = true)", "RL0823", "`best`"),
        ("model = dear  budget = $5", "RL0823", "`budget` in dollars: not all prices of"),
        ("env = words", "RL0821", "`words`: `words.py:reward`: a script grades by the reply"),
        ("env = table", "RL0821", "`table`: a script reads files of JSON lines and data"),
        ("env = parts", "RL0821", "`parts`: `reward()`: a script knows no component `short`"),
        ("env = weighed", "RL0821", "`weighed`: `curriculum()`: a script chooses among rows"),
        ("env = vf", "RL0821", "`vf`: a script plays `gem()`, `problems()`, `rows()`, "),
        ("env = limited", "RL0821", "`limited`: `rollouts()` limits failures, time or turns"),
        ("model = colon", "RL0821", "`guess`: the renderer `role_colon` ends turns with text"),
        ("advantage = gdpo()", "RL0822", "`gdpo` reads `weights`, which a script does not"),
    ],
)
def test_what_a_script_cannot_do_is_refused_where_it_stands(
    change: str, code: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.jsonl").write_text('{"prompt": "Say one."}\n', encoding="utf-8")
    (tmp_path / "words.csv").write_text("question,answer\n1 + 1?,2\n", encoding="utf-8")
    (tmp_path / "words.py").write_text(
        "async def reward(reply, row):\n    return 1.0\n"
        "def short(reply, row):\n    return {'short': 1.0}\n"
        "def weights(tasks):\n    return tasks['solved_T']\n"
    )
    own = "loss top() { token = -ratio * adv * batch_top(adv, 5%) }\n"
    own += 'env words = rows("words.jsonl", grader = grade_with("words.py:reward"))\n'
    own += 'env table = problems("words.csv", grader = exact)\n'
    own += 'env parts = rows("words.jsonl", grader = grade_with("words.py:short"))\n'
    own += "  |> reward(2 * short)\n"
    own += 'env weighed = rows("words.jsonl", grader = grade_with("words.py:short"))\n'
    own += '  |> curriculum(by = "words.py:weights")\n'
    own += 'model colon { base = "tiny"  renderer = role_colon }\n'
    own += 'env vf = verifiers("owner/name")\n'
    own += 'env limited = gem("game:GuessTheNumber-v0-easy") |> chat() |> rollouts(timeout = 5m)\n'
    own += (
        'model dear { base = "vendor/New"  service = tinker  renderer = llama3  '
        "price = { sample = $1 } }\n"
    )
    field = change.split(" = ")[0]
    old = {
        "model": "model = policy",
        "loss": "loss = importance_sampling()",
        "env": "env = guess",
        "advantage": "advantage = dr_grpo()",
    }.get(field, "steps = 2")
    text = PLAIN.replace(old, change if old != "steps = 2" else f"steps = 2\n  {change}")
    (tmp_path / "job.rl").write_text(MODEL + own + text, encoding="utf-8")
    with pytest.raises(EmitError) as refused:
        script(plan_of(own + text))
    found = refused.value.diagnostics[0]
    assert found.code == code
    assert found.message.startswith(reason)
    assert found.span is not None
    assert field in found.span.text or code == "RL0821" or field == "model"


@pytest.mark.parametrize(
    "value", [1, 1_000_000, 0.5, True, None, "a\nb", 'say "x"', 'it\'s "x"', [1, {"a": (2,)}], {}]
)
def test_literals_mean_what_they_were(value: object) -> None:
    def plain(node: object) -> object:
        if isinstance(node, list | tuple):
            return [plain(item) for item in node]
        return {k: plain(v) for k, v in node.items()} if isinstance(node, dict) else node

    assert ast.literal_eval(literal(value)) == plain(value)


@pytest.mark.parametrize("own", [False, True])
def test_a_script_starts_with_the_state_of_the_optimiser_where_that_is_said(own: bool) -> None:
    path = '"tinker://a/weights/b"'
    saved = f"weights = {f'state({path})' if own else path}"
    model = f'model other {{ base = "Qwen/Qwen3-8B" renderer = qwen3_instruct {saved} }}\n'
    made = script(plan_of(model + PLAIN.replace("= policy", "= other")))
    assert f"from_state{'_with_optimizer' * own}(MODEL)" in made


@pytest.mark.engine
def test_scripts_cover_the_recipes_and_stay_short(tmp_path: Path) -> None:
    """Of jobs of one stage only agents, judges, other libraries and what they alone need are
    refused."""
    lengths = dict[str, int]()
    for path in sorted((ROOT / "recipes").rglob("*.rl")):
        if path.parent.name != "lib":
            with suppress(EmitError):
                text = script(rlc.load(str(path)).plan())
                (tmp_path / f"{path.stem}.py").write_text(text, encoding="utf-8")
                lengths[path.stem] = len(text.splitlines())
    require_clean(*tmp_path.glob("*.py"))
    assert len(lengths) >= COVERED
    assert median(lengths.values()) <= 400
    assert max(lengths.values()) <= 700
    assert lengths.keys() >= SEEDS
