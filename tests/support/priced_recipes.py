"""Recipes of every kind of source, judge, opponent, objective, teacher and data, put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlc.compile.recipe import compile_source
from rlc.envs import PolicyRequest
from rlc.envs.base import EnvError, Observation
from rlc.lang.source import Source
from rlc.plan.records import Plan

DATA, HERE = "recipes/data", "tests/support/priced_recipes.py"
ARITHMETIC = "tinker_cookbook.recipes.math_rl.arithmetic_env:ArithmeticDatasetBuilder"
# Played on this machine alone.
WORLDS = {
    "game": 'gem("game:GuessTheNumber-v0-easy") |> chat()',
    "observed": 'gem("game:GuessTheNumber-v0-easy") |> concat() |> template(no)',
    "latest": 'gem("game:Minesweeper-v0-easy") |> template(no)',
    "question": 'gem("rg:circuit_logic") |> chat()',
    "spell": 'gem("rg:spell_backward") |> chat(instruction = "Put it into \\\\boxed{}.")',
    "rows": f'rows("{DATA}/essay_prompts.jsonl", grader = grade_with("{HERE}:graded"))',
    "problems": f'problems("{DATA}/word_problems.jsonl", grader = numeric, '
    f'few_shot = "{DATA}/word_problems_few_shot.jsonl")',
    "solvers": "problems(countdown, grader = countdown, samples = 9) |> solver_judge(solvers = 3)",
    "python": 'python("recipes/letters.py:make", args = { letters = "e" })',
    "cookbook": f'cookbook("{ARITHMETIC}", args = {{ batch_size = 2, n_batches = 50 }})',
    "self": 'textarena("TicTacToe-v0") |> chat() |> play(against = self)',
    "model": 'textarena("TicTacToe-v0") |> chat() |> play(against = big)',
    "seat": 'textarena("TicTacToe-v0") |> chat() |> play(against = big, seat = "player_1")',
    "past": 'textarena("TicTacToe-v0") |> chat() |> play(against = past(every = 2))',
    "random": 'textarena("TicTacToe-v0") |> chat() |> play(against = random())',
    "perfect": 'textarena("TicTacToe-v0") |> chat() |> play(against = perfect())',
    "scripted": 'python_game("recipes/tug_of_war.py:TugOfWar") |> play(against = '
    f'scripted("{HERE}:pull"))',
    "python_game": 'python_game("recipes/tug_of_war.py:TugOfWar") |> play(against = big)',
}
# What needs a server, a program or a package: it is priced, and not played.
ELSEWHERE = {
    "openreward": 'openreward("Games/Reverse", base_url = "http://127.0.0.1:1")',
    "agent": f'agent("recipes/doors.py:solve", tasks = rows("{DATA}/doors.jsonl"))',
    "harbor": f'harbor("{DATA}/harbor/*", runtime = subprocess)',
    "openenv": 'openenv("http://127.0.0.1:1", text = "message", show = "text")',
    "verifiers": 'verifiers("primeintellect/wordle")',
    "drawn": 'gem("game:GuessTheNumber-v0-random") |> chat()',
}
JUDGES = {
    "none": "",
    "scored": " |> judged(mine)",
    "ranked": " |> compared(mine, by = ranking)",
    "pairwise": " |> compared(mine, by = pairwise)",
    "endpoint": " |> compared(paid, by = ranking)",
    "learnt": " |> judged(implicit_reward(align))",
    "function": ' |> compared(compare_with("recipes/yardstick/shorter.py:shorter"), by = pairwise)',
}
_STEPS = "optimizer = adam(1e-3)  steps = 2"
_RL = f"SAMPLING  advantage = reinforce()  loss = importance_sampling()  {_STEPS}"
_DATA = f"{_STEPS}  batch = 2"
_PLAYED = "samples(big, env = world, n = 3, samples_per_task = 2, sampling = sample(16), KEEP)"
_PREFERRED = "preferred(policy, env = world, n = 3, samples = 2)"
STAGES = {
    **{
        f"rl, {name}": f"train main {{ model = policy  env = world  BATCH  {_RL}  {more} }}"
        for name, more in {
            "plain": "",
            "reference": "kl = reference(policy.base, coef = 0.01)",
            "another reference": "kl = reference(big, coef = 0.01)",
            "reverse_kl": "teacher = reverse_kl(big)",
            "shown more": 'teacher = reverse_kl(policy, system = "Be short.")',
            "forward_kl": "teacher = forward_kl(big, top_k = 4)",
            "streamed": "overlap = streamed(minibatches = 2)",
            "asynchronous": "overlap = asynchronous(max_staleness = 1)",
            "held out": f'heldout = rows("{DATA}/spell_duel.jsonl", n = 3)  every = 1',
        }.items()
    },
    "rl, mixed": 'env other = gem("rg:chain_sum") |> chat()\n'
    f"train main {{ model = policy  env = 3 * world + other  BATCH  {_RL}  "
    "teacher = { world = reverse_kl(big)  other = forward_kl(big, top_k = 4) } }",
    **{
        f"sft, {name}": f"sft main {{ model = policy  {_DATA}  data = {data} }}"
        for name, data in {
            "oracle": "demonstrations(world, n = 3)",
            "demonstrations": "demonstrations(world, n = 3, policy = model, min_reward = -9)",
            "all": _PLAYED.replace("KEEP", "keep = all"),
            "best": _PLAYED.replace("KEEP", "keep = best"),
            "soft": _PLAYED.replace("KEEP", "keep = all, top_k = 3"),
            "rows": f'rows("{DATA}/openreward_games.jsonl", n = 3)',
            "chats": 'chats("tests/check/mistakes/chats.jsonl")',
        }.items()
    },
    **{
        f"preference, {loss}": f"preference main {{ model = policy  {_DATA}  data = {data}  "
        f"loss = {loss}() }}"
        for loss, data in {
            "dpo": _PREFERRED,
            "ipo": f'pairs("{DATA}/spell_pairs.jsonl", split = first(50%))',
            "simpo": _PREFERRED,
            "cpo": f'pairs("{DATA}/spell_pairs.jsonl")',
            "orpo": _PREFERRED,
            "brier": f'pairs("{DATA}/spell_pairs.jsonl")  heldout = '
            f'pairs("{DATA}/spell_pairs.jsonl", n = 3)  every = 1',
            "kto": _PREFERRED,
        }.items()
    },
}
BATCHES = {
    "groups": "batch = groups(2, group_size = 2)",
    "replaced": "batch = groups(2, group_size = 2, resample = 1)",
    "turns": "batch = turns(5, parallel = 2)",
}
SHAPE = """\
model policy {{ base = "{base}" }}
model big {{ base = "{base}" }}
judge mine = rubric("Is it good?", model = big, max_tokens = 16)
judge paid = rubric("Is it good?", model = endpoint("http://127.0.0.1:1/v1", model = "x",
  prompt_price = $1, reply_price = $3), max_tokens = 16)
