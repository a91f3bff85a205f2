"""Tokens and dollars before anything runs."""

from __future__ import annotations

import json
from math import inf

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from plan_recipes import EVERYTHING, RECIPE_TEXTS, first_train, planned, recipe, stages_of
from stage_parts import flat

from rlc.catalog.facts import find_model
from rlc.compile.recipe import compile_source
from rlc.compile.variants import on_service, rehearse
from rlc.explanation.full import explain_dict, explain_markdown, explain_text
from rlc.explanation.layout import NO_BOUND, UNKNOWN, dollars
from rlc.explanation.sizes import price
from rlc.explanation.summary import summary_text
from rlc.lang.diagnostics import Diagnostics, Severity
from rlc.lang.source import Source
from rlc.plan.parts import BatchPlan, SavePlan
from rlc.plan.stages import Evaluation, Training
from rlc.pricing import tokens
from rlc.pricing.assumptions import assumptions
from rlc.pricing.cost import (
    KINDS,
    Money,
    bill_of,
    kept_checkpoints,
    lora_parameters,
    plan_cost,
    stage_cost,
    total_cost,
)
from rlc.pricing.shapes import LEVELS, EpisodeShape, History, rollout_shape
from rlc.pricing.tokens import (
    TRIES,
    Tokens,
    group_tokens,
    most_turn_tokens,
    sampling_tokens,
    turn_tokens,
)

WORKED = """\
model policy {{ base = "{base}" }}
env one = gem("rg:chain_sum") |> template(no)
train main {{
  model = policy  env = one  batch = groups(64, group_size = 16)  sampling = sample(2048)
  advantage = grpo()  loss = importance_sampling()  optimizer = adam(1e-5)  steps = 100
}}
"""


def test_the_worked_example_of_a_single_turn_step() -> None:
    """Qwen3-8B, 64 groups of 16, prompt 150, response 2048: $2.2786 a step at most."""
    episode = EpisodeShape(150, 0, 1, 2048, "latest")
    tokens = group_tokens((episode,), 64, 16, cached=False)
    assert tokens == Tokens(153_600, 0, 2_097_152, train=2_250_752, reference=2_250_752)
    qwen = find_model("Qwen/Qwen3-8B")
    assert qwen is not None
    assert (qwen.price.sample, qwen.price.train, qwen.price.prefill) == (0.6, 0.44, 0.195)
    assert tokens.sample * 0.6 / 1e6 == pytest.approx(1.2583, abs=5e-5)
    assert tokens.train * 0.44 / 1e6 == pytest.approx(0.9903, abs=5e-5)
    step = (tokens.sample * 0.6 + tokens.train * 0.44 + tokens.prefill * 0.195) / 1e6
    assert step == pytest.approx(2.2786, abs=5e-5)


def test_the_worked_example_from_a_recipe() -> None:
    """The same through the whole compiler; only the prompt is a measured one."""
    text = WORKED.format(base="Qwen/Qwen3-8B").replace(
        "steps = 100", "steps = 100  on_error = drop"
    )
    stage = first_train(planned(text))
    cost = stage_cost(stage)
    (episode,) = rollout_shape(flat(stage).envs[0], stage.model, flat(stage).sampling, "high")
    extra = (episode.prompt - 150) * 1_024 * (0.195 + 0.44) / 1e6
    assert cost.step["high"].usd - extra == pytest.approx(2.2786, abs=5e-5)
    assert cost.bill["high"]["sample"].usd == pytest.approx(125.83, abs=5e-3)


def test_rollouts_that_fail_are_played_again_at_most() -> None:
    """As often as the recipe allows, once by default; none of them is trained on."""
    text = WORKED.format(base="Qwen/Qwen3-8B")
    once = stage_cost(
        first_train(planned(text.replace("steps = 100", "steps = 100  on_error = drop")))
    )
    for more, tries in ("", 2), ("  on_error = retry(2) then drop", 3):
        cost = stage_cost(first_train(planned(text.replace("steps = 100", f"steps = 100{more}"))))
        for level in LEVELS:
            was, tokens = once.step_tokens[level], cost.step_tokens[level]
            times = tries if level == "high" else 1
            assert (tokens.sample, tokens.prefill) == (times * was.sample, times * was.prefill)
            assert (tokens.train, tokens.cached) == (was.train, was.cached)


