"""Rules on how replies are sampled, and on limits of prompts, replies and time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from rlc.catalog import END_MARKS, is_chat, learns_targets_alone, max_turns, with_role
from rlc.check.rules.view import StageView, rule, rule_on_envs
from rlc.lang import Label
from rlc.plan import MAX_TURNS, STEP_TIMEOUT, EnvPlan, show
from rlc.records import evolve


@rule("sampling", "loss")
def _on_policy(view: StageView) -> None:
    """The gradient is that of the model at temperature 1, over its whole vocabulary."""
    sampling = view.sampling
    if _learns_targets_alone(view):
        return
    compared = view.parts.get("kl") is not None or bool(view.parts.get("teacher"))  # a rule below
    changed = {
        f"sampling.{name}": value
        for name, value in sampling.shaping.items()
        if name != "temperature" or not compared
    }
    for env in view.parts.get("envs", ()):
        temperature = env.rollouts.temperature
        if not compared and temperature not in (None, 1, sampling.temperature):
            changed[f"envs.{env.name}.rollouts.temperature"] = temperature
    for path, value in changed.items():
        name = path.rpartition(".")[2]
        message = f"{name} = {value:g} samples from another distribution than is trained"
        advice = "their ratio enters the loss; it is 1 where temperature = 1, top_p = 1, top_k = -1"
        view.warning("RL0409", path, message, advice)


def _learns_targets_alone(view: StageView) -> bool:
    """Return whether no logprob of a sampled token enters the loss."""
    known = [view.parts.get(name) for name in ("advantage", "kl", "teacher")]
    return known[0] is not None and learns_targets_alone(known[0], known[1], known[2] or ())


@rule("sampling")
def _top_k(view: StageView) -> None:
    if view.sampling.top_k == 0:
        message = "top_k = 0 leaves no token to sample"
        view.error("RL0410", "sampling.top_k", message, "-1 samples from all tokens")


@rule("observations", "envs")
def _replies_are_observed(view: StageView) -> None:
    if view.observations is not None and all(max_turns(env) == 1 for env in view.envs):
        message = "nothing comes between replies: every episode is one reply"
        advice = "leave `observations` out, or train on episodes of several turns"
        view.warning("RL0448", "observations", message, advice)


@rule("sampling", "envs")
def _texts_end_replies(view: StageView) -> None:
    own, envs = view.sampling.stop, view.envs
    _report_idle(view, "sampling.stop", own, all(map(is_chat, envs)))
    for env in envs:
        if (stop := env.rollouts.stop or ()) != own:
            _report_idle(view, f"envs.{env.name}.rollouts.stop", stop, is_chat(env))


def _report_idle(view: StageView, path: str, stop: Sequence[str], chat: bool) -> None:
    for at, text in enumerate(stop):
        shorter = next((one for one in stop if one in text and one != text), None)
        quoted = show(text, "string")
        if chat and text in END_MARKS:
            message = f"{quoted} ends a turn, and the renderer's own end holds anyway"
        elif shorter is not None:
            message = f"{quoted} ends no reply: its part {show(shorter, 'string')} does so before"
        elif text in stop[:at]:
            message = f"{quoted} is there twice"
        else:
            continue
        view.warning("RL0756", f"{path}.{at}", message, "remove it")


@rule("kl", "teacher", "envs")
def _penalty_temperature(view: StageView) -> None:
    """The sampler's logprobs are tempered, those of other models are at temperature 1."""
    if (view.kl is None and not view.teacher) or _learns_targets_alone(view):
        return
    field, other = "teacher", "teacher"
    message = "tempered logprobs are compared with the teacher's own"
    if view.kl is not None:
        field, other = "kl", "penalty"
        message = "the KL penalty compares tempered logprobs with the reference's own"
    for env in view.envs:
        temperature = env.rollouts.temperature
        if temperature in (None, 1):
            continue
        own = "sampling" not in view.parts or temperature != view.sampling.temperature
        path = f"envs.{env.name}.rollouts.temperature" if own else "sampling.temperature"
        label = Label(view.at(field), "compares logprobs at temperature 1")
        advice = f"sample at temperature 1, or leave the {other} out"
        view.warning("RL0417", path, message, advice, label)
        return


_GREEDY = 0.02  # a temperature, or a share, with which the most likely token is nearly sure


