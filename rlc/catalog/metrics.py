"""The entries of ``metrics.jsonl``, each declared once: the stages that have it, and its values.

`expect` reads them by the same names, with ``.`` for ``/`` and without the stage's own prefix:
``main.kl.sample_train``, ``heldout.pass_at_1``. docs/metrics.md explains the same entries.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, get_args

from rlc.algo import has_running
from rlc.catalog.declarations import STAGES, TRAINING
from rlc.catalog.environments import is_rewarded, roles_of, with_role
from rlc.catalog.index import loss_traits, metric_traits, teacher_traits
from rlc.catalog.records import Role, WatchedMetric
from rlc.plan import Over, Rollouts, StagePlan, TeacherPlan, Unit, metric_label, teacher_of
from rlc.records import evolve, frozen


@frozen(eq=False)
class MetricEntry:
    """Entries of metrics.jsonl that are alike.

    ``keys`` have holes, as of :func:`_fillings`. ``of``: the kinds of stages that have them;
    ``needs``: what else a stage has to have. ``low`` and ``high`` bound them.
    """

    keys: tuple[str, ...]
    of: tuple[str, ...] = ("train",)
    unit: Unit = "number"
    low: float = -math.inf
    high: float = math.inf
    needs: Callable[[StagePlan], bool] = lambda stage: True  # noqa: ARG005


@frozen(eq=False)
class StageMetric:
    """One entry of a stage. ``name`` is its name in a recipe, without the stage."""

    name: str
    key: str
    unit: Unit
    low: float
    high: float


def _share(*keys: str, **more: Any) -> MetricEntry:
    return MetricEntry(keys, unit="share", low=0, high=1, **more)


def _count(*keys: str, **more: Any) -> MetricEntry:
    return MetricEntry(keys, low=0, **more)


def _by_env(*keys: str) -> tuple[str, ...]:
    return tuple(f"{key}{env}" for key in keys for env in ("", "/{env}"))


def _evaluated(metric: str) -> tuple[str, ...]:
    return tuple(f"eval/{{name}}/{of}{metric}" for of in ("", "{role}/", "{mixed}/"))


def _wrapped(stage: StagePlan, role: Role) -> bool:
    return any(with_role(env, role) is not None for env in stage.environments)


def _shapes(stage: StagePlan) -> bool:
    return any(env.reward.shaped is not None for env in stage.environments)


def _clips(stage: StagePlan) -> bool:
    traits = loss_traits(stage.policy_gradient.loss) if stage.policy_gradient else None
    return traits is not None and not (traits.clip is None and traits.unbounded is None)


def _compares(stage: StagePlan) -> bool:
    return stage.policy_gradient is not None and stage.policy_gradient.kl is not None


def _teachers(stage: StagePlan) -> tuple[TeacherPlan, ...]:
    return stage.policy_gradient.teacher if stage.policy_gradient else ()


def _names_targets(stage: StagePlan) -> bool:
    return any(data.soft_targets is not None for data in stage.data) or any(
        teacher_traits(teacher.kind).targets for teacher in _teachers(stage)
    )


def _refers(stage: StagePlan) -> bool:
    return stage.preference is not None and stage.preference.reference is not None


def _holds_out(stage: StagePlan) -> bool:
    return stage.heldout is not None


_TRAINED, _ALL = TRAINING, tuple(STAGES)

ENTRIES = (
    MetricEntry(("reward/mean", "reward/{env}", "reward/{env}/{role}")),
    _count("reward_std/{env}"),
    MetricEntry(("raw_reward/{env}",), needs=_shapes),
    _share("{role}_acc"),
    _share(*_by_env("groups/constant", "groups/all_good", "groups/all_bad")),
    _count("turns/mean", "turns/{env}"),
    _share(*_by_env("turns/cut_off")),
    _count("length/{env}"),
    _count("entropy/mean", "entropy/{env}"),
    _count(
        "rollouts/played", "rollouts/retried", "rollouts/failed", "failed/{env}", "failures/{part}"
    ),
    _count("rollouts/context_overflow", "rollouts/cut_short", "rollouts/form_retries"),
    _count("rollouts/staleness"),
    MetricEntry(("env/{env}/{part}", "env/{env}/{role}/{part}")),
    MetricEntry(
        tuple(f"episodes/{{env}}/{of}" for of in ("turns", "return", "return_min", "return_max")),
        needs=partial(_wrapped, role="tracking"),
    ),
    MetricEntry(("curriculum/{env}/{part}",), low=0, needs=partial(_wrapped, role="curriculum")),
    MetricEntry(("loss/sum",), ("train", "sft")),
    MetricEntry(("loss/mean",), ("sft", "preference")),
    _share("accuracy", of=("preference",)),
    MetricEntry(("margin", "rewards/{side}", "logps/{side}"), ("preference",)),
    MetricEntry(("kl/reference",), ("preference",), low=0, needs=_refers),
    MetricEntry(
        ("kl/mismatched",),
        ("preference",),
        low=0,
        needs=lambda s: bool(s.objective and s.objective.labelled),
    ),
    _share("heldout/accuracy", of=("preference",), needs=_holds_out),
    MetricEntry(
        ("heldout/loss", "heldout/margin", "heldout/rewards/{side}", "heldout/logps/{side}"),
        ("preference",),
        needs=_holds_out,
    ),
    MetricEntry(("heldout/loss",), ("train", "sft"), low=0, needs=_holds_out),
    MetricEntry(("kl/sample_train", "kl/sample_train_k2", "kl/sample_train_k3", "kl/train_sample")),
    MetricEntry(("kl/reference",), needs=_compares),
    MetricEntry(("teacher/kl", "teacher/kl/{taught}"), needs=lambda stage: bool(_teachers(stage))),
    MetricEntry(("teacher/forward_kl",), ("train", "sft"), low=0, needs=_names_targets),
    _share("teacher/mass", of=("train", "sft"), needs=_names_targets),
    MetricEntry(
        ("observations/nll",),
        low=0,
        needs=lambda s: bool(s.policy_gradient and s.policy_gradient.observations),
    ),
    MetricEntry(
        ("baseline/{env}", "baseline/{env}/{role}"),
        needs=lambda s: bool(s.policy_gradient and has_running(s.policy_gradient.advantage)),
    ),
    _share("policy/ess"),
    _share("policy/clip_fraction", needs=_clips),
    _count("optim/lr", "optim/grad_norm", "optim/datums", of=_TRAINED),
    _share("optim/skipped", of=_TRAINED),
    _share(*_evaluated("{solved}"), of=("eval",)),
    MetricEntry(_evaluated("{reward}"), ("eval",)),
    MetricEntry(("eval/{name}/raw_reward",), ("eval",), needs=_shapes),
    MetricEntry(("eval/{name}/env/{env}/{part}", "eval/{name}/env/{env}/{role}/{part}"), ("eval",)),
    _count("eval/{name}/failed", of=("eval",)),
    _share("eval/{name}/cut_off", "eval/{name}/format", of=("eval",)),
    _count("tokens/prefill", "tokens/cached", "tokens/sampled", "tokens/trained", of=_ALL),
    MetricEntry(("tokens/reference",), low=0, needs=_compares),
    MetricEntry(("tokens/teacher",), low=0, needs=lambda stage: bool(_teachers(stage))),
    MetricEntry(("tokens/reference",), ("preference",), low=0, needs=_refers),
    _count("examples/tokens", of=("sft", "preference")),
    MetricEntry(("spend/usd",), _TRAINED, "money", 0),
    MetricEntry(("time/total",), _ALL, "duration", 0),
    MetricEntry(("time/{part}",), _TRAINED, "duration", 0),
    MetricEntry(("time/episode/{part}",), unit="duration", low=0),
    _count("service/{part}", of=_TRAINED, needs=lambda stage: stage.model.hosted),
    _share("guard/{part}", needs=lambda s: bool(s.rollouts and s.rollouts.kl_guard)),
)


def metrics_of(stage: StagePlan) -> dict[str, StageMetric]:
    """Return the metrics of a stage by name: ``reward/mean`` is its ``reward``, ``time/total`` its
    ``time``. A name that ends in ``.*`` stands for all that begin so, which only the run shows."""
    found: dict[str, StageMetric] = {}
    for entry in ENTRIES:
        if stage.kind in entry.of and entry.needs(stage):
            for key in (filled for one in entry.keys for filled in _filled(one, stage)):
                name = metric_name(key.removeprefix(f"eval/{stage.name}/"))
                found[name] = StageMetric(name, key, entry.unit, entry.low, entry.high)
    return found


def watched(stage: StagePlan) -> tuple[WatchedMetric, ...]:
    """Return what a stage is about, the main metric first: that of its kind, but of play against
    itself, whose rewards may add up to 0, also who wins; of a teacher how far it is from that."""
    found = STAGES[stage.kind].watched
    if stage.policy_gradient is not None:
        envs = stage.of(Rollouts).envs
        rewarded = [env.name for env in envs if is_rewarded(env)]
        parts = tuple(WatchedMetric("reward", f"reward/{env}", of=env) for env in rewarded)
        if rewarded or not _teachers(stage):
            found = tuple(evolve(one, parts=parts) for one in found)
        else:
            found = ()
        if all(env.play is not None and env.play.is_self_play for env in envs):
            seats = [(env.name, roles_of(env)[0]) for env in envs]
            wins = (WatchedMetric(f"{e} {s} win", f"env/{e}/{s}/win", rises=None) for e, s in seats)
            found = (*wins, *found)
        if stage.heldout is not None:
            found = (*found, WatchedMetric("held-out loss", "heldout/loss", rises=False))
    if _names_targets(stage):
        found = (*found, WatchedMetric("teacher kl", "teacher/forward_kl", rises=False))
    elif _teachers(stage):
        found = (*found, WatchedMetric("teacher kl", "teacher/kl", rises=False))
    return found


def metric_name(key: str) -> str:
    """Return the name of an entry of a stage in a recipe."""
    return re.sub(r"/(mean|total)$", "", key).replace("@", "_at_").replace("/", ".")


def find_metric(stage: StagePlan, name: str) -> StageMetric | None:
    """Return the entry that a name stands for, if the stage has it."""
    known, name = metrics_of(stage), name.removesuffix(".total")
    if name in known:
        return known[name]
    beginning, _, last = name.rpartition(".")
    if (open_one := known.get(f"{beginning}.*")) is None or last in get_args(Over):
        return None
    return evolve(open_one, name=name, key=f"{open_one.key[:-1]}{last}")


def measurable(kind: str) -> list[str]:
    """Return the names that some stage of a kind may have, ``*`` where stages differ."""
    keys = (key for entry in ENTRIES if kind in entry.of for key in entry.keys)
    names = (metric_name(key.removeprefix("eval/{name}/")) for key in keys)
    return [re.sub("{.+?}", "*", name) for name in names]


def _filled(key: str, stage: StagePlan) -> Iterator[str]:
    """Yield a key with every filling of its first hole, and of the others."""
    hole = re.search(r"{(\w+)}", key)
    if hole is None:
        yield key
        return
    for filling in _fillings(stage).get(hole[1], ()):
        yield from _filled(key.replace(hole[0], filling, 1), stage)


def _fillings(stage: StagePlan) -> Mapping[str, tuple[str, ...]]:
    """Return the fillings of the holes of keys: the stage, its environments (``mixed``: if several)
    and their roles, its metrics (``solved``: shares); ``*`` for what only the run shows."""
    envs = stage.environments
    teachers, metrics = _teachers(stage), stage.metrics
    return {
        "name": (stage.name,),
        "env": tuple(env.name for env in envs),
        "mixed": tuple(env.name for env in envs if len(envs) > 1),
        "taught": tuple(env.name for env in envs if teacher_of(teachers, env.name) is not None),
        "role": tuple(dict.fromkeys(role for env in envs for role in roles_of(env))),
        "side": ("chosen", "rejected"),  # of a preference
        "solved": tuple(metric_label(m) for m in metrics if metric_traits(m.name).share),
        "reward": tuple(metric_label(m) for m in metrics if not metric_traits(m.name).share),
        "part": ("*",),
    }