def test_a_group_shares_its_prompt() -> None:
    tokens = group_tokens((EpisodeShape(150, 0, 1, 2048, "latest"),), 64, 16, cached=True)
    assert (tokens.prefill, tokens.cached) == (64 * 150, 64 * 15 * 150)


P, O, T, R = 100, 20, 5, 30  # noqa: E741  (prompt, observation, turns, reply)
MERGED = P + T * R + 4 * O


@pytest.mark.parametrize(
    ("history", "extends", "prefill", "fresh", "train"),
    [
        ("all", True, T * P + 10 * (R + O), P + 4 * (R + O), MERGED),
        ("all", False, T * P + 10 * (R + O), P + 4 * (R + O), T * P + 10 * (R + O) + T * R),
        ("observations", False, T * P + 10 * O, P + 4 * O, T * P + 10 * O + T * R),
        ("latest", False, P + 4 * O, P + 4 * O, P + 4 * O + T * R),
    ],
)
def test_the_tokens_of_an_episode(
    history: History, extends: bool, prefill: int, fresh: int, train: int
) -> None:
    """One sequence where each turn extends the last, else one a turn: quadratic in the turns."""
    shape = (EpisodeShape(P, O, T, R, history, extends),)
    assert group_tokens(shape, 1, 1, cached=False) == Tokens(prefill, 0, T * R, train, train)
    cached = Tokens(fresh, prefill - fresh, T * R, train, train)
    assert group_tokens(shape, 1, 1, cached=True) == cached


def test_turns_are_played_in_waves_and_only_the_chosen_are_trained_on() -> None:
    batch = BatchPlan("turns", 100, 1, 16, 1)
    shape = (EpisodeShape(P, O, T, R, "observations"),)
    tokens = turn_tokens(shape, batch)
    assert tokens.sample == 2 * 16 * T * R  # two waves of 16 × 5 turns
    assert tokens.train == pytest.approx(100 * (T * P + 10 * O + T * R) / T)
    most = most_turn_tokens([(shape, 1)], batch)
    assert most.sample == pytest.approx((99 + 99 + 16 * T) * R)


SHAPES = st.builds(
    EpisodeShape,
    prompt=st.integers(1, 500),
    observation=st.integers(0, 200),
    turns=st.integers(1, 8),
    reply=st.integers(1, 100),
    history=st.sampled_from(["all", "observations", "latest"]),
    extends=st.booleans(),
)


@given(st.lists(SHAPES, min_size=1, max_size=3), st.integers(1, 60), st.integers(1, 8), st.data())
def test_no_batch_of_turns_takes_more_than_high(
    shapes: list[EpisodeShape], count: int, parallel: int, data: st.DataObject
) -> None:
    """Waves of episodes of any environment and length, any of which fail and are played again, and
    any choice of turns to train on."""
    full = [evolve(one, extends=one.extends and one.history == "all") for one in shapes]
    tries = data.draw(st.lists(st.integers(1, 3), min_size=len(full), max_size=len(full)))
    batch = BatchPlan("turns", count, 1, parallel, 1)
    kept, lost = list[EpisodeShape](), list[EpisodeShape]()

    def turns(episodes: list[EpisodeShape]) -> int:
        return sum(episode.turns for episode in episodes)

    while turns(kept) < count and turns(lost) < batch.most_lost:
        for _ in range(parallel):
            which = data.draw(st.integers(0, len(full) - 1))
            played = [
                evolve(full[which], turns=data.draw(st.integers(1, full[which].turns)))
                for _ in range(data.draw(st.integers(1, tries[which])))
            ]
            last = kept if data.draw(st.booleans()) else lost
            last.append(played.pop())
            lost += played
    sequences = [
        (i, episode.datum_tokens())
        if episode.one_datum
        else ((i, t), episode.prompt_at(t) + episode.reply)
        for i, episode in enumerate(kept)
        for t in range(episode.turns)
    ]
    trained = dict(data.draw(st.permutations(sequences))[:count])
    shown = [((one,), number) for one, number in zip(full, tries, strict=True)]
    most = most_turn_tokens(shown, batch)
    assert sum(episode.prompts() for episode in kept + lost) <= most.prefill + 1e-6
    assert sum(episode.sampled() for episode in kept + lost) <= most.sample + 1e-6
    assert sum(episode.datum_tokens() for episode in kept) <= most.reference + 1e-6
    assert sum(trained.values()) <= most.train + 1e-6


