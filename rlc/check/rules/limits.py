"""Rules on limits of prompts, replies and time: each leaves room for the next, and can be met."""

from __future__ import annotations

from itertools import combinations

from rlc.catalog import max_turns, with_role
from rlc.check.view import StageView, rule, rule_on_envs
from rlc.lang import Label
from rlc.plan import MAX_TURNS, STEP_TIMEOUT, EnvPlan, show
from rlc.records import evolve

_GREEDY = 0.02  # a temperature, or a share, with which the most likely token is nearly sure


@rule_on_envs("sampling")
def _room_for_a_reply(view: StageView, env: EnvPlan) -> None:
    """A reply is begun only if it could be of full length within every limit."""
    reply, whole = env.rollouts.max_tokens, view.sampling.max_episode_tokens
    if whole is not None and whole <= reply:
        label = Label(view.at(f"envs.{env.name}.rollouts.max_tokens"), "one reply may be as long")
        message = (
            f"an episode of {whole:,} tokens has no room for a prompt and a reply of {reply:,}"
        )
        advice = "no rollout could be played: raise max_episode_tokens, or lower max_tokens"
        view.error("RL0328", "sampling.max_episode_tokens", message, advice, label)


@rule_on_envs("sampling", "model")
def _room_for_a_prompt(view: StageView, env: EnvPlan) -> None:
    context, prompt = view.model.context, view.sampling.max_prompt_tokens
    reply = env.rollouts.max_tokens
    if context is None or prompt is None or reply >= context or prompt + reply <= context:
        return
    message = (
        f"a prompt of {prompt:,} tokens and a reply of {reply:,} outgrow {context:,}, the context"
    )
    advice = f"the limit never acts; with {context - reply:,} or less it does"
    view.warning("RL0328", "sampling.max_prompt_tokens", message, advice)


@rule_on_envs()
def _times_fit(view: StageView, env: EnvPlan) -> None:
    """What is part of something else ends first."""
    own = env.rollouts
    spans = {name: getattr(own, name) for name in ("step_timeout", "turn_timeout", "timeout")}
    path = f"envs.{env.name}.rollouts"
    for (name, span), (around, limit) in combinations(spans.items(), 2):
        if span is None or limit is None or (name, span) == ("step_timeout", STEP_TIMEOUT):
            continue
        if span > limit:
            message = f"{name} = {_seconds(span)} never acts: {around} is {_seconds(limit)}"
            view.warning("RL0328", f"{path}.{name}", message, f"lower it, or raise {around}")
    tool, step = with_role(env, "tool"), own.step_timeout
    if tool is not None and step is not None and tool.args["timeout"] > step:
        path = f"envs.{env.name}.wrappers.{tool.name}.args.timeout"
        message = f"a step of `{env.name}` ends after {_seconds(step)}, before `{tool.name}()` does"
        advice = "lower its timeout, or raise step_timeout: `rollouts(step_timeout = …)`"
        view.warning("RL0328", path, message, advice)


@rule_on_envs("deadlines")
def _steps_outlast_episodes(view: StageView, env: EnvPlan) -> None:
    step, episode = view.deadlines.step, env.rollouts.timeout
    if step is not None and episode is not None and episode >= step:
        label = Label(view.at(f"envs.{env.name}.rollouts.timeout"), "one episode may take as long")
        message = f"a step of {_seconds(step)} has no time for an episode of {_seconds(episode)}"
        advice = "one slow episode would end the run: raise the deadline, or lower its timeout"
        view.warning("RL0328", "deadlines.step", message, advice, label)


@rule_on_envs("advantage")
def _failures_can_be_too_many(view: StageView, env: EnvPlan) -> None:
    own = env.rollouts
    if own.max_failures is not None and own.max_failures >= own.group:
        message = f"a group of {own.group} never has more than {own.max_failures} failures"
        advice = f"{own.group - 1} at most has an effect; 0 leaves out every group with one"
        view.warning("RL0328", f"envs.{env.name}.rollouts.max_failures", message, advice)


@rule_on_envs()
def _turns_can_be_too_many(view: StageView, env: EnvPlan) -> None:
    own, path = env.rollouts, f"envs.{env.name}.rollouts"
    if own.max_turns >= MAX_TURNS:
        return
    unlimited = max_turns(evolve(env, rollouts=evolve(own, max_turns=MAX_TURNS)))
    if unlimited is not None and own.max_turns > unlimited:
        message = f"`{env.name}` never has more than {unlimited} turns"
        view.warning("RL0328", f"{path}.max_turns", message, "lower it, or leave it out")


def _seconds(span: float) -> str:
    return show(span, "duration")


@rule("sampling", "envs")
def _samples_differ(view: StageView) -> None:
    """What is sampled greedily is the same each time, as often as it is sampled."""
    sampling = view.sampling
    for env in view.envs:
        group = view.parts.get("samples", env.rollouts.group)
        if group == 1:
            continue
        greedy = {
            "sampling.top_k": sampling.top_k == 1,
            "sampling.top_p": sampling.top_p < _GREEDY,
            f"envs.{env.name}.rollouts.temperature": env.rollouts.temperature < _GREEDY,
        }
        path = next((path for path, is_greedy in greedy.items() if is_greedy), None)
        if path is not None:
            training = "advantage" in view.parts
            what = f"all {group} rollouts of a task are" if training else f"all {group} samples are"
            message = f"{what} the most likely reply, the same each time"
            alone = "with nothing to compare, nothing is learnt"
            advice = f"{alone}: sample at 1" if training else "sample at 1, or take `samples = 1`"
            view.warning("RL0437", path, message, advice)
