"""The optimiser, batches, sampling, overlap, checkpoints, budgets, failures and sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from rlc.catalog.records import (
    Args,
    Builtin,
    Param,
    as_float,
    builtin,
    count,
    number,
    optional,
    share,
    text,
    word,
)
from rlc.plan import (
    LONGEST_TTL,
    RUN_WEIGHTS,
    SHORTEST_TTL,
    AdamPlan,
    BatchPlan,
    BudgetPlan,
    DeadlinesPlan,
    FailurePlan,
    GiveUpPlan,
    KlGuardPlan,
    OverlapPlan,
    PlayersPlan,
    PricePlan,
    SamplingPlan,
    SavePlan,
    SchedulePlan,
)
from rlc.records import frozen

if TYPE_CHECKING:
    from rlc.plan import RangePlan, SearchPlan


# What a stage has where the recipe leaves it out.
DEFAULT_SCHEDULE = SchedulePlan("constant", 0, 1.0)
DEFAULT_OVERLAP = OverlapPlan("synchronous", 1, 0)


def _asynchronous(args: Args) -> OverlapPlan:
    parts = args.minibatches
    order: Literal["fixed"] | None = "fixed" if parts == 1 else None
    return OverlapPlan("asynchronous", parts, args.max_staleness, order)


DEFAULT_SAVE = SavePlan(every=None, keep=3, ttl_seconds=None, best=False, rolling=1)
DEFAULT_BUDGET = BudgetPlan(None, None, None)
DEFAULT_DEADLINES = DeadlinesPlan(request=15 * 60.0, unreachable=60.0, step=None)
DEFAULT_GIVE_UP = GiveUpPlan(steps=3, share=1.0)
DEFAULT_FAILURE = FailurePlan(retries=1, then="drop", penalty=None)

_DECADE = 10 * 365 * 24 * 3_600  # seconds
_FLOOR = share("floor", "share of the rate that it falls towards", 0.0)
_DONE = "x = (s − w) / (steps + 1 − w), w = max(warmup, 1): the last step still learns"
GROUP_SIZE = count(
    "group_size", "rollouts of each task", 8, high=1_024, formerly=("of", "group", "size")
)
_UPDATES = count("updates", "optimiser updates a batch is split into", 1, high=64)
DAY = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
STOP = text(
    "stop",
    "texts that end a reply, which keeps them; the renderer's own end of a turn goes on holding",
    (),
    form=(r"(?s).+", "</answer>"),
    many=True,
)


@frozen(eq=False)
class PlayersTraits:
    """Traits of players. ``package``: what they need, which is installed with rlc's ``extra``."""

    package: str | None = None
    extra: str | None = None


RAY = "ray"
# What of a Ray cluster is taken, and where it is.
CLUSTER = (
    number("cpus", "CPUs that each actor reserves", 1.0, low=0),
    Param(
        "resources",
        "record",
        "other resources of a node that each actor reserves, as the cluster names them",
        {},
    ),
    optional(
        "address",
        "string",
        "of the cluster; none: that of RAY_ADDRESS, or else one on this machine",
    ),
)
_MOST_PLAYERS = 1_024


@frozen
class RecommendedRate:
    """So many ``times`` the learning rate that the base model of a stage decides."""

    times: Any


def _schedule(name: Any, doc: str, formula: tuple[str, ...], *params: Param) -> Builtin:
    return builtin(
        name,
        "schedule",
        doc,
        lambda args: SchedulePlan(name, args.warmup, args.values.get("floor", 1.0)),
        Param("warmup", "int", "steps in which the rate rises from zero", 0, low=0),
        *params,
        formula=formula,
        example=f"optimizer = adam(1e-4, schedule = {name}(warmup = 5))",
    )


def _price(args: Args) -> PricePlan:
    """Return the prices of a recipe. Reading from a cache is as dear as reading, unless it says."""
    prices = {name: as_float(args.values[name]) for name in PRICES}
    if prices["cached"].data is None:
        prices["cached"] = prices["prefill"]
    return PricePlan(**prices, as_of=args.as_of, source="")


