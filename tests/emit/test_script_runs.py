"""What scripts give is what `rlc run` gives, to the bit: on the double of the engine, whose numbers
depend on nothing but prompts, seeds and weights."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import tinker
from plain_service import PlainService, open_plain

from rlc.compile.recipe import compile_source
from rlc.emit.script.program import script
from rlc.lang.source import Source
from rlc.plan.records import Plan
from rlc.runtime.job import Job
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.summary import Observer

pytestmark = pytest.mark.plain

MODEL = 'model policy { base = "tiny"  lora_rank = 8  renderer = qwen3_instruct }\n'
ENVS = """
preference_loss mine(beta = 0.1) {
  margin = beta * (chosen - chosen_ref - rejected + rejected_ref)
  pair   = where(margin > 1, 0, (1 - margin) * (1 - margin))
}
preference_loss kept(beta = 0.1, price = 1.0) {
  margin = chosen - chosen_ref - (rejected - rejected_ref)
  fallen = -sum(min(chosen_token - chosen_ref_token, 0)) / chosen_length
  pair   = softplus(-beta * margin) + price * fallen
}
model big { base = "tiny"  renderer = qwen3_instruct }
model thinker { base = "tiny"  lora_rank = 8  renderer = qwen3_disable_thinking }
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
env spell = gem("rg:spell_backward") |> template(qwen3_general) |> rollouts(group_size = 2)
env sums  = problems("sums.jsonl", grader = numeric, few_shot = "solved.jsonl", suffix = " Say.")
env words = rows("words.jsonl", grader = grade_with("words.py:reward"))
  |> chat(instruction = "One word.", system = "Be brief.")
env own   = python("words.py:make", args = { letter = "e" })
env numbers = problems(countdown, grader = countdown, samples = 20)
env endless = problems(countdown, grader = countdown)
env listed  = problems("numbers.jsonl", grader = countdown)
env shaped  = own |> reward(mean, low = 0.1)
env limited = guess |> reward(last, nonterminal = -1, high = 0.5)
env among   = own |> reward(total / mean(total, over = group) - 0.1 * tokens * (1 - truncated))
env chosen  = problems("sums.jsonl", grader = grade_with("words.py:odd"))
  |> curriculum(explore = 30%)
env set   = cookbook("words:Builder", args = { count = 3 })
"""
TRAIN = {
    "model": "policy",
    "env": "guess",
    "batch": "groups(4, group_size = 4)",
    "sampling": "sample(max_tokens = 8)",
    "advantage": "grpo()",
    "loss": "importance_sampling()",
    "optimizer": "adam(1e-2, schedule = cosine(warmup = 2))",
    "steps": "3",
}
TURNS = {
    "env": "guess",
    "batch": "turns(10, parallel = 4)",
    "advantage": "rebn(gamma = 0.9)",
    "loss": "dro(beta = 0.5)",
}
CASES: dict[str, dict[str, str]] = {
    "chat": {},
    "kept thoughts": {"model": "thinker"},  # which the template leaves out of earlier turns
    "mixture": {"env": "2 * guess + 1 * spell", "aggregate": "seq_mean_token_mean()"},
    "turns": TURNS,
    "recorded": {**TURNS, "loss": "stable_reinforce(kl_coeff = 0.1)"},
    "problems": {"env": "sums", "advantage": "cookbook.center(drop_constant = true)"},
    "running": {"env": "2 * guess + 1 * own", "advantage": "rae(decay = 0.5)"},
    "shaped": {"env": "2 * shaped + 1 * limited", "batch": "groups(4, group_size = 3)"},
    "compared": {"env": "among", "batch": "groups(4, group_size = 3)"},
    "countdown": {"env": "numbers"},
    "endless": {"env": "endless"},
    "curriculum": {"env": "chosen", "batch": "groups(4, group_size = 2, resample = 2)"},
    "replaced": {"env": "listed", "batch": "groups(4, group_size = 2, resample = 3)"},
    "rows": {"env": "words", "advantage": "rloo()", "loss": "cispo()"},
    "python": {"env": "own", "aggregate": "token_mean()", "loss": "ppo()"},
    "cookbook": {"env": "set", "loss": "gspo()", "aggregate": "prompt_mean()"},
    "limits": {"env": "set", "sampling": "sample(max_tokens = 8, max_episode_tokens = 60)"},
    "reference": {"kl": "reference(policy.base, coef = 0.1)", "aggregate": "token_mean()"},
    "discounted": {
        "kl": "reference(policy.base, coef = 0.1, final = 0.3, discount = 0.5)",
        "batch": "groups(4, group_size = 4, updates = 2)",
    },
    "teacher": {"teacher": "reverse_kl(big, coef = 0.5)", "advantage": "reinforce()"},
    "sampled": {"sampling": "sample(max_tokens = 8, temperature = 0.7, top_p = 90%)"},
    "budget": {"budget": "limit(tokens = 3_000)", "save": "every(1, keep = 1)"},
}
SFT = {"model": "policy", "data": 'chats("chats.jsonl")', "batch": "3", "steps": "3"}
SFT |= {"optimizer": "adam(1e-2, schedule = linear(warmup = 1))"}
IMITATION: dict[str, dict[str, str]] = {
    "chats": {},
    "last": {"data": 'chats("chats.jsonl", train_on = last, n = 5)'},
    "heldout": {
        "data": 'chats("chats.jsonl", split = first(70%))',
        "heldout": 'chats("chats.jsonl", split = last(30%))',
        "every": "2",
    },
    "long": {"data": 'chats("chats.jsonl", max_tokens = 30, too_long = drop)'},
    "rows": {"data": 'rows("pairs.jsonl", prompt = "asked", reply = "reply")'},
    "builder": {"data": 'cookbook("words:Examples")', "heldout": 'cookbook("words:Examples")'},
}
PREFERENCE = {"model": "policy", "data": 'pairs("pairs.jsonl")', "batch": "3", "steps": "3"}
PREFERENCE |= {"optimizer": "adam(1e-2)", "loss": "dpo(beta = 0.5)"}
PAIRS: dict[str, dict[str, str]] = {
    "dpo": {"heldout": 'pairs("pairs.jsonl", split = last(40%))', "every": "2"},
    "ipo": {"loss": "ipo(beta = 0.5)"},
    "simpo": {"loss": "simpo()"},
    "brier": {"loss": "brier(beta = 0.5)"},
    "own": {"loss": "mine(beta = 0.2)"},
    "tokens": {"loss": "kept(price = 0.5)"},
    "cpo": {"loss": "cpo(alpha = 0.5)"},
    "orpo": {"loss": "orpo()", "budget": "limit(tokens = 3_000)"},
    "kto": {"loss": "kto()", "data": 'labelled("labelled.jsonl")'},
}
WORDS = """
import random
from tinker_cookbook.rl.problem_env import ProblemEnv, ProblemGroupBuilder
from tinker_cookbook.supervised.data import conversation_to_datum
from rlc.envs.base import Observation

