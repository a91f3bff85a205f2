"""What stages take beside training itself: data, preferences and the losses over them, teachers,
metrics, trackers.

Losses over preferences are texts, in ``rlc/algo/formulas/preferences.rl``, which names versions.
"""

from __future__ import annotations

from typing import Any

from rlc.algo import formula_texts, no_advantage
from rlc.catalog.builtins.losses import KL_DISCOUNT
from rlc.catalog.builtins.sources import (
    ARGS,
    COOKBOOK_MODEL,
    COOKBOOK_RENDERER,
    DATA_FILE,
    OPENREWARD_KEY,
    ROWS,
    SPLIT,
    USUAL,
    WHERE_ROWS_ARE,
    function,
)
from rlc.catalog.records import (
    Args,
    Builtin,
    DataTraits,
    Key,
    MetricTraits,
    Param,
    TeacherTraits,
    TrackerTraits,
    builtin,
    code,
    count,
    number,
    optional,
    text,
    word,
)
from rlc.plan import (
    TEXT_FILE,
    AnyData,
    BuilderData,
    Chats,
    Demonstrations,
    KeepPlan,
    LabelledReplies,
    MetricPlan,
    Pairs,
    PreferenceLossPlan,
    PreferredPairs,
    Rows,
    Samples,
    SamplingPlan,
    TeacherPlan,
    TrackPlan,
)
from rlc.records import evolve


def _data(kind: type[AnyData], doc: str, *params: Param, **more: Any) -> Builtin:
    """Return the builtin of a kind of data: its parameters are the fields, ``n`` is ``count``."""

    def build(args: Args) -> AnyData:
        given = dict(args.values)
        return kind(count=given.pop("n"), **given)

    return builtin(
        kind.word, "preferences" if kind.compares else "data", doc, build, *params, **more
    )


_FILE = text("path", WHERE_ROWS_ARE, form=(ROWS, "demonstrations.jsonl"), file=DATA_FILE)
_OF_ROWS = (
    optional("n", "int", "use the first n rows of it; none: all", low=1),
    optional("max_tokens", "int", "most in a row; none: the model's context", low=2),
    word("too_long", "what becomes of a row with more", ("stop", "drop"), "stop"),
)
_OF_FILES = (SPLIT, *_OF_ROWS)
# The arguments of a supervised builder of tinker-cookbook that other parts of the recipe decide.
COOKBOOK_COMMON, COOKBOOK_BATCH = "common_config", "batch_size"


def _at(name: str, doc: str, formula: str) -> Builtin:
    return builtin(
        name,
        "metric",
        doc,
        lambda args: MetricPlan(name, args.k),
        count("k", "episodes of a task that are looked at", high=1_024),
        formula=(formula,),
        traits=MetricTraits(),
        example=f"samples  = 8\nsampling = sample(max_tokens = 512)\nmetrics  = [{name}(8)]",
    )


def _tracker(name: str, doc: str, traits: TrackerTraits, *params: Param, **more: str) -> Builtin:
    return builtin(
        name,
        "tracker",
        doc,
        lambda args: TrackPlan(name, dict(args.values)),
        *params,
        traits=traits,
        **more,
    )


_PROJECT = text("project", "the project that the run is part of")
_RUN = optional("run", "string", "name of the run; none: that of its folder")


def _column(name: str, doc: str, usual: str) -> Param:
    return optional(name, "string", f"field of {doc}; none: the usual ones, such as {usual}")


_USUAL = 0.001, 2.0
_RATED = "`chosen_rating`, `score_chosen`", "`rejected_rating`, `score_rejected`"
_PROMPT = _column("prompt", "the prompt, text or messages", "`prompt`, `question`, `instruction`")


def _loss(name: str, *params: Param, beta: tuple[float, float] = _USUAL, **more: str) -> Builtin:
    """Return a loss over preferences, whose text in ``rlc/algo/formulas`` says all but what its
    parameters are; ``beta`` is the usual range of that."""
    text = formula_texts("preference_loss")[name]

    def build(args: Args) -> PreferenceLossPlan:
        return PreferenceLossPlan(name, dict(args.values))

    def formula() -> tuple[str, ...]:
        from rlc.algo import preference_formula

        return preference_formula(name)

    own = {"formula": formula, "traits": beta, **more}
    given = {param.name: param for param in params}
    filled = [evolve(given[key], default=value) for key, value in text.defaults.items()]
    return builtin(name, "preference_loss", text.doc, build, *filled, **own)


_HOLDS = number("beta", "how much it holds to the reference", above=0)
_SCALE = number("beta", "scale of the logprobs", above=0)
_SMOOTHING = number(
    "label_smoothing",
    "how many of the pairs are taken for mislabelled",
    low=0,
    below=0.5,
    instead="from 0.5 on the worse reply would be the better one",
)


