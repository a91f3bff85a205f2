"""What a script cannot express, in the words of the recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rlc.algo.expressions.batch import needs_batch
from rlc.algo.scheme import Baseline, Clip, Returns, Scale
from rlc.catalog.builtins.training import DEFAULT_DEADLINES, DEFAULT_GIVE_UP
from rlc.catalog.builtins.wrappers import TEMPLATES
from rlc.catalog.environments import with_role
from rlc.catalog.index import aggregate_traits, loss_traits, source_traits, wrapper_traits
from rlc.plan.environments import MAX_TURNS, STEP_TIMEOUT, EnvPlan
from rlc.plan.graph import barriers
from rlc.plan.records import Plan, TrainPlan


def refusals(plan: Plan, target: str) -> list[str]:
    """Return a sentence for each thing that a target cannot express."""
    stage = plan.stages[0]
    if len(plan.stages) != 1:
        names = ", ".join(f"`{stage.name}`" for stage in plan.stages)
        return [f"a script trains one stage, and this job has {len(plan.stages)}: {names}"]
    if not isinstance(stage, TrainPlan):
        return [f"a script trains with reinforcement learning, and `{stage.name}` does not"]
    judged = (one.text for one in plan.expectations if one.after)
    return [
        *_common(stage),
        *TARGETS[target](stage),
        *(f"`expect {text}`: the script judges nothing at its end" for text in judged),
    ]


def _common(stage: TrainPlan) -> Iterator[str]:
    for env in stage.envs:
        yield from _environment(env)
    if stage.track:
        yield f"`track`: the script writes metrics to a file only, not to `{stage.track[0].name}`"
    if stage.on_error.then == "penalise":
        yield "`penalise()`: the script leaves failed rollouts out"
    if stage.batch.updates > 1 and stage.batch.kind == "turns":
        yield "`updates`: the script makes one update of a batch of turns"
    if stage.batch.resample:
        yield "`resample`: the script replaces no groups"
    if stage.teacher:
        yield "`teacher`: the script asks no other model"
    if loss_traits(stage.loss).per_sequence:
        yield f"`{stage.loss.name}()`: its sequence mask is not written by the script"
    if stage.loss.program is not None and needs_batch(stage.loss.program):
        yield f"`{stage.loss.name}`: the script computes nothing over a batch before its gradient"
    watched = {
        "kl_guard": stage.kl_guard is not None,
        "give_up": stage.give_up not in (None, DEFAULT_GIVE_UP),
        "deadlines": stage.deadlines != DEFAULT_DEADLINES,
        "concurrency": stage.sampling.concurrency is not None,
    }
    for name, asked in watched.items():
        if asked:
            yield f"`{name}`: the script watches nothing of the kind"
    if stage.save.best:
        yield "`best`: the script keeps the newest checkpoints only"


def _environment(env: EnvPlan) -> Iterator[str]:
    if not source_traits(env.source).scripted:
        yield f"`{env.name}`: the script plays environments of GEM, not of `{env.source}()`"
    for wrapper in env.wrappers:
        if not wrapper_traits(wrapper.name).scripted:
            yield f"`{env.name}`: `{wrapper.name}()` is not written by the script"
    for judging in env.judging:
        yield f"`{env.name}`: `{judging.name}()` is not written by the script"
    chat, template = with_role(env, "chat"), with_role(env, "template")
    if chat is not None and chat.args.get("system"):
        yield f"`{env.name}`: `system` is not written by the script"
    if template is not None and template.args["name"] not in TEMPLATES:
        yield f"`{env.name}`: a template from a file is not written by the script"
    if env.reward.shaped is not None:
        yield f"`{env.name}`: `reward()` shapes rewards, which the script does not"
    own = env.rollouts
    limits = (own.max_failures, own.timeout, own.turn_timeout, own.step_timeout, own.max_turns)
    if limits != (None, None, None, STEP_TIMEOUT, MAX_TURNS):
        yield (
            f"`{env.name}`: `rollouts()` limits failures, time or turns, which the script does not"
        )


def _tinker(stage: TrainPlan) -> Iterator[str]:
    if stage.overlap.kind != "synchronous":
        yield f"`{stage.overlap.kind}()`: the script samples, then trains; use the cookbook target"
    if stage.kl is not None:
        yield "`kl`: the script has no reference model; use the cookbook target"
    if stage.batch.updates > 1:
        yield "`updates`: the script makes one update of each batch"
    weighs = aggregate_traits(stage.aggregate.kind).over
    if weighs == "task":
        yield f"`{stage.aggregate.kind}()` is not written by the script"
    if loss_traits(stage.loss).pull is not None and weighs is not None:
        yield f"`{stage.loss.name}()` is written with `token_sum()` only"
    for env in stage.envs:
        own = env.reward
        if own.reduce not in ("turns", "sum") or own.nonterminal is not None:
            yield f"`{env.name}`: `reward()` reduces rewards in a way the script does not"
        if own.low is not None or own.high is not None:
            yield f"`{env.name}`: `reward()` limits rewards, which the script does not"
    if stage.sampling.max_prompt_tokens or stage.sampling.max_episode_tokens:
        yield "`sample()`: the script limits replies, not prompts or episodes"
    yield from _scheme(stage)


def _scheme(stage: TrainPlan) -> Iterator[str]:
    """Refuse steps that the script's own few functions do not compute."""
    scheme = stage.advantage
    known = scheme.returns == Returns(scheme.returns.unit, scheme.returns.gamma)
    known &= scheme.returns.unit in ("episode", "turn") and scheme.constant in ("keep", "drop")
    for step in scheme.steps:
        if isinstance(step, Baseline):
            same = Baseline(step.kind, step.over, step.weight, step.singleton)
            known &= step == same and step.kind in ("mean", "leave_one_out", "length_weighted")
            known &= step.singleton in ("zero", "raw")
        elif isinstance(step, Scale):
            same_scale = Scale(
                step.kind, step.over, step.weight, step.ddof, step.eps, step.eps_place
            )
            known &= step == same_scale and step.kind == "std"
            known &= step.eps_place in ("outside", "inside")
        else:
            known &= isinstance(step, Clip)
    if not known:
        yield f"the advantage scheme `{scheme.name}` has a step that the script does not compute"