@given(
    st.builds(
        EpisodeShape,
        prompt=st.integers(1, 5000),
        observation=st.integers(0, 500),
        turns=st.integers(1, 30),
        reply=st.integers(1, 4000),
        history=st.sampled_from(["all", "observations", "latest"]),
        extends=st.booleans(),
        copies=st.integers(1, 3),
        shared=st.booleans(),
    ),
    st.integers(1, 64),
    st.integers(1, 16),
)
def test_a_cache_moves_tokens_and_loses_none(episode: EpisodeShape, groups: int, size: int) -> None:
    with_cache = group_tokens((episode,), groups, size, cached=True)
    without = group_tokens((episode,), groups, size, cached=False)
    assert with_cache.prefill + with_cache.cached == pytest.approx(without.prefill)
    assert (with_cache.sample, with_cache.train) == (without.sample, without.train)
    assert 0 < with_cache.prefill <= without.prefill


def test_a_judge_reads_what_the_solvers_wrote() -> None:
    (stage,) = stages_of(
        planned(
            'model m { base = "Qwen/Qwen3-8B" }\n'
            "env arena = problems(countdown, grader = countdown) |> solver_judge(solvers = 3)\n"
            "train main { model = m env = arena batch = groups(2, group_size = 4)\n"
            "  sampling = sample(100)\n"
            "  advantage = grpo() loss = cispo() optimizer = adam(1e-5) steps = 1 }"
        ),
        Training,
    )
    solver, judge = rollout_shape(flat(stage).envs[0], stage.model, flat(stage).sampling, "high")
    assert (solver.copies, solver.reply, judge.copies) == (3, 100, 1)
    assert judge.prompt > solver.prompt + 3 * 100
    high = stage_cost(stage).step_tokens["high"]
    assert high.sample == 2 * (2 * 4 * (3 + 1) * 100)
    assert high.train == 2 * 4 * (3 * (solver.prompt + 100) + judge.prompt + 100)


LIMITED = """\
model m { base = "Qwen/Qwen3-8B" renderer = qwen3_instruct }
env long = gem("game:Game2048-v0-easy", max_turns = 1_000_000_000) |> chat()
train main { model = m env = long batch = groups(1, group_size = 1) advantage = reinforce()
  loss = cispo() optimizer = adam(1e-5) steps = 1
  sampling = sample(1_000LIMIT) }
"""


@pytest.mark.parametrize(
    ("limit", "most"),
    [
        ("", 32_768),
        (", max_episode_tokens = 8_000", 8_000),
        (", max_prompt_tokens = 4_000", 5_000),
    ],
)
def test_no_episode_outgrows_its_limits(limit: str, most: int) -> None:
    """A billion turns are allowed; the context, or the sampling, ends the episode before."""
    (stage,) = stages_of(planned(LIMITED.replace("LIMIT", limit)), Training)
    (episode,) = rollout_shape(flat(stage).envs[0], stage.model, flat(stage).sampling, "high")
    assert most - 2_000 < episode.datum_tokens() <= most
    assert any(f"room for {episode.growing} of" in sentence for sentence in assumptions(stage))


