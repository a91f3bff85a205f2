"""The program of a stage that trains with reinforcement learning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlc.algo import Baseline, Clip, Scale, TorchFunction, torch_function
from rlc.catalog import TEMPLATES, aggregate_traits, is_chat, loss_traits, with_role
from rlc.chat import load_template
from rlc.emit.script.common import constants, ended, kept, main, opened, origin, updated
from rlc.emit.script.literals import call, literal
from rlc.emit.script.stitch import MARK
from rlc.explanation import loss_formula, scheme_formulas
from rlc.plan import EnvPlan, Plan, PolicyGradient, Rollouts, Training


def reinforcement_body(plan: Plan, stage: Training, name: str) -> str:
    """Return what is written for a stage alone, in a script of that ``name``."""
    own = _own_loss(stage)
    parts = [*constants(plan, stage), *_values(plan, stage, own), MARK, *_envs(plan, stage)]
    if own is not None:
        parts += ["# fmt: off", own.source.rstrip("\n"), "# fmt: on", "", ""]
    parts += [*_advantages(stage), "", "", *_batch(stage, own), "", ""]
    return "\n".join([*parts, *_train(stage, name, own), *main()])


def _own_loss(stage: Training) -> TorchFunction | None:
    objective = stage.of(PolicyGradient)
    if objective.loss.program is None:
        return None
    return torch_function(
        objective.loss.program,
        objective.loss.name,
        loss_traits(objective.loss).weighted,
    )


def _values(plan: Plan, stage: Training, own: TorchFunction | None) -> Iterator[str]:
    source, objective = stage.of(Rollouts), stage.of(PolicyGradient)
    yield f"# A batch{origin(plan, stage, 'batch.count').replace('  #', ':')}"
    if source.batch.kind == "groups":
        yield f"GROUPS = {literal(source.batch.count)}"
    else:
        yield f"TURNS = {literal(source.batch.count)}  # trained on in each step"
        yield f"PARALLEL = {literal(source.batch.parallel)}  # episodes side by side"
    sampling: dict[str, Any] = {}
    if source.sampling.top_p != 1:
        sampling["top_p"] = source.sampling.top_p
    if source.sampling.top_k != -1:
        sampling["top_k"] = source.sampling.top_k
    if source.on_error.retries:
        sampling["retries"] = source.on_error.retries
    if source.on_error.then == "stop":
        sampling["then_stop"] = True
    yield f"PLAYED: dict[str, Any] = {literal(sampling) if sampling else '{}'}"
    if any(is_chat(env) for env in source.envs):
        yield f"RENDERER = {literal(stage.model.renderer)}"
    yield ""
    yield f"# The loss{origin(plan, stage, 'loss.name').replace('  #', ':')}"
    for line in loss_formula(objective.loss):
        yield f"#   {line}"
    if own is not None:
        yield f"LOSS_INPUTS = {literal(own.ranks)}"
    else:
        yield f"LOSS = {literal(objective.loss.name)}"
        yield f"LOSS_CONFIG = {literal(objective.loss.config) if objective.loss.config else 'None'}"
    yield ""


def _envs(plan: Plan, stage: Training) -> Iterator[str]:
    yield "ENVS = ["
    for env in stage.of(Rollouts).envs:
        if told := origin(plan, stage, f"envs.{env.name}.id"):
            yield f"  {told}"
        yield call("Env", _env(env), 4) + ","
    yield "]"
    yield ""
    yield ""


def _env(env: EnvPlan) -> list[str]:
    own = env.rollouts
    values: dict[str, Any] = {
        "name": env.name,
        "id": env.id,
        "args": dict(env.args),
        "weight": env.weight,
        "group": own.group,
        "temperature": own.temperature,
        "max_tokens": own.max_tokens,
    }
    chat, template = with_role(env, "chat"), with_role(env, "template")
    if with_role(env, "history") is not None:
        values["earlier"] = True
    if template is not None:
        assert template.args["name"] in TEMPLATES
        values["template"] = load_template(template.args["name"])("{observation}")
    if chat is not None and chat.args.get("instruction"):
        values["instruction"] = chat.args["instruction"]
    return [
        f"{name}={literal(value, 8) if value != {} else '{}'}" for name, value in values.items()
    ]


def _advantages(stage: Training) -> Iterator[str]:
    """The function of the scheme, step by step."""
    scheme = stage.of(PolicyGradient).advantage
    yield "def advantages(episodes: list[Episode]) -> list[np.ndarray[Any, Any]]:"
    yield f'    """One value a turn for each episode: {scheme.name}.'
    yield ""
    for formula in scheme_formulas(scheme):
        yield f"    {formula.text}"
    yield '    """'
    yield "    rewards = [[turn.reward for turn in one.turns] for one in episodes]"
    by_turn = scheme.returns.unit == "turn"
    if by_turn:
        yield f"    values, owner = turn_returns(rewards, gamma={scheme.returns.gamma!r})"
    else:
        yield "    values, owner = episode_returns(rewards)"
    yield "    keep = np.ones(len(values), dtype=bool)"
    steps = scheme.steps
    baselines = [step for step in steps if isinstance(step, Baseline)]
    scales = [step for step in steps if isinstance(step, Scale)]
    compared: list[Baseline | Scale] = [*baselines, *scales]
    over = {_scope(step) for step in compared}
    labels = {
        "group": "[(one.env, one.task) for one in episodes]",
        "env": "[one.env for one in episodes]",
        "batch": "[0 for _ in episodes]",
    }
    if scheme.constant == "drop":
        yield f"    task = {labels['group']}"
        yield "    keep = varied(values, scopes(task, owner, keep))"
    for one in sorted(over):
        yield f"    of_{one} = scopes({labels[one]}, owner, keep)"
    weighted = {"tokens" if _by_tokens(step) else "one" for step in compared}
    if "one" in weighted:
        yield "    one_each = np.ones(len(values))"
    if "tokens" in weighted:
        if by_turn:
            yield "    sampled = [len(turn.tokens) for one in episodes for turn in one.turns]"
        else:
            yield "    sampled = [sum(len(turn.tokens) for turn in one.turns) for one in episodes]"
        yield "    tokens = np.array(sampled, dtype=np.float64)"
    keeps = bool(scales) and any(step.singleton == "raw" for step in baselines)
    if keeps:
        yield "    raw = np.zeros(len(values), dtype=bool)"
    for step in steps:
        yield from _step(step, keeps)
    yield "    values[~keep] = 0.0"
    yield "    return by_episode(values, owner, [len(one.turns) for one in episodes])"


