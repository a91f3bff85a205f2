"""What a recipe leaves unsaid, shown between its words: defaults, prices, how much epochs are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lsprotocol import types

from rlc.catalog.declarations import STAGES
from rlc.explanation.layout import count, dollars
from rlc.lsp import describe
from rlc.lsp.frames import Frame, params_of
from rlc.lsp.outline import Declared
from rlc.lsp.positions import Positions
from rlc.lsp.reading import Reader
from rlc.plan.records import Plan
from rlc.pricing.cost import StageCost
from rlc.pricing.texts import LEVELS

MOST_DEFAULTS = 3  # shown at a call; its tooltip has the others


def inlay_hints(
    reader: Reader,
    plan: Plan | None,
    costs: Mapping[str, StageCost],
    positions: Positions,
    start: int,
    end: int,
) -> list[types.InlayHint]:
    """Return what is unsaid between two offsets. ``plan``: what the recipe last compiled to, with
    the ``costs`` of its stages."""
    found = [hint for frame, stop in reader.calls for hint in _of_call(frame, stop, reader)]
    if plan is not None:
        found += _of_plan(reader, plan, costs)
    return [
        types.InlayHint(
            positions.at(offset),
            label,
            kind=kind,
            tooltip=tooltip,
            padding_left=kind is None,
            padding_right=label.endswith("="),
        )
        for offset, label, kind, tooltip in sorted(found, key=lambda hint: hint[0])
        if start <= offset <= end
    ]


_Hint = tuple[int, str, types.InlayHintKind | None, str | None]


def _of_call(frame: Frame, stop: int, reader: Reader) -> Iterator[_Hint]:
    """The names of arguments that are given by position, and the defaults of those that are not."""
    if frame.owner is None:
        return
    params = frame.all_params()
    if len(params) > 1:
        for param, offset in zip(params_of(frame.owner), frame.starts, strict=False):
            if not reader.text.startswith(param.name, offset):
                yield offset, f"{param.name} =", types.InlayHintKind.Parameter, param.doc
    given = {*frame.given, *(param.name for param in params[: len(frame.starts)])}
    left = [p for p in params if p.name not in given and not p.required]
    texts = [(param.name, describe.default_text(param)) for param in left]
    said = [f"{name} = {text}" for name, text in texts if text not in ("none", "…")]
    if said:
        more = ", …" if len(said) > MOST_DEFAULTS else ""
        comma = ", " if frame.given or frame.starts else ""
        label = f"{comma}{', '.join(said[:MOST_DEFAULTS])}{more}"
        yield stop, label, types.InlayHintKind.Parameter, f"defaults: {', '.join(said)}"


def _of_plan(reader: Reader, plan: Plan, costs: Mapping[str, StageCost]) -> Iterator[_Hint]:
    """Dollars of stages, and what was decided where the recipe leaves it open."""
    stages = {stage.name: stage for stage in plan.stages}
    models = {stage.model.name: stage.model for stage in plan.stages}
    for at in reader.meanings:
        decl = at.what
        if at.role == "declares" and isinstance(decl, Declared):
            if decl.kind in STAGES and decl.name in costs:
                yield at.end, price_of(costs[decl.name]), None, bill_of(costs[decl.name])
            elif decl.kind == "model" and decl.name in models:
                model = models[decl.name]
                label = ", ".join(filter(None, (model.service, model.renderer)))
                yield at.end, label, None, "where it is trained, and how a chat becomes tokens"
    for name, steps, offset in _epochs(
        reader, {n: getattr(s, "steps", 0) for n, s in stages.items()}
    ):
        yield offset, f"= {count(steps, 'step')}", None, f"`{name}` in steps"


def _epochs(reader: Reader, steps: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """The stages that say in epochs how long they train, and where."""
    starts = {d.first: d.name for d in reader.outline.heads.values()}
    for at, value in zip(reader.meanings, reader.meanings[1:], strict=False):
        name = starts.get(at.within, "")
        if at.role == "field" and reader.text[at.start : at.end] == "epochs" and name in steps:
            yield name, steps[name], value.end


def price_of(cost: StageCost) -> str:
    """Return what a stage is expected to cost."""
    return "free" if cost.free else f"about {dollars(cost.total('expected'))}"


def bill_of(cost: StageCost) -> str:
    """Return the range of what a stage can cost."""
    if cost.free:
        return "free: it runs on this machine, or on a server of your own"
    return ", ".join(f"{level} {dollars(cost.total(level))}" for level in LEVELS)
