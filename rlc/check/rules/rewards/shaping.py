"""Rules on rewards: that they can be earned, and that they tell good from bad."""

from __future__ import annotations

from rlc.catalog.builtins.wrappers import TEMPLATES
from rlc.catalog.environments import env_facts, files_of, with_role
from rlc.catalog.facts.models import find_model
from rlc.catalog.index import find_builtin, wrapper_traits
from rlc.check.rules.base import View, rule, rule_on_envs
from rlc.plan.environments import SOLVED, EnvPlan

_PEEK = 65_536  # bytes of a file that are searched


@rule_on_envs()
def _reward_bounds(view: View, env: EnvPlan) -> None:
    """The smaller limit comes first, and there is room between them."""
    low, high = env.reward.low, env.reward.high
    if low is None or high is None:
        return
    if low > high:
        message = f"low = {low:g} is more than high = {high:g}"
        view.error("RL0202", f"envs.{env.name}.reward.low", message, "swap them")
    learnt_alone = view.parts.get("kl") is not None or view.parts.get("teacher")
    if low == high and not learnt_alone:
        message = f"every reward of `{env.name}` is {low:g}, whatever the model does"
        advice = "fine for a control run; else there is nothing to learn: take one limit out"
        view.warning("RL0430", f"envs.{env.name}.reward.high", message, advice)


@rule_on_envs()
def _success_is_possible(view: View, env: EnvPlan) -> None:
    """A task counts as solved from a reward of 1 on."""
    high = env.reward.high
    if high is None or high >= SOLVED:
        return
    counts = [f"`{metric.name}()`" for metric in view.parts.get("metrics", ()) if metric.k]
    if (curriculum := with_role(env, "curriculum")) is not None:
        counts.append(f"`{curriculum.name}()`")
    if counts:
        message = f"rewards of `{env.name}` end at {high:g}, and {counts[0]} counts those of 1"
        advice = "every task would be called unsolved: raise `high`, or leave it out"
        view.warning("RL0444", f"envs.{env.name}.reward.high", message, advice)


@rule_on_envs("data")
def _demonstrations_are_good_enough(view: View, env: EnvPlan) -> None:
    high, least, field = env.reward.high, getattr(view.data, "min_reward", None), "min_reward"
    if (keep := getattr(view.data, "keep", None)) is not None:
        least = SOLVED if keep.kind == "solved" else keep.reward
        field = "keep"
    if high is not None and least is not None and least > high:
        message = f"no episode of `{env.name}` has a reward of {least:g}: they end at {high:g}"
        advice = f"`keep = at_least({high:g})`" if keep else f"`min_reward = {high:g}`"
        view.error("RL0444", f"data.{field}", message, f"at most {advice}")


@rule_on_envs()
def _grader_can_grade(view: View, env: EnvPlan) -> None:
    able = env_facts(env).graders
    for part in env.graders:
        if able and part.grader not in able:
            message = f"`grader = {part.grader}` cannot tell right answers of `{env.id}`"
            advice = f"its answers need `grader = {able[0]}`"
            view.error("RL0324", f"envs.{env.name}.graders.{part.name}", message, advice)


@rule_on_envs("model")
def _answer_is_asked_for(view: View, env: EnvPlan) -> None:
    """Where an answer is read from a mark, something must say so; what was imitated may have."""
    marks = env_facts(env).marks
    imitates = any("data" in stage.parts for stage in view.before) or "data" in view.parts
    if not marks or imitates or view.model.weights is not None or env.agent is not None:
        return  # an agent may ask for it
    if _asks(view, env, marks):
        return
    mark = marks[0].replace("\\", "\\\\")  # as a recipe writes it
    source = find_builtin("env", env.source)
    template = with_role(env, "template")
    if source is not None and any(param.name == "suffix" for param in source.params):
        path, how = f"envs.{env.name}.id", f'suffix = " Put your answer in {mark}."'
    elif template is None:
        path, how = f"envs.{env.name}.id", f'chat(instruction = "Put your answer in {mark}.")'
    else:
        path = f"envs.{env.name}.wrappers.{template.name}"
        model = find_model(view.model.base)
        asking = [n for n, known in TEMPLATES.items() if known.asks and model and model.chatml]
        how = f"template({asking[-1]})" if asking else "a template of your own that asks for it"
    message = (
        f"the reward of `{env.name}` is for what stands in `{marks[0]}`, which nothing asks for"
    )
    view.warning("RL0429", path, message, f"say it to the model: `{how}`")


def _asks(view: View, env: EnvPlan, marks: tuple[str, ...]) -> bool:
    """Whether a wrapper, an argument or a file asks the model for one of the marks."""
    asked = set[str]()
    texts = [value for value in env.args.values() if isinstance(value, str)]
    for wrapper in env.wrappers:
        traits = wrapper_traits(wrapper.name)
        if traits.prompt is None or wrapper.args[traits.prompt] is None:
            asked.update(traits.asks)
        texts += [value for value in wrapper.args.values() if isinstance(value, str)]
        if traits.role == "template" and (known := TEMPLATES.get(wrapper.args["name"])):
            asked.update(known.asks)
    for _, path in files_of(env):
        try:
            with open(view.located(path), "rb") as file:
                beginning = file.read(_PEEK)
        except OSError:  # a rule of its own
            return True
        if b"\0" in beginning:  # not a text: it may ask for anything
            return True
        texts.append(beginning.decode("utf-8", "replace"))
    words = [mark.strip("\\{}") for mark in marks]
    return not asked.isdisjoint(marks) or any(word in text for word in words for text in texts)


@rule("on_error")
def _failing_does_not_pay(view: View) -> None:
    penalty = view.on_error.penalty
    if penalty is not None and penalty > 0:
        message = f"a rollout that fails is rewarded with {penalty:g}"
        advice = "a model learns to make it fail; take what a wrong answer gets, such as 0"
        view.warning("RL0442", "on_error.penalty", message, advice)