def _cookbook(stage: TrainPlan) -> Iterator[str]:
    """Its loop has one advantage, one optimiser, and no seeds."""
    scheme, mean = stage.advantage, Baseline("mean", "group", "value", "zero")
    if scheme.returns != Returns("episode", 1.0) or scheme.steps != (mean,):
        yield (
            f"advantage `{scheme.name}`: the cookbook's loop has one scheme, the reward less the "
            "group's mean; `dr_grpo()` is it"
        )
    optimizer = stage.optimizer
    if (optimizer.beta1, optimizer.beta2, optimizer.eps) != (0.9, 0.95, 1e-8):
        yield "`adam()`: the cookbook's loop has beta1 = 0.9, beta2 = 0.95, eps = 1e-8 and no other"
    if optimizer.weight_decay or optimizer.grad_clip_norm:
        yield "`adam()`: the cookbook's loop has neither weight decay nor clipping"
    if optimizer.schedule.kind != "constant" or optimizer.schedule.warmup:
        yield f"`{optimizer.schedule.kind}()`: the cookbook's loop has a constant learning rate"
    if aggregate_traits(stage.aggregate.kind).over is not None:
        yield f"`{stage.aggregate.kind}()`: the cookbook's loop sums over tokens"
    if stage.overlap.kind == "streamed":
        for barrier in barriers(scheme, stage.loss, stage.aggregate, stage.kl, stage.batch):
            yield (
                f"`streamed()`: {barrier.why}, the whole batch, and the cookbook's loop takes each "
                "part by itself"
            )
    if stage.batch.kind != "groups":
        yield "`turns()`: the cookbook's loop collects groups"
    loss = loss_traits(stage.loss)
    # Its datums have no column for these, and name no sampled sequences (cookbook 0.5.8).
    named = stage.loss.program is None and not stage.loss.mean
    if not named or loss.per_sequence or loss.recorded or not loss.sampler_logprobs:
        yield f"`{stage.loss.name}()` is not a loss of the cookbook's loop"
    if stage.sampling.top_p != 1 or stage.sampling.top_k != -1:
        yield "`sample()`: the cookbook's loop samples from all tokens"
    if stage.sampling.max_prompt_tokens or stage.sampling.max_episode_tokens:
        yield "`sample()`: the cookbook's loop limits replies, not prompts or episodes"
    if stage.budget.usd is not None or stage.budget.tokens or stage.budget.seconds:
        yield "`budget`: the cookbook's loop does not meter what it spends (`--set …budget=none`)"
    if not (stage.model.train_mlp and stage.model.train_attn and stage.model.train_unembed):
        yield "the cookbook's loop adapts all layers"
    yield from _cookbook_envs(stage)


def _cookbook_envs(stage: TrainPlan) -> Iterator[str]:
    if len({env.rollouts.temperature for env in stage.envs}) > 1:
        yield "the cookbook's loop has one temperature for all environments"
    if len({env.rollouts.max_tokens for env in stage.envs}) > 1:
        yield "the cookbook's loop has one length of replies for all environments"
    for env in stage.envs:
        if with_role(env, "chat") is None:
            yield f"`{env.name}`: its prompts are made by the model's renderer only, with `chat()`"
        own = env.reward
        if own.reduce not in ("turns", "sum") or own.nonterminal is not None:
            yield f"`{env.name}`: `reward()`: the cookbook's loop adds up the rewards of the turns"
        if own.low is not None or own.high is not None:
            yield f"`{env.name}`: `reward()`: the cookbook's loop does not limit rewards"


TARGETS: Mapping[str, Callable[[TrainPlan], Iterator[str]]] = {
    "tinker": _tinker,
    "cookbook": _cookbook,
}