def odd(reply, row):
    return float(len(reply) % 2)

def reward(reply, row):
    return {"short": 1.0 / (1 + len(reply)), "letter": float(row["letter"] in reply)}

class Word:
    def __init__(self, letter):
        self.letter, self.turns = letter, 0
        self.first = Observation("A word with " + letter)

    def step(self, action):
        self.turns += 1
        share = action.count(self.letter) / (1 + len(action))
        return Observation("More", reward=share, done=self.turns == 2)

class Words:
    def __init__(self, letter):
        self.letters = letter + "abc"

    def group(self, seed, size):
        return [Word(random.Random(seed).choice(self.letters)) for _ in range(size)]

def make(letter):
    return Words(letter)

class Sum(ProblemEnv):
    def __init__(self, number, renderer):
        super().__init__(renderer)
        self.number = number

    def get_question(self):
        return f"{self.number} + 1?"

    def check_answer(self, text):
        return str(self.number + 1) in text

    def check_format(self, text):
        return len(text) < 9

    def get_reference_answer(self):
        return str(self.number + 1)

class Set:
    def __init__(self, renderer, size, count):
        self.renderer, self.size, self.count = renderer, size, count

    def __len__(self):
        return self.count

    def get_batch(self, index):
        from functools import partial
        numbers = (2 * index, 2 * index + 1)
        return [ProblemGroupBuilder(partial(Sum, n, self.renderer), self.size) for n in numbers]

class Builder:
    def __init__(self, renderer, group_size, count):
        self.args = renderer, group_size, count

    async def __call__(self):
        return Set(*self.args), Set(*self.args)

class Examples:
    def __init__(self, model_name_for_tokenizer, renderer_name, batch_size):
        from tinker_cookbook import renderers, tokenizer_utils
        tokenizer = tokenizer_utils.get_tokenizer(model_name_for_tokenizer)
        self.renderer, self.size = renderers.get_renderer(renderer_name, tokenizer), batch_size

    def __call__(self):
        return self, self

    def __len__(self):
        return 2

    def get_batch(self, index):
        chats = [[{"role": "user", "content": f"Say {n}."},
                  {"role": "assistant", "content": f"It is {n}."}] for n in range(self.size)]
        return [conversation_to_datum(chat, self.renderer, None) for chat in chats]