env world = {world} |> rollouts({limits})
{before}{stage}
eval held {{ model = main  env = {held}  tasks = 2  samples = 2  sampling = sample(12)  every = 1 }}
"""
_ALIGN = (
    f'preference align {{ model = big  {_DATA}  data = pairs("{DATA}/spell_pairs.jsonl")  '
    "loss = dpo() }\n"
)


def text_of(
    world: str,
    judge: str,
    stage: str,
    batch: str,
    base: str = "tiny",
    limits: str = "max_tokens = 12, max_turns = 3",
    sampling: str = "sampling = sample(12)",
) -> str:
    """A recipe of such parts."""
    return SHAPE.format(
        base=base,
        world=(WORLDS | ELSEWHERE)[world] + JUDGES[judge],
        limits=limits,
        before=_ALIGN if judge == "learnt" else "",
        stage=STAGES[stage].replace("BATCH", BATCHES[batch]).replace("SAMPLING", sampling),
        held='gem("rg:chain_sum") |> chat()' if world == "past" else "world",
    )


def plan_of(text: str) -> Plan | None:
    """The plan of a recipe; None if its parts do not go together."""
    return compile_source(Source("test.rl", text)).plan


def graded(reply: str, row: Mapping[str, str]) -> float:
    return min(1.0, len(reply) / len(row["prompt"]))


class FailsLate:
    """Episodes of three turns, each of which fails in its last one."""

    first = Observation("Say something.")
    turns = 0

    def step(self, action: str) -> Observation:
        self.turns += 1
        if self.turns == 3:
            raise EnvError("it fails late")
        return Observation("Go on.")


class Flaky:
    def group(self, seed: int, size: int) -> list[FailsLate]:
        return [FailsLate() for _ in range(size)]


class EndsAtOnce:
    """Episodes of one turn."""

    first = FailsLate.first

    def step(self, action: str) -> Observation:
        return Observation("", reward=float(len(action)), done=True)


class MostlyFailing:
    """Of four episodes, three fail late, and one ends at once."""

    opened = 0

    def group(self, seed: int, size: int) -> list[FailsLate | EndsAtOnce]:
        self.opened += 1
        return [EndsAtOnce() if self.opened % 4 == 0 else FailsLate() for _ in range(size)]


def pull(observation: str) -> str:
    return observation[-8:] or "e"


# Recipes that can be played here, in which every part is: found by chance among all that compile.
PLAYED = """\
rows; none; sft, best; turns
question; learnt; preference, brier; replaced
observed; function; rl, plain; groups
cookbook; endpoint; preference, ipo; turns
past; scored; sft, rows; turns
perfect; none; rl, another reference; replaced
game; learnt; rl, reference; groups
solvers; none; preference, dpo; turns
latest; function; rl, asynchronous; replaced
model; none; sft, chats; turns
spell; function; rl, held out; replaced
problems; endpoint; preference, cpo; replaced
python; none; rl, shown more; turns
scripted; none; rl, streamed; groups
random; none; rl, reverse_kl; groups
self; none; rl, forward_kl; replaced
observed; none; preference, orpo; turns
rows; learnt; preference, kto; replaced
observed; none; sft, soft; replaced
python_game; none; rl, reference; groups
observed; learnt; preference, simpo; groups
spell; endpoint; sft, all; turns
solvers; none; sft, demonstrations; groups
spell; learnt; sft, oracle; replaced
past; ranked; sft, chats; replaced
seat; none; rl, held out; groups
past; pairwise; preference, cpo; replaced
rows; function; rl, held out; replaced
perfect; none; rl, shown more; turns
latest; function; sft, best; replaced
problems; function; sft, rows; turns
observed; learnt; rl, reverse_kl; groups
python; learnt; rl, another reference; groups
rows; learnt; sft, chats; replaced
problems; none; sft, best; replaced
rows; function; sft, rows; replaced
question; endpoint; rl, forward_kl; groups
perfect; none; rl, held out; groups
rows; function; sft, rows; turns
rows; none; rl, asynchronous; groups
spell; none; rl, mixed; groups
game; none; rl, mixed; turns
model; none; rl, mixed; turns
solvers; none; rl, mixed; turns
rows; none; rl, asynchronous; turns
game; none; rl, asynchronous; turns
solvers; none; rl, streamed; turns
"""


async def wordy(run: Any) -> float:
    """An agent that asks with texts of its own, far longer than its task."""
    for _ in range(2):
        await run.policy.reply(PolicyRequest([{"role": "user", "content": "Go on. " * 400}]))
    return 0.5
