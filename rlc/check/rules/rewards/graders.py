"""Rules on graders: that they fit their rows, and that their weights weigh."""

from __future__ import annotations

from rlc.catalog.builtins.graders import FORMAT, finds_answers
from rlc.catalog.builtins.sources import FORMAT_COEF, GRADER
from rlc.catalog.index import grader_traits, source_traits
from rlc.check.rules.base import View, rule_on_envs
from rlc.plan.environments import EnvPlan
from rlc.plan.parts import teacher_of


@rule_on_envs()
def _something_rewards(view: View, env: EnvPlan) -> None:
    source = source_traits(env.source)
    keep = getattr(view.parts.get("data"), "keep", None)
    if teacher_of(view.parts.get("teacher", ()), env.name) is not None:
        return
    if "overlap" in view.parts and "teacher" not in view.parts:  # its teachers could not be read
        return
    if keep is not None and keep.kind == "all":
        return
    if env.agent is not None:  # it may reward itself
        return
    if source.graded and not (env.graders or env.judging):
        message = f"nothing rewards the replies of `{env.name}`"
        advice = (
            f'give it a grader, `{GRADER} = grade_with("rewards.py:reward")`, or a judge, '
            "`|> judged(…)`"
        )
        view.error("RL0530", f"envs.{env.name}.id", message, advice)


@rule_on_envs()
def _there_is_an_answer(view: View, env: EnvPlan) -> None:
    """A grader that compares needs something to compare with."""
    if source_traits(env.source).answers:
        return
    for part in env.graders:
        if grader_traits(part.grader).compares:
            message = (
                f"`{part.grader}` compares with the answer of a row, and `{env.name}` has none"
            )
            advice = f'take `problems("{env.id}", answer = "…")`, or a function of your own'
            view.error("RL0531", f"envs.{env.name}.graders.{part.name}", message, advice)


@rule_on_envs()
def _weights_weigh(view: View, env: EnvPlan) -> None:
    """Weights are numbers, and not all of them are 0."""
    for part in env.graders:
        path = f"envs.{env.name}.graders.{part.name}.args.weights"
        for name, weight in part.args.get("weights", {}).items():
            if isinstance(weight, bool) or not isinstance(weight, int | float):
                message = f"the weight of `{name}` is not a number"
                view.error("RL0201", f"{path}.{name}", message, "for example `0.5`")
    if env.graders and not any(part.weight and _counts(part.args) for part in env.graders):
        message = f"all weights are 0, so every reward of `{env.name}` is 0"
        advice = "give one of them a weight; those with 0 are metrics only"
        view.error("RL0532", f"envs.{env.name}.graders", message, advice)


def _counts(args: dict[str, object]) -> bool:
    weights = args.get("weights")
    return not isinstance(weights, dict) or not weights or any(weights.values())


@rule_on_envs()
def _names_are_free(view: View, env: EnvPlan) -> None:
    """What graders say of the format of a reply is a metric, too."""
    if finds_answers(env) and any(part.name == FORMAT for part in env.graders):
        message = f"`{FORMAT}` is the metric of whether a reply has an answer at all"
        path = f"envs.{env.name}.graders.{FORMAT}"
        view.error("RL0533", path, message, "give the grader another name")


@rule_on_envs()
def _format_counts(view: View, env: EnvPlan) -> None:
    """Only graders that compare answers can miss one."""
    coef = env.args.get("format_coef", FORMAT_COEF)
    if coef not in (0, FORMAT_COEF) and not finds_answers(env):
        message = "`format_coef` counts where a grader compares answers, and none does here"
        advice = "take it out; a function of your own returns what it likes for a bad format"
        view.error("RL0312", f"envs.{env.name}.args.format_coef", message, advice)
