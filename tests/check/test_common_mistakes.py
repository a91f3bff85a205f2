"""What people do wrong in practice: each mistake is found, at the latest when `check` runs the rewards.

Each is one line of `MISTAKES`: what is wrong, the codes that say so (any one of them is enough), and the
recipe, put together from a sound one with other fields. What is not found yet stands in `MISSED`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rlc.compile.recipe import compile_source
from rlc.data.reading import Reader
from rlc.lang.source import Source

FILES = Path(__file__).with_name("mistakes")

MODELS = """\
model policy { base = "tiny"  lora_rank = 8 }
model big { base = "tiny"  lora_rank = 16 }
"""
TRAIN = {
    "model": "policy",
    "env": 'rows("words.jsonl", grader = grade_with("rewards.py:right"))',
    "batch": "groups(4, group_size = 4)",
    "sampling": "sample(max_tokens = 32)",
    "advantage": "grpo()",
    "loss": "importance_sampling()",
    "optimizer": "adam(1e-3)",
    "steps": "20",
}
PREFERENCE = {
    "model": "policy",
    "data": 'pairs("pairs.jsonl")',
    "loss": "dpo()",
    "batch": "4",
    "optimizer": "adam(1e-4)",
    "steps": "6",
}
SFT = {
    "model": "policy",
    "data": 'chats("chats.jsonl")',
    "batch": "4",
    "optimizer": "adam(1e-3)",
    "steps": "6",
}


def block(kind: str, name: str, fields: dict[str, str]) -> str:
    lines = "".join(f"  {key} = {value}\n" for key, value in fields.items() if value)
    return f"{kind} {name} {{\n{lines}}}\n"


def train(before: str = "", after: str = "", **fields: str) -> str:
    return MODELS + before + block("train", "main", TRAIN | fields) + after


def rewarded(grader: str, **fields: str) -> str:
    return train(env=f'rows("words.jsonl", grader = {grader})', **fields)


def summed(grader: str = "numeric", wrappers: str = "", **fields: str) -> str:
    return train(env=f'problems("sums.jsonl", grader = {grader}) {wrappers}', **fields)


def shaped(expression: str, grader: str = 'grade_with("rewards.py:parts")') -> str:
    return train(env=f'rows("words.jsonl", grader = {grader}) |> reward({expression})')


def judged(judge: str, wrapper: str = "judged") -> str:
    return train(env=f'rows("words.jsonl") |> {wrapper}({judge})')


def loss(text: str, **fields: str) -> str:
    return train(f"loss mine {{ {text} }}\n", loss="mine", **fields)


def preference(before: str = "", after: str = "", **fields: str) -> str:
    return MODELS + before + block("preference", "align", PREFERENCE | fields) + after


def sft(before: str = "", after: str = "", **fields: str) -> str:
    return MODELS + before + block("sft", "warmup", SFT | fields) + after


def swept(sweep: str, **fields: str) -> str:
    rate = "param rate: float = 1e-3\n"
    heldout = (
        'eval heldout { model = main  env = rows("sums.jsonl", prompt = "question", grader = grade_with('
        '"rewards.py:right"))  tasks = 8  every = 5  metrics = [mean_reward(), pass_at(1)] }\n'
    )
    return rate + train(optimizer="adam(rate)", **fields) + heldout + f"sweep s {{ {sweep} }}\n"


OTHER = 'rows("sums.jsonl", prompt = "question", grader = grade_with("rewards.py:right"))'
GUESS = 'env guess = gem("game:GuessTheNumber-v0-easy") |> chat()\n'
GAME = 'textarena("TicTacToe-v0") |> chat()'

# What is wrong: the codes of which one says so, and the recipe.
MISTAKES: dict[str, tuple[str, str]] = {
    # Rewards of one's own.
    "reward: a function that always returns 1": (
        "RL0681 RL0532",
        rewarded('grade_with("rewards.py:always")'),
    ),
    "reward: a function that always returns 0": (
        "RL0532 RL0681",
        rewarded('grade_with("rewards.py:never")'),
    ),
    "reward: every component is always 0": (
        "RL0532 RL0681",
        rewarded('grade_with("rewards.py:always_parts")'),
    ),
    "reward: one component is always the same": (
        "RL0681 RL0682",
        rewarded('grade_with("rewards.py:half_constant")'),
    ),
    "reward: a constant by way of a name": (
        "RL0681",
        rewarded('grade_with("rewards.py:constant_by_name")'),
    ),
    "reward: both branches return the same": (
        "RL0681",
        rewarded('grade_with("rewards.py:constant_branches")'),
    ),
    "reward: the answer anywhere in a reply": (
        "RL0686",
        rewarded('grade_with("rewards.py:anywhere")'),
    ),
    "reward: more for a long reply": ("RL0686", rewarded('grade_with("rewards.py:wordy")')),
    "reward: the marks of an answer alone": (
        "RL0686",
        rewarded('grade_with("rewards.py:tagged")'),
    ),
    "reward: an echo of the prompt": ("RL0686", rewarded('grade_with("rewards.py:overlapping")')),
    "reward: one component outweighs the other a thousand times": (
        "RL0683 RL0684 RL0685",
        rewarded('grade_with("rewards.py:huge_part")'),
    ),
    "reward: right answers earn less than wrong ones": (
        "RL0683",
        rewarded('grade_with("rewards.py:inverted")'),
    ),
    "reward: a number as text": ("RL0512 RL0534", rewarded('grade_with("rewards.py:as_text")')),
    "reward: yes and no": ("RL0512 RL0534", rewarded('grade_with("rewards.py:as_bool_text")')),
    "reward: nothing is returned": ("RL0512 RL0534", rewarded('grade_with("rewards.py:nothing")')),
    "reward: not a number": ("RL0512 RL0534", rewarded('grade_with("rewards.py:not_a_number")')),
    "reward: a field that the rows do not have": (
        "RL0512 RL0502 RL0534",
        rewarded('grade_with("rewards.py:other_field")'),
    ),
    "reward: a function of the reply alone": (
        "RL0534 RL0681 RL0511",
        rewarded('grade_with("rewards.py:one_argument")'),
    ),
    "reward: a function that wants a tokenizer": (
        "RL0534 RL0511",
        rewarded('grade_with("rewards.py:three_arguments")'),
    ),
    "reward: a list": ("RL0512 RL0534", rewarded('grade_with("rewards.py:a_list")')),
    "reward: the signature of TRL": (
        "RL0534 RL0511 RL0512",
        rewarded('grade_with("rewards.py:batch")'),
    ),
    "reward: a function that fails": ("RL0512 RL0534", rewarded('grade_with("rewards.py:fails")')),
    "reward: a name that is not defined": (
        "RL0512 RL0534",
        rewarded('grade_with("rewards.py:no_such")'),
    ),
    "reward: a function that is not there": ("RL0510", rewarded('grade_with("rewards.py:rigth")')),
    "reward: a file that is not there": (
        "RL0510 RL0001",
        rewarded('grade_with("reward.py:right")'),
    ),
    "reward: no function is named": ("RL0210 RL0510 RL0534", rewarded('grade_with("rewards.py")')),
    "reward: a weight of 0": (
        "RL0408 RL0532 RL0681",
        rewarded('0 * grade_with("rewards.py:right")'),
    ),
    "reward: a negative weight of what is right": (
        "RL0683 RL0684 RL0685",
        rewarded('-1 * grade_with("rewards.py:right")'),
    ),
    "reward: the only grader by arithmetic of 0": (
        "RL0408 RL0532 RL0681",
        rewarded('(1 - 1) * grade_with("rewards.py:right")'),
    ),
    "reward: a weight of a component that there is not": (
        "RL0680 RL0104 RL0105 RL0534",
        rewarded('grade_with("rewards.py:parts", weights = { corect = 1 })'),
    ),
    "reward: all weights are 0": (
        "RL0532 RL0681 RL0408",
        rewarded('grade_with("rewards.py:parts", weights = { correct = 0, brief = 0 })'),
    ),
    "reward: no grader at all": ("RL0530", train(env='rows("words.jsonl")')),
    "reward: one component outweighs the rest by its weight": (
        "RL0683 RL0684 RL0685",
        rewarded(
            '{ right = 0.001 * grade_with("rewards.py:right"), brief = grade_with("rewards.py:brief") }'
        ),
    ),
    # Graders that compare answers.
    "grader: numbers where the answers are words": (
        "RL0508",
        train(env='problems("texts.jsonl", grader = numeric)'),
    ),
    "grader: a pattern without the answer": ("RL0508 RL0509", summed('regex("Answer: ([a-z]+)$")')),
    "grader: a pattern of one digit for answers of two": (
        "RL0508 RL0509",
        summed('regex("nswer: *([0-9])")'),
    ),
    "grader: a pattern that does not compile": (
        "RL0210 RL0324 RL0514 RL0508",
        summed('regex("(")'),
    ),
    "grader: countdown without its fields": ("RL0502 RL0324 RL0508", summed("countdown")),
    "grader: a field of the answer that there is not": (
        "RL0502",
        train(env='problems("sums.jsonl", answer = "result", grader = numeric)'),
    ),
    "grader: a negative weight": ("RL0683 RL0684 RL0685", summed("-1 * numeric")),
    "grader: the right answer costs more than the wrong one": (
        "RL0683 RL0684 RL0685",
        summed("{ right = -0.5 * numeric, form = 0.1 * exact }"),
    ),
    "grader: a greedy pattern that leaves the last digit": (
        "RL0509",
        summed('regex(".*([0-9]+)")'),
    ),
    # Shaped rewards.
    "shaped: a constant": ("RL0681", shaped("1.0")),
    "shaped: a constant by arithmetic": ("RL0681", shaped("0 * total + 1")),
    "shaped: the same taken off itself": ("RL0681", shaped("total - total")),
    "shaped: a name that is no component": ("RL0640 RL0680", shaped("corect + brief")),
    "shaped: a component of another environment": ("RL0640 RL0680", shaped("passed - 0.1 * brief")),
    "shaped: the absolute value of the total": ("RL0683 RL0684 RL0685", shaped("abs(total - 1)")),
    "shaped: a missing answer pays": (
        "RL0683",
        summed(wrappers="|> reward(abs(total))"),
    ),
    "shaped: what is right costs": ("RL0683 RL0684 RL0685", shaped("-1 * correct")),
    "shaped: more for wrong than for right": ("RL0683 RL0684 RL0685", shaped("1 - total")),
    "shaped: length alone": ("RL0683 RL0684 RL0685 RL0430", shaped("tokens")),
    "shaped: whoever writes little is right": (
        "RL0683 RL0684 RL0685",
        shaped("where(tokens < 64, 1, correct)"),
    ),
    "shaped: a penalty far above the reward": (
        "RL0683 RL0684 RL0685 RL0440",
        shaped("total - 10 * tokens"),
    ),
    "shaped: a component far above the rest": (
        "RL0683 RL0684 RL0685",
        shaped("correct + 1_000 * brief"),
    ),
    "shaped: clipped to one value": ("RL0681 RL0422 RL0652", shaped("clip(total, 0, 0)")),
    "shaped: clipped the wrong way round": (
        "RL0642 RL0681 RL0422 RL0650 RL0643",
        shaped("clip(total, 1, 0)"),
    ),
    "shaped: a condition that is always true": (
        "RL0652 RL0681",
        shaped("where(tokens >= 0, 1, total)"),
    ),
    "shaped: logarithm of what can be 0": ("RL0657 RL0650", shaped("log(total)")),
    "shaped: divided by what can be 0": ("RL0657 RL0650", shaped("total / correct")),
    "shaped: low above high": ("RL0422 RL0328 RL0202 RL0681", shaped("sum, low = 1, high = 0")),
    "shaped: all cut to 0": ("RL0681 RL0422 RL0532 RL0430", shaped("sum, low = 0, high = 0")),
    "shaped: an input of losses": ("RL0640 RL0653 RL0680", shaped("total - logp")),
    "shaped: a reduction over tokens": (
        "RL0641 RL0640 RL0642 RL0643",
        shaped("total - mean(ratio)"),
    ),
    # Judges.
    "judge: a scale that falls": (
        "RL0760",
        judged('rubric("rubric.md", model = big, scale = [10, 1])'),
    ),
    "judge: a scale of one value": (
        "RL0760",
        judged('rubric("rubric.md", model = big, scale = [1, 1])'),
    ),
    "judge: a scale of three numbers": (
        "RL0760 RL0201 RL0206 RL0210",
        judged('rubric("rubric.md", model = big, scale = [1, 5, 10])'),
    ),
    "judge: an empty rubric": ("RL0761", judged('rubric("empty.md", model = big)')),
    "judge: a rubric that is not there": (
        "RL0761 RL0001",
        judged('rubric("rubrik.md", model = big)'),
    ),
    "judge: no room for an answer": (
        "RL0765 RL0761",
        judged('rubric("rubric.md", model = big, max_tokens = 1)'),
    ),
    "judge: no room for scores of all criteria": (
        "RL0765 RL0761",
        judged('rubric("rubric.md", model = big, max_tokens = 8)'),
    ),
    "judge: a question without the reply": (
        "RL0516 RL0515 RL0761",
        judged('rubric("rubric.md", model = big, prompt = "blank.j2")'),
    ),
    "judge: a question with an unknown variable": (
        "RL0515",
        judged('rubric("rubric.md", model = big, prompt = "question.j2")'),
    ),
    "judge: a question that asks for no score": (
        "RL0516",
        judged('rubric("Is it clear?", model = big, prompt = "scoreless.j2")'),
    ),
    "judge: a question that asks for one score of several criteria": (
        "RL0516",
        judged('rubric("rubric.md", model = big, prompt = "scored.j2")'),
    ),
    "judge: a question that shows a score out of the scale": (
        "RL0516",
        judged('rubric("Is it clear?", model = big, prompt = "scored.j2", scale = [0, 1])'),
    ),
    "judge: a rubric of another scale": (
        "RL0761",
        judged('rubric("Rate how clear it is, from 1 to 5.", model = big)'),
    ),
    "judge: a scale of too many digits": (
        "RL0760",
        judged('rubric("Is it clear?", model = big, scale = [0, 0.00001])'),
    ),
    "judge: no room for a ranking": (
        "RL0765",
        judged('rubric("Is it clear?", model = big, max_tokens = 16)', "compared"),
    ),
    "judge: itself": ("RL0762", judged('rubric("rubric.md", model = policy)')),
    "judge: at a high temperature": (
        "RL0764",
        judged('rubric("rubric.md", model = big, temperature = 1.5)'),
    ),
    "judge: criteria that rows do not have": (
        "RL0767 RL0502",
        judged('rubric("rubric.md", model = big, criteria = "points")'),
    ),
    "judge: a row's field that is not there": (
        "RL0502 RL0767 RL0761",
        judged('rubric("Is it {{ row.solution }}?", model = big)'),
    ),
    "judge: a weight of 0": (
        "RL0408 RL0681 RL0532 RL0530",
        judged('0 * rubric("rubric.md", model = big)'),
    ),
    "judge: a negative weight": (
        "RL0683 RL0684 RL0685",
        judged('-1 * rubric("rubric.md", model = big)'),
    ),
    "judge: a comparison that judges one reply": (
        "RL0763 RL0766 RL0201 RL0826",
        judged('compare_with("rewards.py:shorter")'),
    ),
    "judge: compared in groups of one": (
        "RL0763 RL0308",
        train(
            env='rows("words.jsonl") |> compared(rubric("rubric.md", model = big))',
            batch="groups(4, group_size = 1)",
        ),
    ),
    "judge: the first is always better": (
        "RL0681 RL0532",
        judged('compare_with("rewards.py:always_first"), by = pairwise', "compared"),
    ),
    "judge: no such function": (
        "RL0510",
        judged('compare_with("rewards.py:longer"), by = pairwise', "compared"),
    ),
    "judge: an implicit reward of a train stage": (
        "RL0779 RL0201",
        train(
            block("train", "first", TRAIN),
            env='rows("words.jsonl") |> judged(implicit_reward(first))',
        ),
    ),
    "judge: an implicit reward of a loss without a reference": (
        "RL0779",
        train(
            block("preference", "align", PREFERENCE | {"loss": "simpo()", "model": "big"}),
            env='rows("words.jsonl") |> judged(implicit_reward(align))',
        ),
    ),
    "judge: a key in the recipe": (
        "RL0323",
        judged(
            'rubric("rubric.md", model = endpoint("http://127.0.0.1:1/v1", model = "j", '
            'key = "sk-abcdefghijkl0123456789"))'
        ),
    ),
    # Own losses.
    "loss: the wrong sign": ("RL0660 RL0644", loss("token = ratio * adv")),
    "loss: the wrong sign, clipped": (
        "RL0660",
        loss("token = min(ratio * adv, clip(ratio, 0.8, 1.2) * adv)"),
    ),
    "loss: of logp, the wrong sign": ("RL0660", loss("token = logp * adv")),
    "loss: no gradient": ("RL0644", loss("token = -stop(ratio) * adv")),
    "loss: no advantage": ("RL0655", loss("token = -logp")),
    "loss: the sampler's logprobs alone": ("RL0644", loss("token = -logq * adv")),
    "loss: a reference that there is not": ("RL0648", loss("token = -ratio * adv + (logp - ref)")),
    "loss: a reward in it": ("RL0640", loss("token = -ratio * reward")),
    "loss: no ratio is bounded, on stale rollouts": (
        "RL0651 RL0435 RL0313",
        loss("token = -ratio * adv", overlap="asynchronous(max_staleness = 3)"),
    ),
    "loss: clipped the wrong way round": (
        "RL0644 RL0652 RL0650 RL0642 RL0643",
        loss("token = -clip(ratio, 1.2, 0.8) * adv"),
    ),
    "loss: clipped where it is": ("RL0644 RL0652", loss("token = -clip(ratio, 1, 1) * adv")),
    "loss: max where min belongs": (
        "RL0660 RL0661",
        loss("token = max(ratio * adv, clip(ratio, 0.8, 1.2) * adv)"),
    ),
    "loss: a part that is not used": (
        "RL0645",
        loss("gate = sigmoid(ratio)  token = -ratio * adv"),
    ),
    "loss: neither token nor sequence": ("RL0647", loss("value = -ratio * adv")),
    "loss: both token and sequence": (
        "RL0647",
        loss("token = -ratio * adv  sequence = -mean(ratio) * mean(adv)"),
    ),
    "loss: a token's value for a sequence": ("RL0643", loss("sequence = -ratio * adv")),
    "loss: logarithm of an advantage": ("RL0657 RL0650 RL0649", loss("token = -logp * log(adv)")),
    "loss: an unknown function": ("RL0641", loss("token = -relu(ratio) * adv")),
    "loss: if instead of where": (
        "RL0010 RL0641 RL0640 RL0018",
        loss("token = if adv > 0 then -ratio else 0"),
    ),
    "loss: the exponential of a difference the other way round": (
        "RL0660",
        loss("token = -exp(logq - logp) * adv"),
    ),
    "loss: squared advantages": ("RL0661", loss("token = -ratio * adv * adv")),
    # Advantages, batches, overlap.
    "advantage: groups of one": ("RL0308", train(batch="groups(16, group_size = 1)")),
    "advantage: spread before a baseline": (
        "RL0420",
        train("advantage mine = returns() |> scale(std, over = group)\n", advantage="mine"),
    ),
    "advantage: clip to nothing": (
        "RL0422",
        train(
            "advantage mine = returns() |> baseline(mean, over = group) |> clip(0, 0)\n",
            advantage="mine",
        ),
    ),
    "advantage: by role without roles": (
        "RL0423",
        train(
            "advantage mine = returns() |> baseline(mean, over = role)\n",
            advantage="mine",
        ),
    ),
    "advantage: streamed over the batch": (
        "RL0319 RL0312",
        train(advantage="rebn()", overlap="streamed(minibatches = 4)"),
    ),
    "advantage: greedy samples compared": (
        "RL0437 RL0410 RL0202",
        train(sampling="sample(max_tokens = 32, temperature = 0)"),
    ),
    "advantage: top_k 1": ("RL0437", train(sampling="sample(max_tokens = 32, top_k = 1)")),
    "batch: more groups than tasks": (
        "RL0327 RL0507 RL0445",
        train(batch="groups(64, group_size = 4)"),
    ),
    "loss: ppo with clips far off": ("RL0424", train(loss="ppo(clip_low = 0.2, clip_high = 0.2)")),
    "loss: stale rollouts and no ratio": (
        "RL0313 RL0435",
        train(loss="cross_entropy()", overlap="asynchronous(max_staleness = 2)"),
    ),
    "optimizer: a rate of 1": ("RL0403", train(optimizer="adam(1.0)")),
    "optimizer: a rate of 1e-9": ("RL0403", train(optimizer="adam(1e-9)")),
    "optimizer: a rate of 0": ("RL0402 RL0403 RL0202", train(optimizer="adam(0)")),
    "optimizer: warmup longer than the run": (
        "RL0431",
        train(optimizer="adam(1e-3, schedule = cosine(warmup = 100))"),
    ),
    "sampling: no tokens": ("RL0202 RL0410", train(sampling="sample(max_tokens = 0)")),
    "sampling: more tokens than the context": (
        "RL0407",
        train(sampling="sample(max_tokens = 20_000)"),
    ),
    "sampling: a thousand turns in a small context": (
        "RL0407",
        train(env='python("rewards.py:solve") |> rollouts(max_turns = 1_000)'),
    ),
    "sampling: a stop that every reply begins with": (
        "RL0756 RL0210",
        train(sampling='sample(max_tokens = 32, stop = "")'),
    ),
    "sampling: another temperature beside a penalty": (
        "RL0417 RL0409",
        train(
            sampling="sample(max_tokens = 32, temperature = 0.5)",
            kl="reference(policy.base, coef = 0.01)",
        ),
    ),
    "kl: a coefficient of 0": (
        "RL0402 RL0202 RL0408 RL0658",
        train(kl="reference(policy.base, coef = 0)"),
    ),
    "kl: far above the reward": (
        "RL0440 RL0724 RL0202",
        train(kl="reference(policy.base, coef = 100)"),
    ),
    "budget: below one step": (
        "RL0460 RL0411",
        train(
            "",
            model="large",
            budget="$0.00001",
        ).replace("model big", 'model large { base = "Qwen/Qwen3-8B" }\nmodel big'),
    ),
    "save: never due": ("RL0436", train(save="every(50, keep = 2, ttl = 7d)")),
    "epochs and steps": ("RL0309", train(epochs="2")),
    # Preferences.
    "preference: equal pairs": ("RL0731", preference(data='pairs("equal_pairs.jsonl")')),
    "preference: labels of one kind": (
        "RL0721",
        preference(data='labelled("all_good.jsonl")', loss="kto()"),
    ),
    "preference: labels for dpo": ("RL0722", preference(data='labelled("rated.jsonl")')),
    "preference: chosen and rejected are one field": (
        "RL0731 RL0720",
        preference(data='pairs("pairs.jsonl", rejected = "chosen")'),
    ),
    "preference: a field that there is not": (
        "RL0502 RL0720",
        preference(data='pairs("pairs.jsonl", chosen = "good")'),
    ),
    "preference: a high rate": (
        "RL0725 RL0403",
        preference(
            'model large { base = "Qwen/Qwen3-8B" }\n', model="large", optimizer="adam(1e-2)"
        ),
    ),
    "preference: a hundred epochs": ("RL0726", preference(steps="", epochs="100")),
    "preference: a beta of 100": ("RL0724", preference(loss="dpo(beta = 100)")),
    "preference: a reference for simpo": ("RL0723", preference(loss="simpo()", reference="big")),
    "preference: held out is learnt from": ("RL0728", preference(heldout='pairs("pairs.jsonl")')),
    "preference: every without anything held out": ("RL0727", preference(every="2")),
    "preference: the best of one": (
        "RL0750 RL0763 RL0202 RL0441",
        preference(GUESS, data="preferred(policy, env = guess, n = 8, samples = 1)"),
    ),
    "preference: more held out than there is": (
        "RL0507 RL0327 RL0202 RL0728",
        preference(heldout='pairs("pairs.jsonl", split = last(100%))'),
    ),
    "preference: label smoothing of a half": (
        "RL0724 RL0202",
        preference(loss="dpo(label_smoothing = 0.5)"),
    ),
    # Distillation and supervised stages.
    "teacher: the student itself": ("RL0744", train(teacher="reverse_kl(policy)")),
    "teacher: a coefficient of 0": (
        "RL0743 RL0202",
        train(teacher="reverse_kl(big, coef = 0)"),
    ),
    "teacher: of an environment that there is not": (
        "RL0741",
        train(GUESS, env="guess", teacher="{ guesses = reverse_kl(big) }"),
    ),
    "teacher: no advantage and no teacher": ("RL0302 RL0742", train(advantage="")),
    "teacher: a field of rows that is not there": (
        "RL0502 RL0746 RL0745",
        train(teacher='reverse_kl(big, demonstration = "solution")'),
    ),
    "teacher: other tokens": (
        "RL0740 RL0306",
        train('model qwen { base = "Qwen/Qwen3-8B" }\n', teacher="reverse_kl(qwen)"),
    ),
    "sft: chats without replies": ("RL0540 RL0504 RL0502", sft(data='chats("no_replies.jsonl")')),
    "sft: a field that there is not": ("RL0502", sft(data='rows("words.jsonl")')),
    "sft: held out is learnt from": ("RL0728", sft(heldout='chats("chats.jsonl")')),
    "sft: a rate of 1": ("RL0403", sft(optimizer="adam(1.0)")),
    "sft: demonstrations of what has no oracle": (
        "RL0321",
        sft(
            'env words = rows("words.jsonl", grader = grade_with("rewards.py:right"))\n',
            data="demonstrations(words, n = 8)",
        ),
    ),
    "sft: samples without a reward are kept where solved": (
        "RL0530 RL0441",
        sft(
            'env words = rows("words.jsonl")\n',
            data="samples(big, env = words, n = 8, keep = solved)",
        ),
    ),
    "sft: no system message to leave out": (
        "RL0751",
        sft(
            'env words = rows("words.jsonl")\n',
            data="samples(big, env = words, n = 8, keep = all, without = system)",
        ),
    ),
    "sft: the best of one": (
        "RL0750 RL0441",
        sft(GUESS, data="samples(big, env = guess, n = 8, keep = best)"),
    ),
    "sft: rows longer than allowed": (
        "RL0504 RL0407 RL0503",
        sft(data='rows("prompted.jsonl", max_tokens = 2)'),
    ),
    # Games and agents.
    "game: nobody plays": ("RL0780", train(env=GAME)),
    "game: players without a game": (
        "RL0781",
        train(env=TRAIN["env"] + " |> play(against = self)"),
    ),
    "game: a seat that there is not": (
        "RL0782",
        train(env=GAME + ' |> play(against = big, seat = "player_7")', advantage="rae()"),
    ),
    "game: no such function of a player": (
        "RL0510",
        train(env=GAME + ' |> play(against = scripted("rewards.py:move"))', advantage="rae()"),
    ),
    "game: the win rate of no game": (
        "RL0785",
        train(
            after=f"eval wins {{ model = main  env = {TRAIN['env']}  tasks = 8  metrics = win_rate() }}\n"
        ),
    ),
    "game: seats without peers": (
        "RL0787 RL0308 RL0425",
        train(env=GAME + " |> play(against = self)", batch="groups(8, group_size = 1)"),
    ),
    "agent: nothing rewards it": (
        "RL0807 RL0530",
        train(env='agent("rewards.py:solve", tasks = rows("words.jsonl"))'),
    ),
    "agent: neither a function nor a command": (
        "RL0802 RL0205",
        train(env='agent(tasks = rows("words.jsonl"))'),
    ),
    "agent: a command that is not here": (
        "RL0805 RL0701",
        train(
            env='agent(command = ["no-such-program"], tasks = rows("words.jsonl"), reward = exit_status)'
        ),
    ),
    "agent: a chat wrapper": (
        "RL0804 RL0305",
        train(
            env='agent("rewards.py:solve", tasks = rows("words.jsonl"), grader = grade_with('
            '"rewards.py:right")) |> chat()'
        ),
    ),
    # Evaluations, sweeps, expectations.
    "eval: on the training tasks": (
        "RL0427",
        train(
            after=f"eval seen {{ model = main  env = {TRAIN['env']}  tasks = 8  metrics = mean_reward() }}\n"
        ),
    ),
    "eval: pass@8 of four samples": (
        "RL0316",
        train(
            after=f"eval few {{ model = main  env = {TRAIN['env']}  tasks = 8  samples = 4  metrics = pass_at(8) }}\n"
        ),
    ),
    "eval: never due": (
        "RL0436",
        train(
            after=f"eval late {{ model = main  env = {TRAIN['env']}  tasks = 8  every = 50  metrics = mean_reward() }}\n"
        ),
    ),
    "eval: costs far more than the training": (
        "RL0446 RL0447",
        train(
            after=f"eval dear {{ model = main  env = {OTHER}  tasks = 12  samples = 64  every = 1  metrics = pass_at(1) }}\n"
        ),
    ),
    "sweep: a parameter that nothing uses": (
        "RL0600 RL0114 RL0626",
        swept("of = main  over = { lr = [1e-4, 1e-3] }"),
    ),
    "sweep: one value twice": ("RL0603 RL0600", swept("of = main  over = { rate = [1e-3, 1e-3] }")),
    "sweep: one value": ("RL0601", swept("of = main  over = { rate = [1e-3] }")),
    "sweep: a range in a grid": ("RL0604", swept("of = main  over = { rate = log(1e-4, 1e-3) }")),
    "sweep: a metric that there is not": (
        "RL0602",
        swept("of = main  over = { rate = [1e-4, 1e-3] }  metric = heldout.accuracy"),
    ),
    "sweep: more trials than configurations": (
        "RL0611",
        swept("of = main  over = { rate = [1e-4, 1e-3] }  search = random(5)"),
    ),
    "sweep: a rate of 1 among the values": (
        "RL0403 RL0605",
        swept("of = main  over = { rate = [1e-3, 1.0] }"),
    ),
    "sweep: groups of one among the values": (
        "RL0605 RL0308",
        swept("of = main  over = { main.batch.group_size = [1, 4] }"),
    ),
    "expect: no stage of that name": (
        "RL0670 RL0671",
        train(after="expect mian.cost.high < $20\n"),
    ),
    "expect: dollars against tokens": ("RL0672", train(after="expect main.cost.high < 20\n")),
    "expect: always passes": ("RL0677", train(after="expect main.steps >= 1\n")),
    "expect: a share above 1": (
        "RL0676 RL0202",
        swept("of = main  over = { rate = [1e-4, 1e-3] }") + "expect heldout.pass_at_1 >= 110%\n",
    ),
    "expect: already false": ("RL0674", train(after="expect main.steps >= 30\n")),
    # Names, models, services.
    "model: retired or unknown": (
        "RL0107 RL0108",
        train('model old { base = "Qwen/Qwen2-7B" }\n', model="old"),
    ),
    "model: a rank of 7": (
        "RL0401 RL0202",
        train('model odd { base = "tiny"  lora_rank = 0 }\n', model="odd"),
    ),
    "model: nothing of it is trained": (
        "RL0402",
        train(
            'model odd { base = "tiny"  train_mlp = false  train_attn = false  train_unembed = false }\n',
            model="odd",
        ),
    ),
    "model: a renderer of another": (
        "RL0325",
        train('model odd { base = "tiny"  renderer = llama3 }\n', model="odd"),
    ),
    "one model in two stages": ("RL0412", train(block("train", "first", TRAIN))),
    "unused: an environment": ("RL0114", train(GUESS)),
    "a word of TRL: num_generations": ("RL0104 RL0105", train(num_generations="8")),
    "a word of verl: rollout_n": ("RL0105", train(batch="groups(4, rollout_n = 8)")),
    "a misspelt field": ("RL0104", train(advantge="grpo()")),
    "two graders of one name": (
        "RL0110 RL0111 RL0533 RL0109",
        rewarded('{ a = grade_with("rewards.py:right"), a = grade_with("rewards.py:brief") }'),
    ),
    "curriculum: of tasks that are not told apart": (
        "RL0443 RL0320",
        train(env='gem("game:GuessTheNumber-v0-easy") |> chat() |> curriculum()'),
    ),
    "curriculum: passes over all": (
        "RL0443 RL0202 RL0328",
        train(env=TRAIN["env"] + " |> curriculum(hopeless = 1, solved = 0, explore = 0)"),
    ),
    "failure: it pays": ("RL0442", train(on_error="penalise(2.0)")),
    "wrappers: tools after observations": (
        "RL0305",
        train(env='gem("rg:spell_backward") |> concat() |> python_tool()'),
    ),
    "mixture: a weight of 0": (
        "RL0408 RL0433 RL0202",
        train(GUESS, env="0 * guess + " + TRAIN["env"]),
    ),
}

HOSTED = 'model hosted { base = "Qwen/Qwen3-8B" }\n'
# Where a model can stand that is on another service than the one that is trained.
ON_TWO_SERVICES = {
    "judge": train(
        HOSTED, env='rows("words.jsonl") |> judged(rubric("rubric.md", model = hosted))'
    ),
    "ranking": train(
        HOSTED, env='rows("words.jsonl") |> compared(rubric("rubric.md", model = hosted))'
    ),
    "opponent": train(HOSTED, env=GAME + " |> play(against = hosted)", advantage="rae()"),
    "teacher": train(HOSTED, teacher="reverse_kl(hosted)", advantage=""),
    "teacher that is sampled": train(HOSTED, teacher="forward_kl(hosted)"),
    "reference": train(HOSTED, kl="reference(hosted, coef = 0.1)"),
    "reference of preferences": preference(HOSTED, reference="hosted"),
    "reward model": train(
        HOSTED + block("preference", "align", PREFERENCE | {"model": "hosted"}),
        env='rows("words.jsonl") |> judged(implicit_reward(align))',
    ),
    "author of replies": sft(
        HOSTED + GUESS, data="samples(hosted, env = guess, n = 8, keep = all)"
    ),
    "author of pairs": preference(
        HOSTED + GUESS, data="preferred(hosted, env = guess, n = 8, samples = 4)"
    ),
    "other stage": train(
        HOSTED, block("sft", "other", SFT | {"model": "hosted", "optimizer": "adam(1e-4)"})
    ),
    "evaluation": train(
        HOSTED,
        f"eval held {{ model = hosted  env = {OTHER}  tasks = 4  sampling = sample(max_tokens = 8) }}\n",
    ),
    "judge of an evaluation": train(
        HOSTED,
        'eval held { model = main  env = rows("sums.jsonl", prompt = "question") |> judged(rubric('
        '"rubric.md", model = hosted))  tasks = 4 }\n',
    ),
}
MISTAKES |= {f"services: {place}": ("RL0306", text) for place, text in ON_TWO_SERVICES.items()}


def graded(grader: str, **fields: str) -> str:
    return train(env=f'rows("words.jsonl", grader = {grader})', **fields)


RIGHT, BRIEF = 'grade_with("rewards.py:right")', 'grade_with("rewards.py:brief")'
PARTS = 'grade_with("rewards.py:parts")'
CLEAR = 'rubric("rubric.md", model = big)'
ALIGN = block("preference", "align", PREFERENCE | {"model": "big"})

# What looks like a mistake and is none: nothing is found.
SOUND: dict[str, str] = {
    "a penalty for length beside what is right": graded(
        f"{{ right = {RIGHT}, brief = 0.1 * {BRIEF} }}"
    ),
    "a component that is taken off": graded(f"{{ right = {RIGHT}, brief = -0.1 * {BRIEF} }}"),
    "weights of components": graded(
        'grade_with("rewards.py:parts", weights = { correct = 1, brief = 0.05 })'
    ),
    "a component that is only measured": graded(
        'grade_with("rewards.py:parts", weights = { correct = 1, brief = 0 })'
    ),
    "one that weighs ten times as much": graded(f"{{ right = 10 * {RIGHT}, brief = {BRIEF} }}"),
    "numbers": summed(),
    "numbers by a pattern": summed('regex("([0-9]+)[^0-9]*$")'),
    "numbers after a word": summed('regex("(?i)answer(?: is)?[: ]+([0-9]+)")'),
    "numbers that a pattern looks around": summed('regex("(?<=Answer: )[0-9]+")'),
    "numbers, and their form": summed("{ right = numeric, form = 0.1 * exact }"),
    "mathematics": summed("math"),
    "shaped by length": shaped("total - 0.001 * tokens"),
    "shaped by turns": shaped("total - 0.01 * turns"),
    "shaped by parts": shaped("correct + 0.1 * brief"),
    "shaped by the better part": shaped("max(correct, 0.5 * brief)"),
    "shaped where it is right": shaped("where(correct > 0.5, 1 + brief, 0)"),
    "shaped, and nothing for what is cut": shaped("where(truncated, 0, total)"),
    "shaped by a product": shaped("correct * (1 + brief)"),
    "shaped to between -1 and 1": shaped("2 * clip(total, 0, 1) - 1"),
    "shaped by a square": shaped("total * total"),
    "a cap": shaped("sum, high = 1"),
    "a floor": shaped("sum, low = 0"),
    "a judge": judged(CLEAR),
    "a judge asked in words of one's own": judged(
        'rubric("Is it clear?", model = big, prompt = "scored.j2")'
    ),
    "a large scale": judged('rubric("Is it clear?", model = big, scale = [0, 1_000_000])'),
    "shaped by a judge beside a grader": train(
        env=f'rows("words.jsonl", grader = {RIGHT}) |> judged({CLEAR}) |> reward(total + judge)'
    ),
    "a rubric that says its scale": judged(
        'rubric("Rate how clear it is, from 1 to 5.", model = big, scale = [1, 5])'
    ),
    "a judge of five levels": judged('rubric("rubric.md", model = big, scale = [1, 5])'),
    "a judge of a question": judged(
        'rubric("Is it {{ row.answer }}?", model = big, scale = [0, 1])'
    ),
    "a judge of few words": judged('rubric("Is it clear?", model = big, max_tokens = 64)'),
    "a warm judge": judged('rubric("rubric.md", model = big, temperature = 0.7)'),
    "a judge beside a grader": train(
        env=f'rows("words.jsonl", grader = {RIGHT}) |> judged(0.5 * {CLEAR})'
    ),
    "a judge beside a grader that is a metric": train(
        env=f'rows("words.jsonl", grader = 0 * {RIGHT}) |> judged({CLEAR})'
    ),
    "a ranking": judged(CLEAR, "compared"),
    "pairs by a function": train(
        env='rows("words.jsonl") |> compared(compare_with("rewards.py:shorter"), by = pairwise)'
    ).replace('model big { base = "tiny"  lora_rank = 16 }\n', ""),
    "a learnt reward": train(ALIGN, env='rows("words.jsonl") |> judged(implicit_reward(align))'),
    "REINFORCE": loss("token = -ratio * adv"),
    "of logprobs": loss("token = -logp * adv"),
    "PPO written out": loss(
        "token = -min(ratio * adv, clip(ratio, 0.8, 1.25) * adv)",
        batch="groups(4, group_size = 4, updates = 2)",
    ),
    "only good replies": loss("token = where(adv > 0, -logp * adv, 0)"),
    "less of bad replies": loss("token = -ratio * where(adv > 0, adv, 0.5 * adv)"),
    "a pull to the sampler": loss("d = logp - logq  token = -(logp * adv - 0.05 * d * d)"),
    "a sigmoid gate": loss("token = -4 * sigmoid(ratio - 1) * adv"),
    "a pull to a reference": loss(
        "d = ref - logp  token = -ratio * adv + 0.01 * (exp(d) - d - 1)",
        kl="reference(policy.base, coef = 0)",
    ),
    "of sequences": loss(
        "s = exp(mean(logp - logq))  sequence = -min(s * mean(adv), clip(s, 0.98, 1.02) * mean(adv))",
        batch="groups(4, group_size = 4, updates = 2)",
    ),
    "groups of one with a baseline over the batch": train(
        "advantage mine = returns() |> baseline(mean, over = batch)\n",
        batch="groups(8, group_size = 1)",
        advantage="mine",
    ),
    "streamed": train(overlap="streamed(minibatches = 2)"),
    "asynchronous, clipped": train(overlap="asynchronous(max_staleness = 2)", loss="ppo()"),
    "a cool sampler": train(sampling="sample(max_tokens = 32, temperature = 1.0, top_p = 1.0)"),
    "a text that ends a reply": train(sampling='sample(max_tokens = 32, stop = "\\n\\n")'),
    "a penalty on leaving the base": train(kl="reference(policy.base, coef = 0.01)"),
    "a penalty on leaving another model": train(kl="reference(big, coef = 0.01)"),
    "epochs": train(steps="", epochs="3"),
    "pairs": preference(),
    "pairs, some held out": preference(
        data='pairs("pairs.jsonl", split = first(75%))',
        heldout='pairs("pairs.jsonl", split = last(25%))',
        every="2",
    ),
    "labels": preference(data='labelled("rated.jsonl")', loss="kto()"),
    "smoothed": preference(loss="dpo(label_smoothing = 0.1)"),
    "without a reference": preference(loss="simpo()"),
    "against another model": preference(reference="big"),
    "pairs of its own": preference(
        GUESS, data="preferred(policy, env = guess, n = 8, samples = 4)"
    ),
    "a teacher": train(
        block("sft", "expert", SFT | {"model": "big"}), teacher="reverse_kl(expert)", advantage=""
    ),
    "a teacher beside the reward": train(
        block("sft", "expert", SFT | {"model": "big"}), teacher="reverse_kl(expert, coef = 0.1)"
    ),
    "chats": sft(),
    "chats, some held out": sft(
        data='chats("chats.jsonl", split = first(75%))',
        heldout='chats("chats.jsonl", split = last(25%))',
    ),
    "a longer stage after a short one, some held out": sft(
        block("sft", "first", SFT),
        model="first",
        data='chats("chats.jsonl", split = first(75%))',
        heldout='chats("chats.jsonl", split = last(25%))',
        every="10",
        steps="40",
    ),
    "prompts and replies": sft(data='rows("prompted.jsonl")'),
    "rows of few tokens": sft(data='rows("prompted.jsonl", max_tokens = 64)'),
    "long rows are left out": sft(data='rows("prompted.jsonl", max_tokens = 2, too_long = drop)'),
    "rows with a system message that is left out": sft(
        'env words = rows("systems.jsonl")\n',
        data="samples(big, env = words, n = 8, keep = all, without = system)",
    ),
    "demonstrations": sft(GUESS, data="demonstrations(guess, n = 32)"),
    "samples of another model": sft(GUESS, data="samples(big, env = guess, n = 16, keep = solved)"),
    "the best of four": sft(
        GUESS, data="samples(big, env = guess, n = 16, samples_per_task = 4, keep = best)"
    ),
    "a sweep": swept(
        "of = main  over = { rate = [1e-4, 3e-4] }  seeds = 2  metric = heldout.pass_at_1"
    ),
    "a random search": swept("of = main  over = { rate = log(1e-4, 3e-3) }  search = random(4)"),
    "one value, by several seeds": swept("of = main  over = { rate = [1e-3] }  seeds = 3"),
    "evaluated now and then": train(
        after=f"eval held {{ model = main  env = {OTHER}  tasks = 8  every = 10 }}\n"
    ),
    "many steps are expected": train(after="expect main.steps >= 2\n"),
    "what is expected": train(after="expect main.cost.high < $20\n"),
    "a curriculum": train(env=TRAIN["env"] + " |> curriculum(explore = 0.2)"),
    "an agent": train(
        env=f'agent("rewards.py:solve", tasks = rows("words.jsonl"), grader = {RIGHT})'
    ),
    "a game against itself": train(env=GAME + " |> play(against = self)", advantage="rae()"),
}


# Not found yet.
MISSED = set[str]()


def found_in(text: str, runs: bool = False) -> set[str]:
    """Return the codes that are found in a recipe; its functions are tried if it ``runs`` them."""
    compiled = compile_source(Source("recipe.rl", text), {}, reader=Reader(imports=runs))
    return {item.code for item in compiled.diagnostics}


def test_the_recipe_that_they_are_made_from_is_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FILES)
    first, *_ = MODELS.splitlines(keepends=True)
    for kind, fields in (("train", TRAIN), ("preference", PREFERENCE), ("sft", SFT)):
        assert found_in(first + block(kind, "main", fields)) == set()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FILES)
    codes, text = MISTAKES[mistake]
    found = found_in(text, runs=mistake.startswith(("reward", "agent"))) - (
        {"RL0114"} - {*codes.split()}
    )
    assert bool(found & {*codes.split()}) is (mistake not in MISSED), found


def test_they_are_many() -> None:
    assert len(MISTAKES) >= 150
    assert len(SOUND) >= 60
    assert MISTAKES.keys() >= MISSED


@pytest.mark.parametrize("recipe", SOUND)
def test_nothing_is_found_where_nothing_is_wrong(
    recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FILES)
    unused = {"RL0114"} if "big" not in SOUND[recipe].replace(MODELS, "") else set[str]()
    assert found_in(SOUND[recipe], runs="rewards.py:brief" in SOUND[recipe]) - unused == set()