"""


def stage(kind: str, fields: dict[str, str]) -> str:
    lines = "".join(f"  {name} = {value}\n" for name, value in fields.items())
    return f"{kind} main {{\n{lines}}}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the data that the recipes name."""
    rows = [{"question": f"{n} + 1?", "answer": str(n + 1), "letter": "aeiou"[n]} for n in range(5)]
    rows = [{**row, "prompt": f"A word with {row['letter']}"} for row in rows]
    said = [
        [{"role": "user", "content": f"Say {n}."}, {"role": "assistant", "content": f"It is {n}."}]
        for n in range(7)
    ]
    chats = [{"messages": said[n] + (said[n - 1] if n % 2 else [])} for n in range(7)]
    pairs: list[dict[str, Any]] = [
        {"prompt": f"{n}?", "chosen": f"It is {n}.", "rejected": "No."} for n in range(4)
    ]
    asked = [{"role": "system", "content": "Say."}, {"role": "user", "content": "5?"}]
    reply = [{"role": "assistant", "content": "No."}]
    pairs += [{"prompt": asked, "chosen": reply, "rejected": "Yes."}]
    pairs += [{"prompt": "7?", "system": "Say.", "chosen": "It is 7.", "rejected": "No."}]
    pairs = [{**pair, "asked": f"{n}?", "reply": f"It is {n}."} for n, pair in enumerate(pairs)]
    labelled = [
        {"prompt": f"{n // 2}?", "completion": f"It is {n}.", "label": n % 2 == 0} for n in range(6)
    ]
    labelled += [{"prompt": asked, "completion": "No.", "label": "false"}]
    dialogue = "\n\nHuman: 6?\n\nAssistant: "
    pairs += [{"chosen": f"{dialogue}It is.", "rejected": f"{dialogue}No."}]
    pairs[-1] |= {"asked": "6?", "reply": "No."}
    files: dict[str, list[Any]] = {
        "pairs": pairs,
        "labelled": labelled,
        "numbers": [{"nums": [n, 3, 4], "target": n + 7} for n in range(1, 6)],
        "sums": rows,
        "words": rows,
        "solved": rows[:1],
        "chats": chats,
    }
    for name, lines in files.items():
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
    (tmp_path / "words.py").write_text(WORDS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan_of(text: str) -> Plan:
    Path("job.rl").write_text(MODEL + ENVS + text, encoding="utf-8")
    compiled = compile_source(Source("job.rl", MODEL + ENVS + text))
    assert compiled.plan is not None, [item.message for item in compiled.diagnostics]
    return compiled.plan


class Sdk:
    """The double in place of Tinker's SDK, whose interface it has."""

    def __init__(self, service: PlainService) -> None:
        self.service = service

    def __getattr__(self, name: str) -> Any:
        return getattr(self.service, name)

    def create_rest_client(self) -> Any:
        return SimpleNamespace(delete_checkpoint_from_tinker_path=self.service.delete_checkpoint)


def states(folder: Path) -> list[bytes]:
    """The saved states in a folder, the newest last, without the time of their headers."""
    import safetensors.numpy

    files = sorted(folder.rglob("weights/*.safetensors"))
    arrays = [safetensors.numpy.load_file(file) for file in files]
    return [b"".join(one[name].tobytes() for name in sorted(one)) for one in arrays]


def loaded(path: Path) -> Any:
    """The module of a script, under a name of its own."""
    spec = spec_from_file_location(f"script_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def by_script(plan: Plan, folder: Path) -> tuple[list[dict[str, Any]], bytes]:
    """The metrics of a script, and the state that it saves last."""
    path = folder / "train.py"
    path.write_text(script(plan, str(path)), encoding="utf-8")
    service = open_plain(folder / "script")
    with patch.object(tinker, "ServiceClient", lambda **_: Sdk(service)):
        module = loaded(path)
        asyncio.run(module.train(module.STEPS, str(folder / "told.jsonl")))
    service.close()
    told = (folder / "told.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in told], states(folder / "script")[-1]


def by_run(plan: Plan, folder: Path) -> tuple[list[dict[str, Any]], bytes]:
    """The same of a run."""
    run = RunFolder.create(folder / "run", plan)
    service = open_plain(run.path / "checkpoints")
    try:
        asyncio.run(Job(run, service, Observer()).run())
    finally:
        run.close()
        service.close()
    lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines], states(folder / "run")[-1]


RUNS = [
    *(pytest.param("train", {**TRAIN, **one}, id=name) for name, one in CASES.items()),
    *(pytest.param("sft", {**SFT, **one}, id=name) for name, one in IMITATION.items()),
    *(pytest.param("preference", {**PREFERENCE, **one}, id=name) for name, one in PAIRS.items()),
]


@pytest.mark.parametrize(("kind", "fields"), RUNS)
def test_a_script_gives_what_the_run_gives(kind: str, fields: dict[str, str], folder: Path) -> None:
    plan = plan_of(stage(kind, fields))
    told, weights = by_script(plan, folder)
    ours, theirs = by_run(plan, folder)
    assert len(told) == len(ours)
    for mine, own in zip(told, ours, strict=True):
        assert {
            name: own.get(name, 0.0) for name in mine
        } == mine  # no loss where nothing is learnt
    assert any(re.search("loss|reward", name) for name in told[0])
    assert weights == theirs
