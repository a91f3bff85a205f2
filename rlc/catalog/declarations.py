"""The declarations of the language and the fields of those that are blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlc.catalog.builtins.losses import DEFAULT_AGGREGATE
from rlc.catalog.builtins.stages import NO_ADVANTAGE
from rlc.catalog.builtins.training import (
    DEFAULT_BUDGET,
    DEFAULT_DEADLINES,
    DEFAULT_FAILURE,
    DEFAULT_GIVE_UP,
    DEFAULT_OVERLAP,
    DEFAULT_SAVE,
    SAVED_STATE,
)
from rlc.catalog.facts import model_names, renderer_names
from rlc.catalog.index import KINDS
from rlc.catalog.providers import provider_names
from rlc.catalog.records import (
    MODEL_FOLDER,
    Declaration,
    Param,
    StageTraits,
    WatchedMetric,
    count,
    optional,
    text,
    word,
)
from rlc.plan import RUN_WEIGHTS, MetricPlan

if TYPE_CHECKING:
    from rlc.algo import Kind as ExpressionKind

_MODEL = Param("model", "model", "what is trained: a model, or an earlier stage's")
_STEPS = count("steps", "number of updates", None)
_EPOCHS = count("epochs", "how often all tasks are gone through, instead of `steps`", None)
_SAVE = Param("save", "save", "when checkpoints are made; by default at the end", DEFAULT_SAVE)
_BUDGET = Param("budget", "budget", "most to spend; by default no limit", DEFAULT_BUDGET)
_TRACK = Param("track", "tracker", "where metrics go beside the run folder", (), many=True)
_DEADLINES = Param("deadlines", "deadlines", "how long it waits for what", DEFAULT_DEADLINES)
_PLAYERS = Param(
    "players",
    "players",
    "who plays its episodes; by default, for many at once on a service, a process for each core",
    None,
)
_OPTIMIZER = Param("optimizer", "optimizer", "how the gradient becomes an update")
_UPDATES = (_OPTIMIZER, _STEPS, _EPOCHS)
_LOSS = WatchedMetric("loss", "loss/mean", rises=False)
_LIMITS = (_SAVE, _DEADLINES, _BUDGET, _TRACK)


def _heldout(kind: str, what: str) -> tuple[Param, Param]:
    return (
        optional("heldout", kind, f"{what} and not learnt from, at the end; by default none"),
        optional(
            "every",
            "int",
            "the held-out ones are compared after so many steps too; none: at the end only",
            low=1,
        ),
    )


def _batch(doc: str) -> Param:
    return count("batch", doc, 32, high=100_000)


TRAIN_FIELDS = (
    _MODEL,
    Param("env", "env", "what it is trained on; a weighted sum is a mixture"),
    word(
        "weight",
        "how often each environment of a mixture is played: by its weight alone, or by that times "
        "its number of tasks, so that all tasks come equally often",
        ("given", "tasks"),
        "given",
    ),
    Param("batch", "batch", "what one step collects"),
    Param("sampling", "sampling", "how replies are sampled"),
    Param(
        "advantage",
        "advantage",
        "how much better than its peers a rollout was; may be left out where a teacher scores",
        implied=("teacher", NO_ADVANTAGE),
    ),
    Param("aggregate", "aggregate", "how token losses add up", DEFAULT_AGGREGATE),
    Param("loss", "loss", "what the gradient is taken of"),
    optional("kl", "kl", "a penalty on leaving a reference; by default none"),
    Param(
        "teacher",
        "teacher",
        "a model that scores each token, or one for each environment; by default none",
        (),
        named=True,
    ),
    optional(
        "observations",
        "float",
        "weight of the log-likelihood of what comes between replies (ECHO); by default none",
        above=0,
    ),
    _OPTIMIZER,
    Param("overlap", "overlap", "whether sampling and training overlap", DEFAULT_OVERLAP),
    _PLAYERS,
    _STEPS,
    _EPOCHS,
    *_heldout("data", "examples whose log-likelihood is scored"),
    _SAVE,
    Param("on_error", "failure", "what becomes of a failed rollout", DEFAULT_FAILURE),
    Param(
        "give_up", "give_up", "when so much fails that the run ends", DEFAULT_GIVE_UP, optional=True
    ),
    _DEADLINES,
    optional(
        "kl_guard",
        "kl_guard",
        "what happens where trainer and sampler drift apart; by default nothing",
    ),
    _BUDGET,
    _TRACK,
)

SFT_FIELDS = (
    _MODEL,
    Param("data", "data", "what it learns to say"),
    _batch("examples in a step"),
    *_UPDATES,
    *_heldout("data", "examples that are scored"),
    *_LIMITS,
)

PREFERENCE_FIELDS = (
    _MODEL,
    Param("data", "preferences", "which replies are better, or good"),
    Param("loss", "preference_loss", "what the gradient is taken of"),
    Param(
        "reference",
        "model",
        "what the loss compares with: a model, or a stage; by default what the stage starts from",
        None,
    ),
    _batch("pairs, or labelled replies, in a step"),
    *_UPDATES,
    *_heldout("preferences", "preferences that are compared"),
    *_LIMITS,
)

EVAL_FIELDS = (
    Param("model", "model", "what is evaluated: a model, or a stage's"),
    Param("env", "env", "what it is evaluated on"),
    count("tasks", "tasks that are played", 64, high=1_000_000),
    count("samples", "episodes of each task", 1, high=1_024),
    Param("sampling", "sampling", "how replies are sampled; by default as in the stage", None),
    Param("metrics", "metric", "what is counted", (MetricPlan("mean_reward", None),), many=True),
    optional("every", "int", "also after so many steps of the stage; none: at its end only", low=1),
    Param("first", "bool", "also before the first step of the stage", False),
    _PLAYERS,
)


# The types that a param can be declared with.
PARAM_TYPES = ("int", "float", "bool", "string", "money", "duration")

MODEL_FIELDS = (
    text(
        "base",
        "a model of the catalogue, or a folder of this machine",
        file=MODEL_FOLDER,
        suggests=model_names,
    ),
    count("lora_rank", "rank of the LoRA adapter, a power of two", 32),
    Param("train_mlp", "bool", "adapt the feed-forward layers", True),
    Param("train_attn", "bool", "adapt the attention layers", True),
    Param("train_unembed", "bool", "adapt the output layer", True),
    optional(
        "weights",
        "string",
        "what to start from: an earlier run (its best or last state, or `runs/x@main:20`), an "
        "adapter of PEFT in a folder, a state that Tinker keeps; `state(…)` of any of these but an "
        "adapter also goes on with its optimiser; none: a fresh adapter",
        form=SAVED_STATE,
        file=RUN_WEIGHTS,
        also="state",
    ),
    text(
        "renderer",
        "how a chat becomes tokens; by default the one recommended for the model",
        None,
        choices=renderer_names,
        noun="renderer",
    ),
    word(
        "service",
        "where it is trained; by default where the model lives",
        provider_names,
        None,
        noun="service",
    ),
    optional(
        "context",
        "int",
        "tokens that it holds; by default as the catalogue, the project or the server says",
        low=1,
    ),
    optional("price", "price", "what it costs; by default as the project or the catalogue says"),
)

SWEEP_FIELDS = (
    Param("of", "stage", "the stage that is tried, with those that it needs"),
    Param("over", "axis", "what is varied: values, or a range, of each param or field", named=True),
    count("seeds", "runs of each configuration, each with a seed of its own", 1, high=100),
    Param(
        "metric",
        "measure",
        "what the runs are compared by; by default the first metric of the stage's evaluation",
        None,
    ),
    Param("search", "search", "how configurations are chosen; by default `grid()`", None),
    Param("budget", "budget", "most to spend on all of it; by default no limit", DEFAULT_BUDGET),
)

CLAIM_FIELDS = (
    Param("of", "sweep", "the sweep, whose configurations are compared by its metric"),
    Param("that", "comparison", "what is claimed of the mean over the seeds"),
    Param("level", "float", "how sure a verdict has to be", 0.95, above=0.5, below=1),
    Param(
        "early",
        "bool",
        "whether the sweep leaves out the seeds of a configuration whose claims are decided",
        True,
    ),
)

TEST_STEPS = 3  # updates of a rehearsal where a test says nothing else

TEST_FIELDS = (
    optional("env", "env", "where the replies are given; by default none"),
    Param(
        "task",
        "task",
        "a row of your own, `{ question = …, answer = … }`, or the number of a task of the "
        "environment, from 0",
        0,
    ),
    Param(
        "replies",
        "string",
        "what a scripted model replies, one turn after the other",
        (),
        many=True,
    ),
    Param(
        "judge",
        "any",
        "what judges score in place of their models, from 0 to 1: a number for all, a record by "
        "judge, or a list in the order in which `expect` names replies",
        None,
    ),
    optional(
        "rehearse",
        "stage",
        "a stage to run on the tiny model, with those that it needs and its evaluations",
    ),
    count("steps", "number of updates of the rehearsal", TEST_STEPS, high=1_000),
    Param("within", "duration", "most that the rehearsal may take", 60, above=0),
    Param("expect", "expectation", "what has to hold, in a list", many=True),
)

# How an episode ends: by itself, at a limit, or not within the replies of a test.
ENDS = ("done", "truncated", "turns", "context", "prompt", "tokens", "form", "failed", "unfinished")

# What an expectation of a test may name of an episode; each may be called with the replies.
EPISODE_VALUES = (
    Param("reward", "float", "what an episode is rewarded with; `reward.format`: a component"),
    Param("turns", "int", "number of replies until the episode ended"),
    word("end", "how the episode ended; `unfinished`: it goes on after the last reply", ENDS),
    Param("prompt", "string", "the text that the model sees first"),
    Param("transcript", "string", "the text of the whole episode, prompt and replies included"),
)
CONTAINS, LACKS, NEEDS = "contains", "lacks", "needs"

LOSS_FIELDS = (
    Param("token", "expression", "a loss for each sampled token, added up by `aggregate`", None),
    Param("sequence", "expression", "a loss for each sequence, which counts like a token's", None),
)

ADVANTAGE_FIELDS = (
    Param("episode", "expression", "one advantage for each episode, on all its tokens", None),
    Param("turn", "expression", "one advantage for each turn, on its tokens", None),
    Param("token", "expression", "one advantage for each sampled token", None),
    Param("keep", "expression", "episodes for which it is 0 are left out", None),
    Param("require", "expression", "where it is 0 there is no advantage, and the run stops", None),
)

PREFERENCE_LOSS_FIELDS = (
    Param(
        "pair", "expression", "a loss for each pair of replies, of which a step has a mean", None
    ),
    Param("reply", "expression", "a loss for each labelled reply, in place of one of pairs", None),
)

# Declarations that are blocks of expressions, with the kind of these; of them those of losses.
EXPRESSION_KINDS: Mapping[str, ExpressionKind] = {
    "loss": "loss",
    "advantage": "advantage",
    "preference_loss": "preference",
}
OWN_LOSSES = ("loss", "preference_loss")
EVAL, SWEEP, CLAIM, EXPECT, TEST = "eval", "sweep", "claim", "expect", "test"
AT = "at"
CONFIGURATION = Param(
    AT, "float", "the sweep's metric at one configuration: `at(learning_rate == 1e-4, …)`"
)

DECLARATIONS = {
    item.kind: item
    for item in (
        Declaration(
            "param",
            "a value that the command line can set",
            value="param",
            aliases="var variable let const parameter arg",
            noun="a param",
            reusable=False,
            example="param learning_rate: float = 4e-5",
        ),
        Declaration(
            "model",
            "a base model with a LoRA adapter",
            MODEL_FIELDS,
            aliases="policy actor llm",
            example='base = "tiny"\nlora_rank = 8',
        ),
        Declaration(
            "env",
            "an environment, or a mixture of several",
            value="env",
            aliases="environment task dataset",
        ),
        Declaration(
            "advantage",
            "an advantage scheme: a value, or named parts, then `episode` or `turn`",
            ADVANTAGE_FIELDS,
            value="advantage",
            open=True,
            example="advantage tried {\n  total   = sum(reward)\n"
            "  episode = total - mean(total, over = others)\n}",
        ),
        Declaration(
            "loss",
            "a loss of one's own: named parts, then `token` or `sequence`",
            LOSS_FIELDS,
            aliases="loss_fn objective",
            open=True,
            example="token = -clip(ratio, 0, 5) * adv",
        ),
        Declaration(
            "sft",
            "a stage of supervised training",
            SFT_FIELDS,
            aliases="finetune supervised",
            noun="a training stage",
            traits=StageTraits((_LOSS,), trains_by="supervised training"),
            example="model = policy\ndata = demonstrations(guess, n = 2_000)\n"
            "optimizer = adam(1e-4)\nepochs = 1",
        ),
        Declaration(
            "train",
            "a stage of reinforcement learning",
            TRAIN_FIELDS,
            aliases="training trainer rl stage",
            noun="a training stage",
            traits=StageTraits((WatchedMetric("reward", "reward/mean"),)),
            example="model = policy\nenv = guess\nbatch = groups(16, group_size = 8)\n"
            "sampling = sample(max_tokens = 512)\nadvantage = grpo()\n"
            "loss = importance_sampling()\noptimizer = adam(1e-4)\nsteps = 100",
        ),
        Declaration(
            EVAL,
            "an evaluation",
            EVAL_FIELDS,
            aliases="evaluate evaluation benchmark",
            noun="an evaluation",
            traits=StageTraits(),
            example="model = main\nenv = guess\nsamples = 8\nevery = 20\n"
            "metrics = [pass_at(1), pass_at(8)]",
        ),
        Declaration(
            "preference",
            "a stage that learns from preferences",
            PREFERENCE_FIELDS,
            aliases="dpo align preferences kto orpo simpo",
            noun="a training stage",
            traits=StageTraits(
                (WatchedMetric("accuracy", "accuracy"), WatchedMetric("margin", "margin"), _LOSS),
                trains_by="learning from preferences",
            ),
            example='model = policy\ndata = pairs("pairs.jsonl")\nloss = dpo(beta = 0.1)\n'
            "optimizer = adam(1e-5)\nepochs = 1",
        ),
        Declaration(
            SWEEP,
            "runs of a stage that are compared",
            SWEEP_FIELDS,
            aliases="tune hyperparameters",
            noun="a sweep",
            reusable=False,
            example="of = main\nover = { main.optimizer.learning_rate = [1e-5, 4e-5, 1e-4] }\n"
            "seeds = 3\nbudget = $50",
        ),
        Declaration(
            CLAIM,
            "what a sweep is to show: it holds, does not hold, or cannot be told yet",
            CLAIM_FIELDS,
            aliases="hypothesis verify",
            noun="a claim",
            reusable=False,
            example="of = rates\nthat = at(rate == 1e-4) >= at(rate == 1e-5) - 2%\nlevel = 95%",
        ),
        Declaration(
            EXPECT,
            "what is checked before the run, or after it",
            aliases="assert require ensure check",
            form="expect main.cost.high < $20",
        ),
        Declaration(
            TEST,
            "what `rlc test` checks: what replies earn, what the plan says, what a rehearsal does",
            TEST_FIELDS,
            aliases="tests spec unittest testcase",
            noun="a test",
            reusable=False,
            example='env = guess\nexpect = [reward("five") < 0, contains(prompt, "1 and 10"), '
            'main.loss.name == "importance_sampling", job.cost.high < $20]',
        ),
        Declaration(
            "preference_loss",
            "a loss over preferences of one's own: named parts, then `pair` or `reply`",
            PREFERENCE_LOSS_FIELDS,
            open=True,
            example="margin = chosen - chosen_ref - (rejected - rejected_ref)\n"
            "pair = softplus(-0.1 * margin)",
        ),
    )
}
# Values of all other kinds can have a name, too.
DECLARATIONS |= {
    kind.name: Declaration(kind.name, f"{kind.noun} with a name", value=kind.name)
    for kind in KINDS.values()
    if kind.nameable and kind.name not in DECLARATIONS
}

STAGES = {d.kind: d.traits for d in DECLARATIONS.values() if d.traits is not None}
TRAINING = tuple(kind for kind, traits in STAGES.items() if traits.watched)