def test_a_limit_is_covered_by_short_replies_too() -> None:
    """Many short turns read more than the few long ones that fit, and sample less."""
    (stage,) = stages_of(planned(LIMITED.replace("LIMIT", "")), Training)
    (most,) = rollout_shape(flat(stage).envs[0], stage.model, flat(stage).sampling, "high")
    assert most.growing < most.turns
    long, short = evolve(most, turns=most.growing), evolve(most, reply=1)
    assert long.sampled() > short.sampled()
    assert long.prompts() < short.prompts()
    high = stage_cost(stage).step_tokens["high"]
    assert high.sample >= long.sampled()
    assert high.prefill >= short.prompts()


@given(st.data())
def test_no_episode_takes_more_than_high(data: st.DataObject) -> None:
    """Replies and observations of any length, in a chat that keeps thoughts, or leaves them out."""
    most, room = data.draw(st.integers(1, 50)), data.draw(st.integers(60, 400))
    full = EpisodeShape(
        prompt=data.draw(st.integers(1, 60)),
        observation=data.draw(st.integers(0, 80)),
        turns=data.draw(st.integers(1, 40)),
        reply=most,
        history="all",
        extends=data.draw(st.booleans()),
        room=room,
    )
    prompts, replies = list[int](), list[int]()
    prompt = data.draw(st.integers(1, int(full.prompt)))
    while prompt <= room and len(prompts) < full.turns:
        prompts.append(prompt)
        replies.append(data.draw(st.integers(1, most)))
        kept = replies[-1] if full.extends else data.draw(st.integers(0, replies[-1]))
        prompt += kept + data.draw(st.integers(0, int(full.observation)))
    assert sum(prompts) <= full.prompts()
    assert sum(replies) <= full.sampled()
    one = prompts[-1] + replies[-1]
    assert (one if full.extends else sum(prompts) + sum(replies)) <= full.datum_tokens()


ENDLESS = """\
model m { base = "Qwen/Qwen3-8B" }
env walk = python("recipes/letters.py:make") |> rollouts(LIMIT)
train main { model = m env = walk batch = groups(4, group_size = 4) advantage = grpo()
  loss = cispo() optimizer = adam(1e-5) steps = 10 sampling = sample(1_024) }
"""


def test_more_turns_cost_more_and_without_a_limit_there_is_no_bound() -> None:
    """The default, written or not, is no limit: it only ends what would never end."""
    written = [f"max_turns = {limit}" for limit in (20, 50, 200, 500, 999, 1_000)]
    highest = list[float]()
    for limit in (*written, "group_size = 4"):
        text = ENDLESS.replace("LIMIT", limit)
        (cost,) = plan_cost(planned(text))
        low, expected, high = (cost.total(level).usd for level in LEVELS)
        assert low <= expected <= high
        held = compile_source(Source("test.rl", f"{text}expect main.cost.high < $40"))
        assert (held.plan is None) is (high >= 40)
        highest.append(high)
    assert highest == sorted(highest)
    assert 40 < highest[-3] < highest[-2] == highest[-1] == inf


def test_what_has_no_bound_is_nowhere_a_number() -> None:
    """A limit of tokens is none, as turns read them again; what is free costs nothing anyway."""
    text = ENDLESS.replace("LIMIT", "group_size = 4")
    plan, none = planned(text), Diagnostics()
    (cost,) = plan_cost(plan)
    assert price([cost]).endswith(f" to {NO_BOUND}")
    for shown in (summary_text(plan, none), explain_text(plan, none), explain_markdown(plan, "")):
        assert NO_BOUND in shown
    assert "`rollouts(max_turns = …)`" in summary_text(plan, none)
    data = json.loads(json.dumps(explain_dict(plan, "test.rl", none)["cost"], allow_nan=False))
    assert (data["total"]["high"], data["at_least"]["high"]) == (None, None)
    assert data["stages"][0]["step"]["high"]["tokens"]["prefill"] is None
    assert data["total"]["expected"] == cost.total("expected").usd
    for of in ("main.cost.high < $40", "job.tokens.high > 1", "main.cost.low < job.cost.high"):
        (found,) = compile_source(Source("test.rl", f"{text}expect {of}")).diagnostics
        assert (found.code, found.severity) == ("RL0674", Severity.ERROR)
        assert "max_turns = " in (found.help or "")
    (limited,) = plan_cost(planned(text.replace("1_024", "1_024, max_episode_tokens = 8_000")))
    assert limited.total("high").usd == inf
    (free,) = plan_cost(planned(text.replace("Qwen/Qwen3-8B", "tiny")))
    assert free.free
    assert free.tokens("high") == inf


