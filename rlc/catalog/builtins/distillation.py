"""What is learnt from other models: teachers score tokens, and samples are imitated."""

from __future__ import annotations

from rlc.algo import AdvantageScheme, Clip, Returns
from rlc.catalog.builtins.losses import KL_DISCOUNT
from rlc.catalog.records import Args, Builtin, Param, builtin, optional
from rlc.catalog.traits import TeacherTraits
from rlc.plan import TEXT_FILE, KeepPlan, Samples, SamplingPlan, TeacherPlan

# The advantages of a stage that only its teachers teach: nothing but 0.
NO_ADVANTAGE = AdvantageScheme("none", Returns("episode", 1.0), (Clip(0.0, 0.0),), "keep")

_WHO = Param("model", "model", "who teaches: a model as it is declared, or as a stage leaves it")
_SHOWN = (
    optional(
        "system",
        "string",
        "the system message of the prompt that it reads, or a .md or .txt file with it; none: that "
        "of the environment",
        file=TEXT_FILE,
    ),
    optional(
        "demonstration",
        "string",
        "field of the task's row that it is shown after the question, as an example of a "
        "response; none: nothing",
        holds="texts",
    ),
)

TEACHERS = (
    builtin(
        "reverse_kl",
        "teacher",
        "a teacher scores every sampled token: by how much likelier it finds it than the model "
        "that sampled it (on-policy distillation, arXiv 2306.13649)",
        lambda args: TeacherPlan(None, "reverse_kl", **args.values),
        _WHO,
        Param(
            "coef",
            "float",
            "how much its scores count; 0: they are for a loss that reads `ref`",
            1.0,
            low=0,
            high=100,
        ),
        KL_DISCOUNT,
        *_SHOWN,
        formula=("d_t = log q_t − log p_teacher,t", "A_t = A_t − coef d_t"),
        traits=TeacherTraits(),
        aliases="on_policy_distillation distill opd gkd teacher",
        example="teacher = reverse_kl(big, coef = 1.0)",
    ),
    builtin(
        "forward_kl",
        "teacher",
        "a teacher names the tokens that it finds most likely where each was sampled, and the "
        "model learns their shares (as `topk` of the cookbook's SDFT, 0.5.8)",
        lambda args: TeacherPlan(None, "forward_kl", discount=0.0, **args.values),
        _WHO,
        Param(
            "coef",
            "float",
            "how much its loss counts beside that of the stage",
            1.0,
            above=0,
            high=100,
        ),
        Param(
            "top_k", "int", "how many of its most likely tokens are learnt", 20, low=1, high=1_024
        ),
        *_SHOWN,
        formula=(
            "s_t,k = p_teacher,t,k / Σ_j p_teacher,t,j   (k, j: its top_k most likely tokens)",
            "L = L − coef Σ_t Σ_k s_t,k log p_t,k",
            "the gradient is that of coef Σ_t KL(s_t ‖ p_t)",
        ),
        traits=TeacherTraits(targets=True),
        aliases="top_k_distillation soft_targets sdft kd forward_kl_topk knowledge_distillation",
        example="teacher = forward_kl(big, top_k = 20)",
    ),
)

KEEPS = (
    *(
        Builtin(
            name,
            "keep",
            doc,
            lambda _, name=name: KeepPlan(name),  # type: ignore[misc]
            word=True,
            example="data = samples(big, env = guess, n = 512, samples_per_task = 4, "
            f"keep = {name})",
        )
        for name, doc in (
            ("all", "every episode that did not fail"),
            ("solved", "those that solve their task: with a reward of 1 or more"),
            ("best", "the one with the highest reward of each task"),
        )
    ),
    builtin(
        "at_least",
        "keep",
        "those with at least some reward",
        lambda args: KeepPlan("at_least", args.reward),
        Param("reward", "float", "the least reward"),
        example="data = samples(big, env = guess, n = 1_000, keep = at_least(0.5))",
    ),
)
DEFAULT_SAMPLING = SamplingPlan(1_024)


def _samples(args: Args) -> Samples:
    given = dict(args.values)
    return Samples(count=given.pop("n"), size=given.pop("samples_per_task"), **given)


SAMPLES = builtin(
    "samples",
    "data",
    "episodes that a model plays: rejection sampling, expert iteration, off-policy distillation",
    _samples,
    Param("model", "model", "who plays: a model as it is declared, or as a stage leaves it"),
    Param("env", "env", "where they are played"),
    Param("n", "int", "how many are learnt from", low=1, high=10_000_000),
    Param("keep", "keep", "which of a task's episodes are learnt from", KeepPlan("solved")),
    Param("samples_per_task", "int", "episodes of each task", 1, low=1, high=1_024),
    optional("per_task", "int", "most of a task that are learnt from; none: all", low=1),
    Param("tries", "int", "most episodes played for each that is wanted", 20, low=1, high=10_000),
    Param("sampling", "sampling", "how replies are sampled", DEFAULT_SAMPLING),
    optional(
        "without",
        "word",
        "`system`: learnt without the system message that they were played with",
        choices=("system",),
    ),
    optional(
        "top_k",
        "int",
        "how many of the tokens that the player finds most likely are learnt, by their shares; "
        "none: the token that it sampled",
        low=1,
        high=1_024,
    ),
    formula=(
        "s_t,k = p_player,t,k / Σ_j p_player,t,j   (k, j: its top_k most likely tokens)",
        "L = − Σ_t Σ_k s_t,k log p_t,k",
        "the gradient is that of Σ_t KL(s_t ‖ p_t)",
    ),
    aliases="rejection_sampling rollouts generate synthetic",
    example="data = samples(big, env = guess, n = 1_000, keep = solved)",
)