# The advantages of a stage that only its teachers teach: nothing but 0.
NO_ADVANTAGE = no_advantage()

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
        number(
            "coef",
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
        number("coef", "how much its loss counts beside that of the stage", 1.0, above=0, high=100),
        count("top_k", "how many of its most likely tokens are learnt", 20, high=1_024),
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
        number("reward", "the least reward"),
        example="data = samples(big, env = guess, n = 1_000, keep = at_least(0.5))",
    ),
    builtin(
        "python",
        "keep",
        "those that a function of one's own chooses among the episodes of a task",
        lambda args: KeepPlan("function", None, args.function, args.args),
        function("function", "choice"),
        ARGS,
        example=(
            "data = samples(big, env = guess, n = 512, samples_per_task = 4,\n"
            '  keep = python("choice.py:shortest"))'
        ),
    ),
)
DEFAULT_SAMPLING = SamplingPlan(1_024)


def _samples(args: Args) -> Samples:
    given = dict(args.values)
    return Samples(count=given.pop("n"), size=given.pop("samples_per_task"), **given)


STAGE_PARTS = (
    _data(
        Demonstrations,
        "episodes of an environment that went well",
        Param("env", "env", "where they are played"),
        count("n", "how many", high=10_000_000),
        word(
            "policy",
            "who plays: the environment's own oracle, or the model itself",
            ("oracle", "model"),
            "oracle",
        ),
        number("min_reward", "an episode with less is left out", 1.0),
        example="data = demonstrations(guess, n = 2_000)",
    ),
    _data(
        Rows,
        "prompts and replies from the rows of a file or data set",
        _FILE,
        text(
            "prompt", "field of the prompt: text, or a list of messages", "prompt", holds="prompt"
        ),
        text("reply", "field of the reply", "reply", holds="text"),
        *_OF_FILES,
        example='data = rows("pairs.jsonl", prompt = "question", reply = "answer")',
    ),
    _data(
        Chats,
        "chats from the rows of a file or data set, with several turns and tools",
        evolve(_FILE, form=(ROWS, "chats.jsonl")),
        word(
            "train_on",
            "which of the assistant's messages are trained on",
            ("all", "last", "last_turn"),
            "all",
        ),
        optional(
            "messages",
            "string",
            "field of the messages; none: `messages`, or `conversations`",
            holds="messages",
        ),
        *_OF_FILES,
        example='data = chats("chats.jsonl", train_on = last)',
    ),
    _data(
        BuilderData,
        "the examples of a SupervisedDatasetBuilder of tinker-cookbook, images and sounds too",
        code("builder", "where the builder is"),
        ARGS,
        text("split", "its training or its test set", "train", choices=USUAL),
        *_OF_ROWS,
        formula=(
            "L = − Σ_t w log p_t",
            "t: the tokens that are trained on, w: what the builder has those of an example weigh",
        ),
        traits=DataTraits(
            {
                **dict.fromkeys((*COOKBOOK_MODEL, *COOKBOOK_RENDERER, COOKBOOK_COMMON), "model"),
                COOKBOOK_BATCH: "batch",
            }
        ),
        example=(
            "data = cookbook(\n"
            '  "tinker_cookbook.recipes.vlm_classifier.data:Caltech101DatasetBuilder",\n'
            "  args = { examples_per_class = 4 },\n"
            ")"
        ),
    ),
    _data(
        Pairs,
        "pairs of replies of which one is better, from the rows of a file or data set",
        evolve(_FILE, form=(ROWS, "pairs.jsonl")),
        _PROMPT,
        _column("chosen", "the better reply: text, messages, or a whole chat", "`chosen`"),
        _column("rejected", "the worse reply, of the same form", "`rejected`"),
        *_OF_FILES,
        _column("chosen_rating", "the better reply's rating, for a loss that reads it", _RATED[0]),
        _column("rejected_rating", "that of the worse reply", _RATED[1]),
        _column("margin", "by how much the better reply is better, in place of both", "`margin`"),
        example='data = pairs("pairs.jsonl")',
    ),
    _data(
        LabelledReplies,
        "replies that are good or bad, from the rows of a file or data set",
        evolve(_FILE, form=(ROWS, "labelled.jsonl")),
        _PROMPT,
        _column("reply", "the reply: text or messages", "`completion`, `response`, `reply`"),
        _column("label", "whether it is good, true or false", "`label`"),
        *_OF_FILES,
        _column("rating", "how good it is, for a loss that reads it", "`rating`, `score`"),
        example=('data = labelled("rated.jsonl")\nloss = kto()'),
    ),
    _data(
        PreferredPairs,
        "pairs that a model makes: of several replies to a task the best and the worst",
        Param("model", "model", "who replies: a model, or a stage as it ends"),
        Param("env", "env", "what it is asked, and what rewards the replies"),
        count("n", "how many pairs; tasks whose rewards are all equal make none"),
        Param("samples", "int", "replies to each task", 4, low=2, high=1_024),
        example="data = preferred(policy, env = guess, n = 512, samples = 4)",
    ),
    _loss("dpo", _HOLDS, _SMOOTHING, example="loss = dpo(beta = 0.1)"),
    _loss("ipo", _HOLDS, example="loss = ipo(beta = 0.1)"),
    _loss(
        "simpo",
        number("beta", "scale of the mean logprobs", above=0),
        number("gamma", "margin that is aimed at", low=0),
        beta=(0.5, 20.0),
        example="loss = simpo(beta = 2.0, gamma = 1.0)",
    ),
    _loss(
        "cpo",
        _SCALE,
        number("alpha", "weight of the log-likelihood of the better replies", low=0),
        _SMOOTHING,
        example="loss = cpo(beta = 0.1)",
    ),
    _loss(
        "orpo",
        number("beta", "weight of the odds ratio", above=0),
        example="loss = orpo(beta = 0.1)",
    ),
    _loss(
        "brier",
        number("beta", "scale of the logprobs; with 1 they are probabilities", above=0),
        aliases="brier_score decisions",
        example="loss = brier()",
    ),
    _loss(
        "kto",
        _HOLDS,
        number("desirable", "weight of the good replies", low=0),
        number("undesirable", "weight of the bad replies", low=0),
        example=('data = labelled("rated.jsonl")\nloss = kto(beta = 0.1, undesirable = 1.5)'),
    ),
    builtin(
        "samples",
        "data",
        "episodes that a model plays: rejection sampling, expert iteration, off-policy "
        "distillation",
        _samples,
        Param("model", "model", "who plays: a model as it is declared, or as a stage leaves it"),
        Param("env", "env", "where they are played"),
        count("n", "how many are learnt from", high=10_000_000),
        Param("keep", "keep", "which of a task's episodes are learnt from", KeepPlan("solved")),
        count("samples_per_task", "episodes of each task", 1, high=1_024),
        optional("per_task", "int", "most of a task that are learnt from; none: all", low=1),
        count("tries", "most episodes played for each that is wanted", 20, high=10_000),
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
    ),
    _at(
        "pass_at",
        "chance that one of k episodes solves the task, without bias (arXiv 2107.03374)",
        "pass@k = mean over tasks of 1 − C(n−c, k) / C(n, k)",
    ),
    _at(
        "any_at",
        "share of tasks that one of the first k episodes solves",
        "any@k = mean over tasks of [c_k > 0]",
    ),
    Builtin(
        "mean_reward",
        "metric",
        "mean reward of all episodes",
        lambda _: MetricPlan("mean_reward", None),
        traits=MetricTraits(share=False),
        example=("samples  = 8\nsampling = sample(max_tokens = 512)\nmetrics  = [mean_reward()]"),
    ),
    Builtin(
        "win_rate",
        "metric",
        "share of the matches of a game that were won; one that was drawn, or cut off, was not",
        lambda _: MetricPlan("win_rate", None),
        traits=MetricTraits(of_games=True),
        example=(
            'env      = textarena("TicTacToe-v0") |> chat() |> play(against = big)\n'
            "samples  = 8\n"
            "sampling = sample(max_tokens = 512)\n"
            "metrics  = [win_rate()]"
        ),
    ),
    _tracker(
        "wandb",
        "Weights & Biases (WANDB_API_KEY in the environment)",
        TrackerTraits(
            "wandb",
            "metrics to wandb",
            Key("WANDB_API_KEY", "", "a login of wandb"),
            scripted=True,
        ),
        _PROJECT,
        _RUN,
        example='track = wandb("my-project")',
    ),
    _tracker(
        "trackio",
        "trackio, on this machine",
        TrackerTraits("trackio", "metrics to trackio"),
        _PROJECT,
        _RUN,
        example='track = trackio("my-project")',
    ),
    _tracker(
        "tensorboard",
        "event files in the run folder",
        TrackerTraits("tensorboardX", "event files in the run folder, tensorboard/{stage}"),
    ),
    _tracker(
        "openreward_rollouts",
        "episodes uploaded to OpenReward (OPENREWARD_API_KEY in the environment)",
        TrackerTraits("openreward", "episodes to OpenReward", OPENREWARD_KEY, "openreward"),
        text("run", "name of the run"),
        example=(
            'env   = openreward("GeneralReasoning/WhoDunIt")\ntrack = openreward_rollouts("my-run")'
        ),
    ),
)