def test_each_environment_has_its_own_group_and_length() -> None:
    text = (
        'model m { base = "Qwen/Qwen3-8B" }\n'
        'env a = gem("rg:chain_sum") |> template(no) |> rollouts(group_size = 2, max_tokens = 10)\n'
        'env b = gem("rg:spell_backward") |> template(no)\n'
        "train main { model = m env = 3 * a + 1 * b batch = groups(4, group_size = 8)\n"
        "  sampling = sample(100) advantage = grpo() loss = cispo() optimizer = adam(1e-5)\n"
        "  steps = 1 }"
    )
    (stage,) = planned(text).stages
    assert stage_cost(stage).step_tokens["high"].sample == 2 * (3 * 2 * 10 + 1 * 8 * 100)


def test_a_reference_reads_every_sequence_once() -> None:
    base = WORKED.format(base="Qwen/Qwen3-8B")
    plain = stage_cost(planned(base).stages[0])
    with_kl = stage_cost(planned(base, "main.kl=reference(policy.base, coef = 0.01)").stages[0])
    assert plain.bill["high"]["reference"] == Money()
    tokens = with_kl.step_tokens["high"]
    assert tokens.reference == tokens.train
    assert with_kl.bill["high"]["reference"].usd == pytest.approx(100 * tokens.train * 0.195e-6)


WARM = """\
model m {{ base = "Qwen/Qwen3-8B" }}
env sums = gem("rg:spell_backward") |> template(no)
sft warmup {{ model = m data = demonstrations(sums, n = 100, policy = {policy})
  batch = 10 steps = 20 optimizer = adam(1e-4) }}
train main {{ model = warmup env = sums batch = groups(4) sampling = sample(64)
  advantage = grpo() loss = cispo() optimizer = adam(1e-5) steps = 10 }}
eval held {{ model = main env = sums tasks = 8 samples = 4 every = {every} first = {first} }}
"""


def warm(policy: str = "oracle", every: str = "none", first: str = "false") -> str:
    return WARM.format(policy=policy, every=every, first=first)


def test_a_custom_loss_reads_every_sequence_once_more_at_worst() -> None:
    """A service without custom losses leaves them to its client, after a forward pass."""
    own = WORKED.replace("importance_sampling()", "own")
    own = "loss own {{ token = -min(ratio, 3) * adv }}\n" + own
    builtin, custom = (
        first_train(planned(text.format(base="Qwen/Qwen3-8B"))) for text in (WORKED, own)
    )
    costs = [stage_cost(stage) for stage in (builtin, custom)]
    for level in LEVELS:
        without, tokens = (cost.step_tokens[level] for cost in costs)
        more = without.train if level == "high" else 0.0
        assert tokens == evolve(without, prefill=without.prefill + more)
    assert any("high: it has no custom losses" in line for line in assumptions(custom))
    here = evolve(custom, model=evolve(custom.model, service="local"))
    assert stage_cost(here).step_tokens == costs[0].step_tokens


def test_supervised_training_is_billed_for_its_sequences_alone() -> None:
    (stage,) = (one for one in planned(warm()).trainings if one.data)
    cost = stage_cost(stage)
    assert cost.times == 20
    step = cost.step_tokens["high"]
    assert step.train > 0
    assert (step.prefill, step.sample) == (0, 0)
    assert cost.tokens_before["high"] == Tokens()


