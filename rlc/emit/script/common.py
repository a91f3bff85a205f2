"""What the programs of all kinds of stages have in common."""

from __future__ import annotations

from collections.abc import Iterator

from rlc.catalog import model_price
from rlc.emit.script.literals import call, literal
from rlc.plan import Plan, Training

_FIELDS = ("base_model", "rank", "train_mlp", "train_attn", "train_unembed")


def origin(plan: Plan, stage: Training, path: str) -> str:
    """What decided a value, as the end of a line."""
    told = plan.provenance.get(f"stages.{stage.name}.{path}", "")
    return f"  # {told}" if told else ""


def constants(plan: Plan, stage: Training) -> Iterator[str]:
    """The values that every program has."""
    model, adam, save = stage.model, stage.optimizer, stage.save
    values = (model.base, model.lora_rank, model.train_mlp, model.train_attn, model.train_unembed)
    yield f"SEED = {literal(plan.seed)}"
    yield f"STAGE = {literal(stage.name)}"
    yield f"STEPS = {literal(stage.steps)}{origin(plan, stage, 'steps')}"
    yield ""
    yield f"# The model{origin(plan, stage, 'model.base').replace('  #', ':')}"
    yield f"MODEL = {literal(dict(zip(_FIELDS, values, strict=True)))}"
    if model.weights:
        yield f"START = {literal(model.weights)}{origin(plan, stage, 'model.weights')}"
    yield f"CONTEXT = {literal(model.context)}  # tokens"
    yield ""
    yield f"# The optimiser{origin(plan, stage, 'optimizer.learning_rate').replace('  #', ':')}"
    yield f"LEARNING_RATE = {literal(adam.learning_rate)}"
    names = ("beta1", "beta2", "eps", "weight_decay", "grad_clip_norm")
    yield f"ADAM = {literal({name: getattr(adam, name) for name in names})}"
    yield ""
    yield f"# Checkpoints{origin(plan, stage, 'save.every').replace('  #', ':')}"
    if save.every is not None:
        yield f"SAVE_EVERY = {literal(save.every)}  # steps"
    yield f"KEEP = {literal(save.keep)}"
    yield f"TTL_SECONDS = {literal(save.ttl_seconds)}"
    yield ""


def opened(stage: Training, script: str) -> Iterator[str]:
    """Lines that open the training client."""
    metadata = f'user_metadata={{"script": {literal(script)}}}'
    yield f"    service = tinker.ServiceClient({metadata})"
    if stage.model.weights:
        load = "_with_optimizer" if stage.model.with_optimizer else ""
        yield f"    training = await service.create_training_client_from_state{load}(START)"
    else:
        yield f'    seed = stream(SEED, "lora", {literal(stage.model.name)}) % 2**31'
        yield ("    training = await service.create_lora_training_client(**MODEL, seed=seed)")
    yield "    tokenizer = training.get_tokenizer()"


def kept(stage: Training) -> Iterator[str]:
    """Lines that prepare what is kept and counted."""
    budget = stage.budget
    arguments = []
    if budget.usd is not None:
        price = model_price(stage.model)
        assert price is not None
        prices = ", ".join(map(repr, (price.prefill, price.cached, price.sample, price.train)))
        arguments += [f"usd={budget.usd!r}", f"prices=({prices})"]
    if budget.tokens:
        arguments.append(f"tokens={literal(budget.tokens)}")
    if budget.seconds:
        arguments.append(f"seconds={literal(budget.seconds)}")
    yield "    usage = Usage()"
    if arguments:
        yield call("budget = Budget", arguments, 4)
    yield "    checkpoints = Checkpoints(service, training, STAGE, KEEP, TTL_SECONDS)"


def updated(stage: Training, indent: int) -> Iterator[str]:
    """Lines that make the update of a step."""
    schedule, rate = stage.optimizer.schedule, "LEARNING_RATE"
    values = [rate, "step"]
    if schedule.kind != "constant" or schedule.warmup:
        kind = "warmed_up" if schedule.kind == "constant" else schedule.kind
        rate = "rate"
        values += [] if schedule.kind == "constant" else ["STEPS"]
        values += [literal(schedule.warmup)]
        values += [] if schedule.kind == "constant" else [literal(schedule.floor)]
        yield call(f"rate = {kind}", values, indent)
    yield f"{' ' * indent}loss = await update(training, gradient, {rate}, ADAM)"


def ended(stage: Training) -> Iterator[str]:
    """Lines that save, and stop."""
    budget = stage.budget
    limited = budget.usd is not None or budget.tokens or budget.seconds
    spent = " or budget.is_spent(usage)" if limited else ""
    due = "stop" if stage.save.every is None else "stop or step % SAVE_EVERY == 0"
    yield f"        stop = step == steps{spent}"
    yield f"        if {due}:"
    yield "            await checkpoints.save(step)"
    yield "        if stop:"
    yield "            break"


def main(*arguments: str) -> Iterator[str]:
    """The lines of the entry point; ``arguments`` are those that add options of its own."""
    yield ""
    yield ""
    yield "def main() -> None:"
    yield "    parser = argparse.ArgumentParser(description=STAGE)"
    yield '    parser.add_argument("--steps", type=int, default=STEPS)'
    yield '    parser.add_argument("--metrics", default="metrics.jsonl")'
    yield from arguments
    yield "    asyncio.run(train(**vars(parser.parse_args())))"
    yield ""
    yield ""
    yield 'if __name__ == "__main__":'
    yield "    main()"