def _scope(step: Baseline | Scale) -> str:
    """Who is compared: a script plays no environments with roles."""
    return {"role": "group", "batch_role": "batch"}.get(step.over, step.over)


def _by_tokens(step: Baseline | Scale) -> bool:
    return step.weight == "tokens" or step.kind == "length_weighted"


def _step(step: Any, keeps: bool) -> Iterator[str]:
    if isinstance(step, Clip):
        yield f"    values = np.clip(values, {literal(step.low)}, {literal(step.high)})"
        return
    scope = _scope(step)
    given = ["values", "tokens" if _by_tokens(step) else "one_each", f"of_{scope}"]
    if isinstance(step, Baseline):
        kind = "less_others" if step.kind == "leave_one_out" else "less_mean"
        given += ["raw=True"] if step.singleton == "raw" else []
        yield call(f"values = {kind}", given, 4)
        if keeps and step.singleton == "raw":
            yield f"    raw |= singles(len(values), of_{scope})"
    else:
        given += [f"ddof={step.ddof}", f"eps={literal(step.eps)}"]
        given += ["inside=True"] if step.eps_place == "inside" else []
        given += ["raw=raw"] if keeps else []
        yield call("values = over_deviation", given, 4)


def _batch(stage: Training, own: TorchFunction | None) -> Iterator[str]:
    """The function that makes the datums of a step."""
    source, objective = stage.of(Rollouts), stage.of(PolicyGradient)
    loss = loss_traits(objective.loss)
    yield "def batch(step: int, episodes: list[Episode]) -> list[tinker.Datum]:"
    yield '    """What the update of a step is trained on."""'
    if source.batch.kind == "turns":
        yield "    chosen = some_turns(episodes, TURNS, SEED, STAGE, step)"
    else:
        yield "    chosen = all_turns(episodes)"
    given = ["*row"]
    given += ["unknown=float('nan')".replace("'", '"')] if loss.reaches_prompt else []
    given += ["recorded=True"] if loss.recorded else []
    yield "    rows = zip(episodes, advantages(episodes), chosen, strict=True)"
    yield f"    played = [sequences({', '.join(given)}) for row in rows]"
    yield "    made = [own for own in played if own]"
    kind = objective.aggregate.kind
    if aggregate_traits(kind).over is None:
        yield "    weights = [1.0] * len(made)"
    else:
        if objective.loss.by_sequence:
            yield "    # A sequence has one loss, and counts as one token."
            yield "    tokens = [[1 for _ in own] for own in made]"
        else:
            yield "    tokens = [[one.tokens for one in own] for own in made]"
        more = f", {objective.aggregate.length}" if objective.aggregate.length else ""
        yield f"    weights = {kind}(tokens{more})"
    yield "    data = []"
    yield "    for own, weight in zip(made, weights, strict=True):"
    yield "        for one in own:"
    indent = "            "
    if not (loss.pull or loss.weighted):
        yield f"{indent}if not one.advantages.any():"
        yield f"{indent}    continue"
    shared = " / one.tokens" if objective.loss.mean else ""
    if own is not None:
        scaled = "one.advantages" if loss.weighted else f"weight * one.advantages{shared}"
        given = ["one", scaled, "[*LOSS_INPUTS]"]
        given += [f"weight{shared}"] if loss.weighted else []
        yield call("datum = own_datum", given, 12)
    else:
        maker = "sampled_datum" if loss.sampler_logprobs else "weighted_datum"
        yield f"{indent}datum = {maker}(one, weight * one.advantages{shared})"
    kept = "with_replies(datum, one)" if loss.recorded else "datum"
    yield f"{indent}data.append({kept})"
    yield "    return data"


