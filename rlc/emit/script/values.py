"""The values of a job that the pieces of its script read, with where a recipe decided them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from rlc.algo import LIKELIHOODS, torch_function, trained
from rlc.catalog import (
    aggregate_traits,
    loss_traits,
    model_price,
    preference_program,
    preference_traits,
    source_traits,
    with_role,
)
from rlc.emit.script.environments import is_summed
from rlc.emit.script.literals import named, value, written
from rlc.explanation import loss_formula
from rlc.plan import (
    FromData,
    ModelPlan,
    Plan,
    PolicyGradient,
    PreferenceLoss,
    Rollouts,
    Training,
)
from rlc.seeds import derive_seed

Values = dict[str, tuple[Any, str]]  # by their names, each with the text that assigns it
Found = tuple[str, Any, str]  # a name, its value, and what decided it, or a comment
_TOKENS, _EPISODES = "  # tokens", "  # episodes at a time"


def job_values(plan: Plan, stage: Training, own: Iterable[Found]) -> Values:
    """Return the values of the script of a stage, those that every one has and its own."""
    made: Values = {"HERE": ("", "HERE = Path(__file__).parent")}
    for name, plain, told in (*_values(plan, stage), *own):
        above, comment = (told, "") if told.startswith("# ") else ("", told)
        comment = comment if comment.startswith("  #") else _origin(plan, stage, comment)
        made[name] = plain, above + _assigned(name, plain, comment)
    return made


def _assigned(name: str, plain: Any, comment: str) -> str:
    return written(named(f"{name} = ", value(plain)), after=len(comment)) + comment


def _origin(plan: Plan, stage: Training, path: str) -> str:
    """What decided a value, as the end of a line."""
    told = plan.provenance.get(f"stages.{stage.name}.{path}", "") if path else ""
    return f"  # {told.replace(plan.recipe, os.path.basename(plan.recipe))}" if told else ""


def _values(plan: Plan, stage: Training) -> Iterator[Found]:
    """Yield names and values, with what decided each, or a comment."""
    model, adam, keep = stage.model, stage.optimizer, stage.save
    yield "SEED", plan.seed, ""
    yield "STAGE", stage.name, ""
    yield "STEPS", stage.steps, "steps"
    yield "MODEL", model.weights or _fresh(model, plan.seed), "model.base"
    yield "IS_SAVED", model.weights is not None, ""
    yield "WITH_OPTIMIZER", model.with_optimizer, ""
    yield "RENDERER", model.renderer, "model.renderer"
    own_prompts = (source_traits(env.source).prompts == "own" for env in stage.environments)
    yield "HAS_IMAGES", any(own_prompts), ""
    yield "CONTEXT", model.context, _TOKENS
    yield "LEARNING_RATE", adam.learning_rate, "optimizer.learning_rate"
    schedule = adam.schedule
    constant = schedule.kind == "constant"
    yield "SCHEDULE", "" if constant and not schedule.warmup else schedule.kind, ""
    yield "WARMUP", schedule.warmup, ""
    yield "FLOOR", 1.0 if constant else schedule.floor, ""
    settings = ("beta1", "beta2", "eps", "weight_decay", "grad_clip_norm")
    yield "ADAM", {name: getattr(adam, name) for name in settings}, ""
    yield "LIMITS", limits_of(stage), "budget"
    yield "SAVE_EVERY", keep.every or stage.steps, "save.every"
    yield "KEEP", keep.keep, ""
    yield "TTL", keep.ttl_seconds, "  # seconds"
    tracks = [{"project": one.args["project"], "name": one.args["run"]} for one in stage.track]
    chosen = [{k: v for k, v in one.items() if v is not None} for one in tracks]
    yield "WANDB", next(iter(chosen), None), "track"
    yield "IS_EXPECTED", any(one.after for one in plan.expectations), ""
    yield "IS_COMPARED", stage.heldout is not None, ""
    yield "COMPARE_EVERY", stage.every or stage.steps, "every"


def _fresh(model: ModelPlan, seed: int) -> dict[str, Any]:
    parts = ("train_mlp", "train_attn", "train_unembed")
    left_out = {name: False for name in parts if not getattr(model, name)}
    own = derive_seed(seed, "lora", model.name) % 2**31
    return {"base_model": model.base, "rank": model.lora_rank, "seed": own, **left_out}


def limits_of(stage: Training) -> dict[str, Any]:
    """Return the arguments of a budget; none if there are no limits."""
    budget, limits = stage.budget, dict[str, Any]()
    if budget.usd is not None:
        price = model_price(stage.model)
        assert price is not None
        kinds = {"prefill": "prefill", "cached": "cached", "sampled": "sample", "trained": "train"}
        prices = {kind: getattr(price, name) for kind, name in kinds.items()}
        limits |= {"usd": budget.usd, "prices": prices}
    limits |= {"tokens": budget.tokens} if budget.tokens else {}
    return limits | ({"seconds": budget.seconds} if budget.seconds else {})


def episode_values(stage: Training) -> Iterator[Found]:
    """Yield the values of a stage that plays episodes."""
    source, objective = stage.of(Rollouts), stage.of(PolicyGradient)
    batch, sampling, by_turns = source.batch, source.sampling, source.batch.kind == "turns"
    yield "GROUPS", 0 if by_turns else batch.count, "batch.count"
    yield "TURNS", batch.count if by_turns else 0, "batch.count"
    yield "PARALLEL", batch.parallel, _EPISODES
    yield "UPDATES", batch.updates, "batch.updates"
    yield "RETRIES", source.on_error.retries, "  # of an episode that fails"
    yield "MUST_NOT_FAIL", source.on_error.then == "stop", ""
    yield "IS_MIXTURE", len(source.envs) > 1, ""
    yield "RESAMPLE", batch.resample, ""
    yield "IS_CREDITED", not all(is_summed(env.reward) for env in source.envs), ""
    taught = [env.name for env in source.envs if with_role(env, "curriculum")]
    yield "CURRICULA", taught, ""
    yield "MAX_PROMPT_TOKENS", sampling.max_prompt_tokens, ""
    yield "MAX_EPISODE_TOKENS", sampling.max_episode_tokens, ""
    loss, traits, scheme = objective.loss, loss_traits(objective.loss), objective.advantage
    inputs = {}
    if loss.program is not None:
        inputs = torch_function(loss.program, "own_loss", traits.weighted).ranks
    yield "KEEPS", scheme.keep is not None, ""
    yield "REQUIRES", scheme.require is not None, ""
    yield "SCORERS", [*_scorers(objective)], ""
    told = "".join(f"# {line}\n" for line in loss_formula(loss))
    yield "LOSS", loss.name, told
    yield "LOSS_CONFIG", loss.config, ""
    yield "LOSS_INPUTS", inputs, told
    yield "OF_MEANS", loss.mean, ""
    yield "BY_SEQUENCE", loss.by_sequence, ""
    yield "READS_WEIGHT", traits.weighted, ""
    yield "READS_LOGPROBS", traits.sampler_logprobs, ""
    yield "READS_MASK", traits.per_sequence, ""
    yield "PULLS", bool(traits.pull or traits.weighted), ""
    yield "REACHES_PROMPT", traits.reaches_prompt, ""
    yield "IS_RECORDED", traits.recorded, ""
    asked = any(_scorers(objective)) or loss.program or loss.mean
    special = traits.reaches_prompt or traits.recorded or traits.per_sequence or traits.pull
    weighs = aggregate_traits(objective.aggregate.kind).over is not None
    several = by_turns or batch.updates > 1 or weighs
    yield "IS_PLAIN", not (asked or special or several), ""
    yield "AGGREGATE", objective.aggregate.kind, ""
    yield "LENGTH", objective.aggregate.length, ""


def _scorers(objective: PolicyGradient) -> Iterator[dict[str, Any]]:
    """Yield the models that score what was sampled."""
    kl = objective.kl
    if kl is not None:
        how = {"coef": kl.coef, "final": kl.final, "discount": kl.discount, "centred": True}
        yield {"env": None, "model": asked_model(kl.reference.model), **how}
    for one in objective.teacher:
        how = {"coef": one.coef, "final": None, "discount": one.discount, "centred": False}
        yield {"env": one.name, "model": asked_model(one.model.model), **how}


def asked_model(model: ModelPlan) -> dict[str, str]:
    """Return the arguments that name a model that is not trained."""
    return {"model_path": model.weights} if model.weights else {"base_model": model.base}


def data_values(stage: Training) -> Iterator[Found]:
    """Yield the values of a stage that learns from data."""
    yield "BATCH", stage.of(FromData).batch, "batch"


def pair_values(stage: Training) -> Iterator[Found]:
    """Yield the values of a stage that learns from pairs."""
    yield from data_values(stage)
    objective = stage.of(PreferenceLoss)
    program, reference = preference_program(objective.loss), objective.reference
    traits, slopes = preference_traits(objective.loss), trained(program)
    labelled = objective.labelled
    names = ["logp", "mismatched"] if labelled else ["chosen", "rejected"]
    yield "REFERENCE", {} if reference is None else asked_model(reference.model), ""
    yield "IS_LABELLED", labelled, ""
    yield "LIKELIHOOD", next((name for name in LIKELIHOODS if name in slopes), ""), ""
    yield "NAMES", names, ""
    yield "TRAINED", names[: 1 if labelled else 2], ""
    yield "OF_MEANS", traits.mean, ""
