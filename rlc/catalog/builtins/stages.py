"""What the stages take beside training itself: data to imitate, preferences and the losses over
them, metrics, trackers.

Formulas: s is the score of a reply, σ the logistic function, n the number of a reply's tokens, its
end included. Definitions: :mod:`rlc.algo.losses`, which names versions.
"""

from __future__ import annotations

from collections.abc import Callable

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
)
from rlc.catalog.records import Args, Builtin, Param, builtin, code, optional, word
from rlc.catalog.traits import DataTraits, Key, MetricTraits, PreferenceTraits, TrackerTraits
from rlc.plan import (
    AnyData,
    BuilderData,
    Chats,
    Demonstrations,
    LabelledReplies,
    MetricPlan,
    Pairs,
    PreferenceLossPlan,
    PreferredPairs,
    Rows,
    TrackPlan,
)
from rlc.records import evolve


def data_builder(kind: type[AnyData]) -> Callable[[Args], AnyData]:
    """Return what makes the data of a kind, whose fields are called as its parameters are; ``n`` is
    its ``count``."""

    def build(args: Args) -> AnyData:
        given = dict(args.values)
        return kind(count=given.pop("n"), **given)

    return build


_FILE = Param("path", "string", WHERE_ROWS_ARE, form=(ROWS, "demonstrations.jsonl"), file=DATA_FILE)
_OF_ROWS = (
    optional("n", "int", "take the first n rows of it; none: all", low=1),
    optional("max_tokens", "int", "most in a row; none: the model's context", low=2),
    word("too_long", "what becomes of a row with more", ("stop", "drop"), "stop"),
)
OF_FILES = (SPLIT, *_OF_ROWS)
# What a supervised builder of tinker-cookbook is given by other parts of the recipe.
COOKBOOK_COMMON, COOKBOOK_BATCH = "common_config", "batch_size"


