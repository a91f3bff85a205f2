"""Teachers: models that grade the tokens of the one that is trained."""

from __future__ import annotations

from rlc.algo.scheme import AdvantageScheme, Clip, Returns
from rlc.catalog.builtins.losses import KL_ALIASES, KL_DISCOUNT
from rlc.catalog.records import Param, builtin, optional
from rlc.plan.distillation import TeacherPlan

# The advantages of a stage that only its teachers teach: nothing but 0.
NO_ADVANTAGE = AdvantageScheme("none", Returns("episode", 1.0), (Clip(0.0, 0.0),), "keep")

TEACHERS = (
    builtin(
        "reverse_kl",
        "teacher",
        "a teacher grades every sampled token: by how much likelier it finds it than the model "
        "that sampled it (on-policy distillation, arXiv 2306.13649)",
        lambda args: TeacherPlan(None, "reverse_kl", **args.values),
        Param("model", "model", "who teaches: a model as it is declared, or as a stage leaves it"),
        Param(
            "coef",
            "float",
            "how much its grades count; 0: they are for a loss that reads `ref`",
            1.0,
            low=0,
            high=100,
            aliases=KL_ALIASES,
        ),
        KL_DISCOUNT,
        optional(
            "system",
            "string",
            "the system message of the prompt that it reads; none: that of the environment",
            aliases="system_prompt context teacher_system_prompt",
        ),
        optional(
            "demonstration",
            "string",
            "field of the task's row that it is shown after the question, as an example of a "
            "response; none: nothing",
            aliases="demo golden_answer answer solution",
            holds="text",
        ),
        formula=(
            "d_t = log q_t − log p_teacher,t",
            "A_t = A_t − coef d_t",
        ),
        aliases="on_policy_distillation distill opd gkd teacher",
    ),
)
