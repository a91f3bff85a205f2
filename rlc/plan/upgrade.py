"""Plans that older versions of rlc wrote, as JSON of today's schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OLDER = (3,)  # the schemas that are read beside today's

_ROLLOUTS = ("envs", "batch", "sampling", "overlap", "on_error", "give_up", "kl_guard")
_POLICY_GRADIENT = ("advantage", "aggregate", "loss", "kl", "teacher")
_OF_FILES = ("path", "split", "count", "max_tokens", "too_long")
# The fields of each kind of data, of which schema 3 had one record with all of them.
_DATA = {
    "demonstrations": ("env", "count", "policy", "min_reward"),
    "rows": (*_OF_FILES, "prompt", "reply"),
    "chats": (*_OF_FILES, "messages", "train_on"),
    "cookbook": ("builder", "args", "split", "count", "max_tokens", "too_long"),
    "pairs": (*_OF_FILES, "prompt", "chosen", "rejected"),
    "labelled": (*_OF_FILES, "prompt", "reply", "label"),
    "preferred": ("env", "count", "model", "samples"),
}
_LABELLED_LOSSES = ("kto",)  # of those that schema 3 had


def upgraded(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a plan of schema 3 in schema 4. What does not have the form of a plan is
    left as it is, for the reader to say so."""
    stages = data.get("stages")
    made = [_stage(one) for one in stages] if isinstance(stages, list) else stages
    return {**data, "schema_version": 4, "stages": made}


def _stage(stage: Any) -> Any:
    if not isinstance(stage, Mapping):
        return stage
    rest, kind = dict(stage), stage.get("kind")
    if kind == "eval":
        return {**rest, "kind": "evaluation"}
    if kind == "train":
        source = _taken(rest, "rollouts", _ROLLOUTS)
        objective = _taken(rest, "policy_gradient", _POLICY_GRADIENT)
        objective["kl"] = _kl(objective.get("kl"), rest.get("model"))
    elif kind in ("sft", "preference"):
        source = {"kind": "from_data", "data": _data(rest.pop("data", None))}
        source |= {"batch": rest.pop("batch", None)}
        objective = {"kind": "likelihood"}
        if kind == "preference":
            loss = rest.get("loss")
            name = loss.get("name") if isinstance(loss, Mapping) else None
            word = "labelled" if name in _LABELLED_LOSSES else "pairwise"
            objective = _taken(rest, f"{word}_preference", ("loss", "reference"))
        if rest.get("heldout") is not None:
            rest["heldout"] = _data(rest["heldout"])
    else:
        return stage
    return {**rest, "kind": "training", "source": source, "objective": objective}


def _kl(kl: Any, model: Any) -> Any:
    """A penalty, whose reference was a base model or the path of a saved state."""
    if not isinstance(kl, Mapping) or not isinstance(model, Mapping):
        return kl
    name = str(kl.get("reference"))
    own = name == model.get("base")
    known = {"base": name, "weights": None}
    if "://" in name:
        known = {"base": model.get("base"), "weights": name}
    other = {**model, "name": f"{model.get('name')}.base" if own else name, **known}
    return {**kl, "reference": {"model": other, "after": None}}


def _taken(rest: dict[str, Any], kind: str, names: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a part of a stage, taken out of the stage."""
    return {"kind": kind} | {name: rest.pop(name) for name in names if name in rest}


def _data(data: Any) -> Any:
    if not isinstance(data, Mapping):
        return data
    kind = str(data.get("kind"))
    if kind == "samples" and isinstance(data.get("sampled"), Mapping):
        return {
            "kind": kind,
            "env": data.get("env"),
            "count": data.get("count"),
            "top_k": None,
            **data["sampled"],
        }
    return {"kind": kind} | {name: data.get(name) for name in _DATA.get(kind, data)}