def _train(stage: Training, name: str, own: TorchFunction | None) -> Iterator[str]:
    source, objective = stage.of(Rollouts), stage.of(PolicyGradient)
    loss, chats = (
        loss_traits(objective.loss),
        [is_chat(env) for env in source.envs],
    )
    yield "async def train(steps: int, metrics: str) -> None:"
    yield from opened(stage, name)
    if own is not None:
        yield "    # Traced once; where a server has no custom losses, the SDK computes it here."
        yield f"    own_loss = service.create_custom_loss({own.name}, LOSS_INPUTS).result()"
    if any(chats):
        yield "    renderer = get_renderer(RENDERER, tokenizer)"
    yield ""
    yield "    def new_history(env: Env) -> History:"
    if any(chats) and not all(chats):
        yield "        if env.template:"
        yield "            return Text(tokenizer, env.template)"
    if any(chats):
        yield "        return Chat(renderer, env.instruction)"
    else:
        yield "        return Text(tokenizer, env.template)"
    yield ""
    yield "    games = {env.name: Game(env) for env in ENVS}"
    yield "    cursor = {env.name: 0 for env in ENVS}"
    yield from kept(stage)
    yield "    same = False"
    yield "    for step in range(1, steps + 1):"
    recorded = "record_stability_info=True" if loss.recorded else ""
    if loss.recorded:
        yield "        # Its loss needs to know which sampled sequence each token comes from."
    yield call(
        "sampler = await training.save_weights_and_get_sampling_client",
        [recorded] if recorded else [],
        8,
    )
    yield "        if step == 1:"
    yield "            same = await repeats(sampler, tokenizer)"
    given = ["sampler", "games", "new_history", "usage", "SEED", "STAGE", "CONTEXT"]
    yield call("player = Player", [*given, "repeats=same", "**PLAYED"], 8)
    if source.batch.kind == "groups":
        yield "        episodes = await play_groups(player, ENVS, cursor, GROUPS)"
    else:
        yield "        episodes = await play_turns(player, ENVS, cursor, TURNS, PARALLEL)"
    yield "        data, loss = batch(step, episodes), 0.0"
    yield "        if data:"
    if loss.reaches_prompt:
        yield "            data = await anchored(training, data)"
        yield "            usage.prefill += sum(datum.model_input.length for datum in data)"
    yield "            # Submitted together, so that the service does both in one go."
    if own is not None:
        yield "            gradient = training.forward_backward_custom(data, own_loss)"
    else:
        yield "            gradient = training.forward_backward(data, LOSS, LOSS_CONFIG)"
    yield from updated(stage, 12)
    yield "            usage.trained += sum(datum.model_input.length for datum in data)"
    yield "        reward = float(np.mean([episode.reward for episode in episodes]))"
    yield '        measured = {"reward/mean": reward, "loss/sum": loss}'
    yield "        report(metrics, step, steps, **measured)"
    yield from ended(stage)