def test_demonstrations_of_the_model_itself_are_sampled_first() -> None:
    from rlc.runtime.stages import samples
    from rlc.runtime.stages.samples import MOST_TRIES

    (stage,) = (one for one in planned(warm(policy="model")).trainings if one.data)
    cost = stage_cost(stage)
    assert cost.tokens_before["low"].sample == 100 * round(1_024 * 0.1)
    last = 100  # that are played side by side
    assert cost.tokens_before["high"].sample == 2 * (100 * MOST_TRIES + last) * 1_024
    assert TRIES["high"] == MOST_TRIES  # what the runtime gives up after
    assert (tokens.WAVE, tokens.LARGE_WAVE) == (samples.WAVE, samples.LARGE_WAVE)
    assert cost.bill["high"]["sample"].usd > 0


@pytest.mark.parametrize(
    ("every", "first", "times"),
    [("none", "false", 1), ("none", "true", 2), ("3", "false", 4), ("5", "true", 3)],
)
def test_an_evaluation_is_paid_for_as_often_as_it_is_done(
    every: str, first: str, times: int
) -> None:
    """Of ten steps: after 3, 6, 9 and 10; before the first, after 5 and 10."""
    plan = planned(warm(every=every, first=first))
    cost = next(cost for cost in plan_cost(plan) if cost.kind == "eval")
    (stage,) = stages_of(plan, Evaluation)
    assert cost.times == times
    one = cost.step_tokens["high"]
    assert one.sample == 2 * 8 * 4 * 64
    assert one.train == 0
    assert bill_of(plan_cost(plan), "high")["evaluation"] == cost.total("high")
    assert stage_cost(stage).times == 1  # alone there is no stage that it follows


def test_the_bill_adds_up() -> None:
    costs = plan_cost(planned(warm("model", "3", "true")))
    for level in LEVELS:
        bill = bill_of(costs, level)
        assert tuple(bill) == KINDS
        assert sum(money.usd for money in bill.values()) == pytest.approx(
            total_cost(costs, level).usd
        )
    totals = [total_cost(costs, level).usd for level in LEVELS]
    assert totals == sorted(totals)


def test_checkpoints_cost_for_as_long_as_they_are_kept() -> None:
    text = WORKED.format(base="Qwen/Qwen3-8B")
    (stage,) = planned(text, "main.save=every(10, keep = 3, ttl = 15d)").stages
    parameters = lora_parameters(stage.model)
    assert parameters == 32 * (1_769_472 + 958_464 + 156_032)
    usd = 3 * parameters * 12 / 1e9 * 0.10 * 15 / 30
    assert stage_cost(stage).bill["high"]["storage"].usd == pytest.approx(usd)
    (halved,) = planned(text, "policy.train_mlp=false").stages
    assert lora_parameters(halved.model) == 32 * (958_464 + 156_032)


@pytest.mark.parametrize(
    ("every", "keep", "best", "steps", "kept"),
    [
        (None, 3, False, 100, 1),
        (10, 3, False, 100, 3),
        (10, 3, True, 100, 4),
        (60, 3, False, 100, 2),
    ],
)
def test_so_many_checkpoints_are_left(
    every: int | None, keep: int, best: bool, steps: int, kept: int
) -> None:
    assert kept_checkpoints(SavePlan(every, keep, None, best), steps) == kept


def test_the_embedded_engine_is_free() -> None:
    costs = plan_cost(planned(recipe("quickstart")))
    assert all(cost.free for cost in costs)
    assert [total_cost(costs, level) for level in LEVELS] == [Money()] * 3
    assert costs[0].step_tokens["high"].sample > 0


def test_a_server_of_ones_own_is_free() -> None:
    """The tiny model, or a folder, is not on hosted Tinker: whoever serves it sends no bill."""
    cost = stage_cost(on_service(planned(recipe("quickstart")), "tinker").stages[0])
    assert cost.free
    assert cost.total("high") == Money()


PAID_JUDGE = """\
model policy { base = "tiny" }
judge taste = rubric("Is it good?", model = endpoint("http://127.0.0.1:1/v1", model = "big"PRICES))
env essays = rows("recipes/data/essay_prompts.jsonl") |> judged(taste)
train main { model = policy env = essays batch = groups(4, group_size = 4) advantage = grpo()
  loss = cispo() optimizer = adam(1e-3) steps = 10 sampling = sample(64) }
"""