DATA = (
    builtin(
        "demonstrations",
        "data",
        "episodes of an environment that went well",
        data_builder(Demonstrations),
        Param("env", "env", "where they are played"),
        Param("n", "int", "how many", low=1, high=10_000_000),
        word(
            "policy",
            "who plays: the environment's own oracle, or the model itself",
            ("oracle", "model"),
            "oracle",
        ),
        Param("min_reward", "float", "an episode with less is left out", 1.0),
        example="data = demonstrations(guess, n = 2_000)",
    ),
    builtin(
        "rows",
        "data",
        "prompts and replies from the rows of a file or data set",
        data_builder(Rows),
        _FILE,
        Param(
            "prompt",
            "string",
            "field of the prompt: text, or a list of messages",
            "prompt",
            holds="prompt",
        ),
        Param("reply", "string", "field of the reply", "reply", holds="text"),
        *OF_FILES,
        example='data = rows("pairs.jsonl", prompt = "question", reply = "answer")',
    ),
    builtin(
        "chats",
        "data",
        "chats from the rows of a file or data set, with several turns and tools",
        data_builder(Chats),
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
        *OF_FILES,
        example='data = chats("chats.jsonl", train_on = last)',
    ),
    builtin(
        "cookbook",
        "data",
        "the examples of a SupervisedDatasetBuilder of tinker-cookbook, images and sounds too",
        data_builder(BuilderData),
        code("builder", "where the builder is"),
        ARGS,
        Param("split", "string", "its training or its test set", "train", choices=USUAL),
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
)


def _at(name: str, doc: str, formula: str) -> Builtin:
    return builtin(
        name,
        "metric",
        doc,
        lambda args: MetricPlan(name, args.k),
        Param("k", "int", "episodes of a task that are looked at", low=1, high=1_024),
        formula=(formula,),
        traits=MetricTraits(),
        example=f"samples  = 8\nsampling = sample(max_tokens = 512)\nmetrics  = [{name}(8)]",
    )


METRICS = (
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
)


def _tracker(name: str, doc: str, traits: TrackerTraits, *params: Param, **more: str) -> Builtin:
    def build(args: Args) -> TrackPlan:
        return TrackPlan(name, dict(args.values))

    return builtin(name, "tracker", doc, build, *params, traits=traits, **more)


_PROJECT = Param("project", "string", "the project that the run is part of")
_RUN = optional("run", "string", "name of the run; none: that of its folder")
_WANDB_KEY = Key("WANDB_API_KEY", instead="a login of wandb")

TRACKERS = (
    _tracker(
        "wandb",
        "Weights & Biases (WANDB_API_KEY in the environment)",
        TrackerTraits("wandb", "metrics to wandb", _WANDB_KEY),
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
        Param("run", "string", "name of the run"),
        example=(
            'env   = openreward("GeneralReasoning/WhoDunIt")\ntrack = openreward_rollouts("my-run")'
        ),
    ),
)


def _source(
    kind: type[Pairs | LabelledReplies], doc: str, *columns: Param, example: str
) -> Builtin:
    name = kind.word
    file = Param("path", "string", WHERE_ROWS_ARE, form=(ROWS, f"{name}.jsonl"), file=DATA_FILE)
    params = (file, *columns, *OF_FILES)
    return Builtin(name, "preferences", doc, data_builder(kind), params, example=example)


def _column(name: str, doc: str, usual: str, **more: str) -> Param:
    return optional(
        name, "string", f"field of {doc}; none: the usual ones, such as {usual}", **more
    )


_PROMPT = _column("prompt", "the prompt, text or messages", "`prompt`, `question`, `instruction`")

PREFERENCES = (
    _source(
        Pairs,
        "pairs of replies of which one is better, from the rows of a file or data set",
        _PROMPT,
        _column("chosen", "the better reply: text, messages, or a whole chat", "`chosen`"),
        _column("rejected", "the worse reply, of the same form", "`rejected`"),
        example='data = pairs("pairs.jsonl")',
    ),
    _source(
        LabelledReplies,
        "replies that are good or bad, from the rows of a file or data set",
        _PROMPT,
        _column("reply", "the reply: text or messages", "`completion`, `response`, `reply`"),
        _column("label", "whether it is good, true or false", "`label`"),
        example=('data = labelled("rated.jsonl")\nloss = kto()'),
    ),
)


PREFERRED = builtin(
    "preferred",
    "preferences",
    "pairs that a model makes: of several replies to a task the best and the worst",
    data_builder(PreferredPairs),
    Param("model", "model", "who replies: a model, or a stage as it ends"),
    Param("env", "env", "what it is asked, and what rewards the replies"),
    Param("n", "int", "how many pairs; tasks whose rewards are all equal make none", low=1),
    Param("samples", "int", "replies to each task", 4, low=2, high=1_024),
    example="data = preferred(policy, env = guess, n = 512, samples = 4)",
)


def _loss(
    name: str,
    doc: str,
    traits: PreferenceTraits,
    formula: tuple[str, ...],
    *params: Param,
    **more: str,
) -> Builtin:
    def build(args: Args) -> PreferenceLossPlan:
        return PreferenceLossPlan(name, dict(args.values))

    own = {"formula": formula, "traits": traits, **more}
    return builtin(name, "preference_loss", doc, build, *params, **own)


def _beta(default: float, doc: str) -> Param:
    return Param("beta", "float", doc, default, above=0)


_SMOOTHING = Param(
    "label_smoothing",
    "float",
    "how many of the pairs are taken for mislabelled",
    0.0,
    low=0,
    below=0.5,
    instead="from 0.5 on the worse reply would be the better one",
)
_HOLDS = "how much it holds to the reference"
_ALPHA = Param("alpha", "float", "weight of the log-likelihood of the better replies", 1.0, low=0)
_RATIO = "s = log p(reply) − log p_ref(reply), summed over its n tokens"

PREFERENCE_LOSSES = (
    _loss(
        "dpo",
        "direct preference optimisation (arXiv 2305.18290; smoothing as in cDPO)",
        PreferenceTraits(reference=True),
        ("L = − (1−ε) log σ(β (s_c − s_r)) − ε log σ(−β (s_c − s_r))", _RATIO),
        _beta(0.1, _HOLDS),
        _SMOOTHING,
        example="loss = dpo(beta = 0.1)",
    ),
    _loss(
        "ipo",
        "identity preference optimisation: a margin to reach and no more (arXiv 2310.12036)",
        PreferenceTraits(reference=True, mean=True),
        ("L = (s_c − s_r − 1/(2β))²", "s = (log p(reply) − log p_ref(reply)) / n"),
        _beta(0.1, _HOLDS),
        example="loss = ipo(beta = 0.1)",
    ),
    _loss(
        "simpo",
        "SimPO: mean logprobs a margin apart, without a reference (arXiv 2405.14734)",
        PreferenceTraits(mean=True, usual_beta=(0.5, 20.0)),
        ("L = − log σ(β (s_c − s_r) − γ)", "s = log p(reply) / n"),
        _beta(2.0, "scale of the mean logprobs"),
        Param("gamma", "float", "margin that is aimed at", 1.0, low=0),
        example="loss = simpo(beta = 2.0, gamma = 1.0)",
    ),
    _loss(
        "cpo",
        "contrastive preference optimisation, without a reference (arXiv 2401.08417)",
        PreferenceTraits(likelihood="reply"),
        (
            "L = − (1−ε) log σ(β (s_c − s_r)) − ε log σ(−β (s_c − s_r)) − α mean(log p)",
            "s = log p(reply); mean(log p): of all tokens of the batch's better replies",
        ),
        _beta(0.1, "scale of the logprobs"),
        _ALPHA,
        _SMOOTHING,
        example="loss = cpo(beta = 0.1)",
    ),
    _loss(
        "orpo",
        "supervised training with an odds ratio, without a reference (arXiv 2403.07691)",
        PreferenceTraits(mean=True, likelihood="all"),
        (
            "L = − β log σ(o_c − o_r) − mean(log p)",
            "o = s − log(1 − exp s), s = log p(reply) / n",
            "mean(log p): of all tokens of the batch's better chats, prompts included",
        ),
        _beta(0.1, "weight of the odds ratio"),
        example="loss = orpo(beta = 0.1)",
    ),
    _loss(
        "brier",
        "Brier's score of how probable the better one of two choices is, without a reference",
        PreferenceTraits(),
        (
            "L = (1 − p_c)² + p_r² = 2 σ(−β (s_c − s_r))²",
            "p = exp(β s), as a share of both; s = log p(reply)",
        ),
        _beta(1.0, "scale of the logprobs; with 1 they are probabilities"),
        aliases="brier_score decisions",
        example="loss = brier()",
    ),
    _loss(
        "kto",
        "Kahneman-Tversky optimisation: replies that are good or bad (arXiv 2402.01306)",
        PreferenceTraits(reference=True, labelled=True),
        (
            "L = w (1 − σ(± β (s − z))), + for a good reply with w = desirable, − for a bad one",
            _RATIO,
            "z = max(0, mean s of replies to other prompts), without a gradient",
        ),
        _beta(0.1, _HOLDS),
        Param("desirable", "float", "weight of the good replies", 1.0, low=0),
        Param("undesirable", "float", "weight of the bad replies", 1.0, low=0),
        example=('data = labelled("rated.jsonl")\nloss = kto(beta = 0.1, undesirable = 1.5)'),
    ),
)