def retry_then(retries: Args, then: FailurePlan) -> FailurePlan:
    """Return ``retry(n) then drop``."""
    return FailurePlan(retries.n, then.then, then.penalty)


_PRICES_OF = {
    "prefill": "of a million tokens of prompts",
    "sample": "of a million tokens that it writes",
    "train": "of a million tokens that are trained on",
    "cached": "of a million tokens of prompts that the service has just read; none: as `prefill`",
    "checkpoint": "of a checkpoint that is kept for a month; none: by its size, if that is known",
}
PRICES = tuple(_PRICES_OF)

# A state that Tinker keeps, one of another service, whose paths have a form of their own, or one of
# this machine; and an example.
_OTHER_STATES = r"(?!tinker|local|https?)[a-z][a-z0-9+.-]*://.+"
SAVED_STATE = (rf"tinker://.+/weights/.+|{_OTHER_STATES}|{RUN_WEIGHTS}", "runs/NAME@main:20")

SETTINGS = (
    builtin(
        "state",
        "state",
        "saved weights with the state of their optimiser, so that training goes on as it would "
        "have: what an earlier run has left, a file of its checkpoints, or what a service keeps",
        lambda args: args.weights,
        text(
            "weights",
            "a run (its best or last state, or `runs/x@main:20`), a file, a `tinker://` path",
            form=SAVED_STATE,
            file=RUN_WEIGHTS,
        ),
        example='base = "Qwen/Qwen3-8B"\nweights = state("tinker://run-id/weights/000050")',
    ),
    builtin(
        "price",
        "price",
        "what a model costs on its service, as its user states it",
        _price,
        *(optional(name, "money", doc, low=0) for name, doc in _PRICES_OF.items()),
        text(
            "as_of",
            "the day that the prices are of",
            None,
            form=(DAY, "2026-11-20"),
            optional=True,
        ),
        example='base = "vendor/New-8B"\nservice = tinker\nrenderer = llama3\ncontext = 65_536\n'
        'price = { prefill = $0.2  sample = $0.6  train = $0.6  as_of = "2026-11-20" }',
    ),
    builtin(
        "adam",
        "optimizer",
        "Adam with decoupled weight decay",
        lambda args: AdamPlan(**args.values),
        number("learning_rate", "step size", low=0, high=1, also="rate"),
        number("beta1", "decay of the gradient's mean", 0.9, low=0, below=1),
        number("beta2", "decay of the squared gradient's mean", 0.95, low=0, below=1),
        number("eps", "added to the root of the squared mean", 1e-8, above=0, high=1),
        share("weight_decay", "decoupled weight decay", 0.0),
        number("grad_clip_norm", "largest gradient norm; 0 for any", 0.0, low=0),
        Param("schedule", "schedule", "learning rate over the steps", DEFAULT_SCHEDULE),
        aliases="adamw adam_w adamw_torch",
        example="optimizer = adam(1e-4, grad_clip_norm = 1.0)",
    ),
    builtin(
        "recommended_rate",
        "rate",
        "the learning rate that tinker-cookbook's get_lr gives for the model that is trained: for "
        "supervised training with LoRA",
        lambda args: RecommendedRate(args.times),
        number("times", "so many times that; RL mostly takes a tenth", 1.0, above=0, high=100),
        formula=("lr = times · 5e-4 · (2000 / hidden size)^p, p = 0.0775 (Qwen) or 0.781 (Llama)",),
        example="model = qwen\noptimizer = adam(recommended_rate(0.1))",
    ),
    _schedule(
        "constant",
        "the full learning rate from the end of the warm-up on",
        ("lr_s = lr min(1, s / warmup)",),
    ),
    _schedule(
        "linear",
        "down in a straight line towards the floor, as in tinker-cookbook 0.5.8",
        ("lr_s = lr (1 − (1 − floor) x)", _DONE),
        _FLOOR,
    ),
    _schedule(
        "cosine",
        "down along half a cosine towards the floor, as in tinker-cookbook 0.5.8",
        ("lr_s = lr (floor + (1 − floor) (1 + cos π x) / 2)", _DONE),
        _FLOOR,
    ),
    builtin(
        "groups",
        "batch",
        "groups of rollouts that share one task, so that they can be compared",
        lambda a: BatchPlan("groups", a.count, a.group_size, None, a.updates, a.resample),
        count("count", "tasks in a step", high=10_000),
        GROUP_SIZE,
        _UPDATES,
        Param(
            "resample",
            "int",
            "most groups a step that are replaced because all their rewards are equal",
            0,
            low=0,
            high=100_000,
        ),
        example="batch = groups(16, group_size = 8)",
    ),
    builtin(
        "turns",
        "batch",
        "single episodes until there are enough turns, then a random choice of exactly so many; "
        "fewer if as many replies are lost with episodes that fail",
        lambda args: BatchPlan("turns", args.count, 1, args.parallel, args.updates),
        count("count", "turns that a step trains on", high=1_000_000),
        count("parallel", "episodes played side by side", 64, high=10_000),
        _UPDATES,
        example=("batch     = turns(128, parallel = 64)\nadvantage = rebn()"),
    ),
    builtin(
        "sample",
        "sampling",
        "how replies are sampled",
        lambda args: SamplingPlan(**args.values),
        count("max_tokens", "longest reply, in tokens"),
        number(
            "temperature",
            "1 samples the model itself",
            1.0,
            above=0,
            high=10,
            instead="`top_k = 1` always takes the most likely token, at any temperature",
        ),
        number("top_p", "share of the probability to sample from", 1.0, above=0, high=1),
        Param("top_k", "int", "most likely tokens to sample from; -1 for all", -1, low=-1),
        optional(
            "max_prompt_tokens",
            "int",
            "a longer prompt ends the episode; none: the model's context decides",
            low=1,
        ),
        optional(
            "max_episode_tokens",
            "int",
            "longest episode, prompts and replies together; none: the model's context decides",
            low=1,
        ),
        optional(
            "concurrency",
            "int",
            "most replies sampled at once; none: as many as the service bears",
            low=1,
            high=100_000,
        ),
        STOP,
        aliases="generate generation sampling_params",
        example="sampling = sample(max_tokens = 512)",
    ),
    Builtin(
        "synchronous",
        "overlap",
        "sample, then train: every rollout comes from the newest weights",
        lambda _: OverlapPlan("synchronous", 1, 0),
    ),
    builtin(
        "streamed",
        "overlap",
        "the gradient of a batch is taken in parts, as soon as the groups of a part are there; "
        "what needs the whole batch waits for it",
        lambda args: OverlapPlan("streamed", args.minibatches, 0, args.order),
        Param("minibatches", "int", "most parts of a batch", 4, low=2, high=1_024),
        optional(
            "order",
            "word",
            "what makes a part: the groups that are ready, or a fixed choice, so that a run "
            "on this machine repeats itself to the bit; none: fixed on this machine only",
            choices=("ready", "fixed"),
        ),
        example="overlap = streamed(minibatches = 4)",
    ),
    builtin(
        "asynchronous",
        "overlap",
        "sampling goes on while training: a rollout may come from somewhat older weights",
        _asynchronous,
        Param(
            "max_staleness",
            "int",
            "most steps that its weights lag; 0: none does, as in `synchronous()`",
            1,
            low=0,
            high=64,
        ),
        Param(
            "minibatches",
            "int",
            "most parts of a batch, as in `streamed()`: a step's gradient begins before its last "
            "group is there",
            1,
            low=1,
            high=1_024,
        ),
        example=("loss    = cispo()\noverlap = asynchronous(max_staleness = 2)"),
    ),
    builtin(
        "every",
        "save",
        "a checkpoint every so many steps and at the end",
        lambda args: SavePlan(args.n, args.keep, args.ttl, args.best, args.rolling),
        count("n", "steps from one checkpoint to the next"),
        count("keep", "newest checkpoints that are kept", 3),
        optional(
            "ttl",
            "duration",
            "time after which the service may delete one",
            low=SHORTEST_TTL,
            high=LONGEST_TTL,
        ),
        Param(
            "best",
            "bool",
            "also keep the one with the best reward, or what else the stage is about",
            False,
        ),
        count(
            "rolling",
            "newest steps whose state is kept too, to go on from if the run is killed",
            1,
            high=100,
            optional=True,
        ),
        example="save = every(10, keep = 3, ttl = 7d)",
    ),
    builtin(
        "limit",
        "budget",
        "what a stage may use before it stops with a checkpoint",
        lambda args: BudgetPlan(args.usd, args.tokens, as_float(args.time)),
        optional("usd", "money", "most to spend", above=0),
        optional("tokens", "int", "most tokens, of all kinds together", low=1),
        optional("time", "duration", "longest time", above=0),
        example="budget = limit(usd = $60, time = 12h)",
    ),
    Builtin(
        "drop",
        "failure",
        "leave the failed rollout out and go on",
        lambda _: FailurePlan(0, "drop", None),
        word=True,
        example="on_error = retry(3) then drop",
    ),
    Builtin(
        "stop",
        "failure",
        "stop the run at the first failure",
        lambda _: FailurePlan(0, "stop", None),
        word=True,
        example="on_error = retry(3) then stop",
    ),
    builtin(
        "penalise",
        "failure",
        "count the failed rollout with a reward of its own",
        lambda args: FailurePlan(0, "penalise", args.reward),
        number("reward", "what a failed rollout gets"),
        example="on_error = retry(2) then penalise(-1)",
    ),
    builtin(
        "retry",
        "retry",
        "play the rollout again, up to n times; `then` says what if that fails too",
        lambda args: args,
        count("n", "attempts after the first", high=100),
        example="on_error = retry(3) then drop",
    ),
    builtin(
        "failures",
        "give_up",
        "ends a run, resumable, in which step after step fails",
        lambda args: GiveUpPlan(**args.values),
        count("steps", "such steps in a row", 3),
        number("share", "share of failed rollouts in each", 1.0, above=0, high=1),
        example="give_up = failures(steps = 3, share = 0.5)",
    ),
    builtin(
        "deadlines",
        "deadlines",
        "how long a stage waits before it ends, resumable, with what it waited for",
        lambda args: DeadlinesPlan(
            **{name: as_float(value) for name, value in args.values.items()}
        ),
        Param(
            "request",
            "duration",
            "longest silence of a service that owes answers and does not say that it pauses",
            15 * 60,
            above=0,
            high=_DECADE,
        ),
        Param(
            "unreachable",
            "duration",
            "longest time that its server cannot be reached",
            60,
            above=0,
            high=_DECADE,
        ),
        optional(
            "step",
            "duration",
            "longest time from one finished step to the next; none: for ever",
            above=0,
            high=_DECADE,
        ),
        example="deadlines = deadlines(request = 15m, unreachable = 5m)",
    ),
    Builtin(
        "here",
        "players",
        "episodes are played in the process of the run, all in one interpreter",
        lambda _: PlayersPlan("here"),
        word=True,
        traits=PlayersTraits(),
        example="players = here",
    ),
    builtin(
        "processes",
        "players",
        "episodes are played, and their replies asked for, by processes of this machine",
        lambda args: PlayersPlan("processes", args.count),
        optional("count", "int", "how many; none: one for each core", low=1, high=_MOST_PLAYERS),
        traits=PlayersTraits(),
        example="players = processes(8)",
    ),
    builtin(
        RAY,
        "players",
        "episodes are played, and their replies asked for, by actors of a Ray cluster",
        lambda args: PlayersPlan(
            "ray", args.count, as_float(args.cpus), args.resources, args.address
        ),
        optional("count", "int", "how many; none: as many as fit", low=1, high=_MOST_PLAYERS),
        *CLUSTER,
        traits=PlayersTraits("ray", "ray"),
        example="players = ray(32, cpus = 1)",
    ),
    builtin(
        "kl_guard",
        "kl_guard",
        "watches how far the trainer's logprobs are from the sampler's",
        lambda args: KlGuardPlan(**args.values),
        number("max", "most that is normal, in nats a token", 0.1, above=0, high=100),
        word(
            "then",
            "what happens above it: a warning, an end to asynchronous steps, or to the run",
            ("warn", "synchronous", "stop"),
            "warn",
            noun="reaction",
        ),
        formula=("d_t = log p_trainer,t − log q_sampler,t", "kl = mean(d_t² / 2)"),
        example="kl_guard = kl_guard(max = 0.1, then = stop)",
    ),
)