@rule_on_envs("sampling")
def _room_for_a_reply(view: StageView, env: EnvPlan) -> None:
    """A reply is begun only if it could be of full length within every limit."""
    context = view.model.context if "model" in view.parts else None
    reply, whole = env.rollouts.max_tokens, view.sampling.max_episode_tokens
    prompt = view.sampling.max_prompt_tokens
    if whole is not None and whole <= reply:
        label = Label(view.at(f"envs.{env.name}.rollouts.max_tokens"), "one reply may be as long")
        room = f"no room for a prompt and a reply of {reply:,}"
        advice = "no rollout could be played: raise max_episode_tokens, or lower max_tokens"
        message = f"an episode of {whole:,} tokens has {room}"
        view.error("RL0328", "sampling.max_episode_tokens", message, advice, label)
    if context is not None and prompt is not None and reply < context < prompt + reply:
        outgrow = f"outgrow {context:,}, the context"
        message = f"a prompt of {prompt:,} tokens and a reply of {reply:,} {outgrow}"
        advice = f"the limit is never reached; with {context - reply:,} or less it does"
        view.warning("RL0328", "sampling.max_prompt_tokens", message, advice)


@rule_on_envs()
def _times_fit(view: StageView, env: EnvPlan) -> None:
    """An inner limit of time ends before an outer one."""
    own = env.rollouts
    spans = {name: getattr(own, name) for name in ("step_timeout", "turn_timeout", "timeout")}
    path = f"envs.{env.name}.rollouts"
    for (name, span), (around, limit) in combinations(spans.items(), 2):
        if span is None or limit is None or (name, span) == ("step_timeout", STEP_TIMEOUT):
            continue
        if span > limit:
            message = f"{name} = {_seconds(span)} has no effect: {around} is {_seconds(limit)}"
            view.warning("RL0328", f"{path}.{name}", message, f"lower it, or raise {around}")
    tool, step = with_role(env, "tool"), own.step_timeout
    if tool is not None and step is not None and tool.args["timeout"] > step:
        path = f"envs.{env.name}.wrappers.{tool.name}.args.timeout"
        message = f"a step of `{env.name}` ends after {_seconds(step)}, before `{tool.name}()` does"
        advice = "lower its timeout, or raise step_timeout: `rollouts(step_timeout = …)`"
        view.warning("RL0328", path, message, advice)
    deadline = view.deadlines.step if "deadlines" in view.parts else None
    if deadline is not None and own.timeout is not None and own.timeout >= deadline:
        label = Label(view.at(f"envs.{env.name}.rollouts.timeout"), "one episode may take as long")
        room = f"no time for an episode of {_seconds(own.timeout)}"
        advice = "one slow episode would end the run: raise the deadline, or lower its timeout"
        message = f"a step of {_seconds(deadline)} has {room}"
        view.warning("RL0328", "deadlines.step", message, advice, label)


@rule_on_envs()
def _limits_can_be_reached(view: StageView, env: EnvPlan) -> None:
    own, path = env.rollouts, f"envs.{env.name}.rollouts"
    group = own.group if "advantage" in view.parts else None  # None if the batch cannot be read
    if group is not None and own.max_failures is not None and own.max_failures >= group:
        message = f"a group of {group} never has more than {own.max_failures} failures"
        advice = f"{group - 1} at most has an effect; 0 leaves out every group with one"
        view.warning("RL0328", f"{path}.max_failures", message, advice)
    limitless = evolve(env, rollouts=evolve(own, max_turns=MAX_TURNS))
    turns = max_turns(limitless) if own.max_turns < MAX_TURNS else None
    if turns is not None and own.max_turns > turns:
        message = f"`{env.name}` never has more than {turns} turns"
        view.warning("RL0328", f"{path}.max_turns", message, "lower it, or leave it out")


def _seconds(span: float) -> str:
    return show(span, "duration")


@rule("sampling", "envs")
def _samples_differ(view: StageView) -> None:
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
        for path in [path for path, is_greedy in greedy.items() if is_greedy][:1]:
            what, advice = f"all {group} samples", "sample at 1, or use `samples = 1`"
            if "advantage" in view.parts:
                what = f"all {group} rollouts of a task"
                advice = "with nothing to compare, nothing is learnt: sample at 1"
            message = f"{what} are the most likely reply, the same each time"
            view.warning("RL0437", path, message, advice)