@pytest.mark.parametrize("prices", [", prompt_price = $1, reply_price = $10", ""])
def test_what_asks_a_paid_judge_is_not_free(prices: str) -> None:
    """The model itself is trained on this machine. A price that is not known is none of 0."""
    plan = planned(PAID_JUDGE.replace("PRICES", prices))
    (cost,) = plan_cost(plan)
    assert not cost.free
    shown = dollars(cost.total("expected"))
    assert shown.startswith("$" if prices else UNKNOWN)
    texts = (
        summary_text(plan, Diagnostics()),
        explain_text(plan, Diagnostics()),
        explain_markdown(plan, ""),
        price([cost]),
    )
    for text in texts:
        assert "free:" not in text
        assert shown.removeprefix("$") in text
    data = explain_dict(plan, "test.rl", Diagnostics())["cost"]
    assert data["stages"][0]["free"] is False
    assert data["total"]["expected"] == cost.total("expected").total


def test_an_unknown_price_makes_a_lower_bound_and_never_nothing() -> None:
    """The train price of this variant is not known."""
    (stage,) = planned(WORKED.format(base="openai/gpt-oss-120b:peft:131072")).stages
    cost = stage_cost(stage)
    assert cost.bill["high"]["train"] == Money(0.0, complete=False)
    assert cost.total("high").total is None
    assert cost.total("high").usd >= cost.bill["high"]["sample"].usd > 0
    assert any("train price" in sentence for sentence in assumptions(stage))


def test_a_model_that_nobody_priced_has_an_unknown_price() -> None:
    plan = planned(WORKED.format(base="Qwen/Qwen3-8B"))
    (stage,) = stages_of(plan, Training)
    foreign = evolve(stage, model=evolve(stage.model, base="somebody/else"))
    cost = stage_cost(foreign)
    assert cost.total("expected").total is None
    assert cost.bill["expected"]["storage"] == Money(0.0, complete=False)
    assert any("prices of somebody/else are unknown" in s for s in assumptions(foreign))


@pytest.mark.parametrize("text", [EVERYTHING, *RECIPE_TEXTS.values()])
def test_low_is_below_expected_is_below_high(text: str) -> None:
    plan = planned(text)
    for cost in (*plan_cost(plan), *plan_cost(rehearse(plan))):
        for numbers in (
            [cost.total(level).usd for level in LEVELS],
            [cost.tokens(level) for level in LEVELS],
        ):
            assert numbers == sorted(numbers), cost.stage


def test_more_updates_of_a_batch_take_no_more_tokens() -> None:
    text = WORKED.format(base="Qwen/Qwen3-8B")
    one = stage_cost(planned(text).stages[0]).step_tokens
    four = stage_cost(planned(text, "main.batch.updates=4").stages[0]).step_tokens
    assert one == four


def test_playing_alone_trains_on_nothing() -> None:
    tokens = sampling_tokens((EpisodeShape(P, O, T, R, "all", True),), 3, 2, cached=True)
    assert tokens.train == 0
    assert tokens.sample == 3 * 2 * T * R


SAMPLED = """\
model m { base = "tiny" }
env spell = gem("rg:spell_backward") |> chat()
sft learn { model = m batch = 4 steps = 2 optimizer = adam(1e-3)
  data = samples(m, env = spell, n = 8, samples_per_task = 4, tries = 6, KEEP) }
"""


@pytest.mark.parametrize(
    ("keep", "episodes"),
    [
        ("keep = all", 8),  # two tasks, every episode of which is kept
        ("keep = best", 32),
        ("keep = all, per_task = 1", 6 * 8 + 8 * 4),  # a task that was played before gives none
        ("keep = solved", 6 * 8 + 2 * 4),
    ],
)
def test_so_many_episodes_are_played_for_samples(keep: str, episodes: int) -> None:
    (stage,) = planned(SAMPLED.replace("KEEP", keep)).stages
    (played,) = tokens.played_data(stage, "high")
    assert played.tasks * played.size == episodes