def _range(args: Args, scale: Literal["linear", "log"]) -> RangePlan:
    from rlc.plan import RangePlan  # most recipes have no sweep

    step: Any = args.values.get("step")
    given = [args.low, args.high, *([step] if step is not None and step.data else [])]
    whole = all(float(value.data).is_integer() for value in given) and scale == "linear"
    return RangePlan(scale, args.low, args.high, step, whole)


def _search(
    name: str, doc: str, example: str, *params: Param, learns: bool = False, aliases: str = ""
) -> Builtin:
    """Return a search, whose parameters have the names of its record's fields."""

    def build(args: Args) -> SearchPlan:
        from rlc.plan import SearchPlan

        return SearchPlan(name, **{"n": None, **args.values, "learns": learns})

    return builtin(name, "search", doc, build, *params, example=example, aliases=aliases)


def _tried(rates: str, search: str) -> str:
    """Return an example of a sweep over learning rates."""
    over = f"{{ main.optimizer.learning_rate = {rates} }}"
    return f"of     = main\nover   = {over}\nsearch = {search}"


_N = count("n", "configurations that are tried", high=10_000)

SWEEPS = (
    builtin(
        "range",
        "axis",
        "numbers from low to high, all equally likely; whole ones if its arguments are whole",
        lambda args: _range(args, "linear"),
        number("low", "the smallest"),
        number("high", "the largest"),
        optional("step", "float", "only every so many; none: any", above=0),
        example=_tried("range(1e-5, 1e-4)", "random(20)"),
    ),
    builtin(
        "log",
        "axis",
        "numbers from low to high, whose logarithms are all equally likely",
        lambda args: _range(args, "log"),
        number("low", "the smallest", above=0),
        number("high", "the largest", above=0),
        example=_tried("log(1e-5, 1e-3)", "random(20)"),
    ),
    _search("grid", "every configuration of the axes", _tried("[1e-5, 4e-5, 1e-4]", "grid()")),
    _search(
        "random",
        "configurations sampled at random, none twice (Optuna's RandomSampler)",
        _tried("log(1e-5, 1e-3)", "random(20)"),
        _N,
    ),
    _search(
        "tpe",
        "configurations sampled where the best ones so far were dense, after the first ten, which "
        "are random (Optuna's TPESampler, NeurIPS 2011)",
        _tried("log(1e-5, 1e-3)", "tpe(20)"),
        _N,
        learns=True,
        aliases="bayes bayesian optuna",
    ),
    _search(
        "halving",
        "configurations of which only the best of each eta go on at every rung, as evaluated "
        "during the stage (Optuna's SuccessiveHalvingPruner, arXiv 1810.05934)",
        _tried("log(1e-5, 1e-3)", "halving(eta = 3, n = 9)"),
        Param("eta", "int", "one of so many goes on", 3, low=2, high=100),
        optional(
            "n", "int", "configurations, sampled at random; none: every one", low=1, high=10_000
        ),
        optional("first", "int", "steps to the first rung; none: to the first evaluation", low=1),
        aliases="asha hyperband sha",
    ),
)
