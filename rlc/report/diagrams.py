"""Drawings without curves: the graph of a step, and configurations over parallel axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attrs import frozen

from rlc.explanation import edge_notes
from rlc.plan import AxisPlan, GraphEdge, GraphNode, Plan, SweepPlan, shown, values_text
from rlc.report.formatting import number
from rlc.sweeps import ClaimResult, ConfigurationResult

_WIDTH, _ROW, _HEIGHT, _GAP = 316.0, 58.0, 32.0, 12.0
_MARGIN = 40.0  # on either side, for edges that pass others


@frozen
class NodeBox:
    x: float
    y: float
    width: float
    height: float
    text: str
    tip: str


@frozen
class Arrow:
    path: str
    text: str
    x: float
    y: float
    turned: int  # degrees that its text is turned by
    back: bool  # carries something of the step before


@frozen
class Diagram:
    """One stage. ``width`` and ``height`` are those of its view box."""

    stage: str
    boxes: tuple[NodeBox, ...]
    arrows: tuple[Arrow, ...]
    width: float
    height: float


def diagrams(plan: Plan) -> list[Diagram]:
    """Draw each stage of a plan, in order."""
    return [_diagram(plan, stage.name) for stage in plan.stages]


def _diagram(plan: Plan, stage: str) -> Diagram:
    nodes = plan.graph.nodes_of[stage]
    edges = plan.graph.edges_of(stage)
    layers = _layers(nodes, edges)
    boxes = {}
    for depth, layer in enumerate(layers):
        count = len(layer)
        width = min(150.0, (_WIDTH - _GAP * (count + 1)) / count)
        left = _MARGIN + (_WIDTH - count * width - (count - 1) * _GAP) / 2
        for place, node in enumerate(layer):
            x, y = left + place * (width + _GAP), _GAP + depth * _ROW
            boxes[node.id] = NodeBox(x, y, width, _HEIGHT, node.kind, node.label)
    back = [edge for edge in edges if edge.delay]
    past = [e for e in edges if not e.delay and boxes[e.target].y - boxes[e.source].y > _ROW]
    near = [edge for edge in edges if edge not in past and edge not in back]
    arrows = [_down(edge, plan, boxes) for edge in near]
    for several in (past, back):
        arrows += [_beside(edge, plan, boxes, lane) for lane, edge in enumerate(several)]
    height = len(layers) * _ROW + _GAP
    return Diagram(stage, tuple(boxes.values()), tuple(arrows), _WIDTH + 2 * _MARGIN, height)


def _layers(nodes: Sequence[GraphNode], edges: Sequence[GraphEdge]) -> list[list[GraphNode]]:
    """Put each node one layer below the last that it waits for within a step."""
    depth = dict.fromkeys((node.id for node in nodes), 0)
    for _ in nodes:  # as many rounds as the longest chain could need
        for edge in edges:
            if not edge.delay:
                depth[edge.target] = max(depth[edge.target], depth[edge.source] + 1)
    layers: list[list[GraphNode]] = [[] for _ in range(max(depth.values()) + 1)]
    for node in nodes:
        layers[depth[node.id]].append(node)
    return layers


def _down(edge: GraphEdge, plan: Plan, boxes: dict[str, NodeBox]) -> Arrow:
    """Draw from the bottom of a box to the top of one in the next layer."""
    a, b = boxes[edge.source], boxes[edge.target]
    x1, y1, x2, y2 = a.x + a.width / 2, a.y + a.height, b.x + b.width / 2, b.y
    middle = (y1 + y2) / 2
    path = f"M{x1:.0f} {y1:.0f}C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2:.0f}"
    text = edge.carries + edge_notes(edge, plan)
    return Arrow(path, text, (x1 + x2) / 2, middle, turned=0, back=False)


def _beside(edge: GraphEdge, plan: Plan, boxes: dict[str, NodeBox], lane: int) -> Arrow:
    """Draw down the left side, past the layers in between, or back up the right side."""
    a, b = boxes[edge.source], boxes[edge.target]
    y1, y2 = a.y + a.height / 2, b.y + b.height / 2
    back = bool(edge.delay)
    x1, x2 = (a.x + a.width, b.x + b.width) if back else (a.x, b.x)
    side = _MARGIN + _WIDTH + 14 + 12 * lane if back else _MARGIN - 14 - 12 * lane
    path = f"M{x1:.0f} {y1:.0f}H{side:.0f}V{y2:.0f}H{x2:.0f}"
    turned, text = 90 if back else -90, edge.carries + edge_notes(edge, plan)
    return Arrow(path, text, side, (y1 + y2) / 2, turned, back)


WIDTH, HEIGHT = 1000.0, 380.0
_TOP, _BOTTOM, _SIDE = 46.0, 352.0, 90.0
_NUMBERS = 5  # labels of an axis of numbers
_LONGEST, _WIDEST = 18, 26  # characters of a label, and of a line of a name


@frozen
class AxisLabel:
    y: float
    text: str


@frozen
class VerticalAxis:
    """An axis. ``name`` has lines, ``anchor`` is the side of it that its labels stand on."""

    x: float
    name: tuple[str, ...]
    labels: tuple[AxisLabel, ...]
    anchor: str


@frozen
class ConfigurationLine:
    """A configuration. ``shade`` is from 0, the worst, to 1, the best."""

    path: str
    shade: float
    best: bool
    tip: str


@frozen
class Parallel:
    axes: tuple[VerticalAxis, ...]
    lines: tuple[ConfigurationLine, ...]
    width: float = WIDTH
    height: float = HEIGHT


def parallel(plan: SweepPlan, results: Sequence[ConfigurationResult]) -> Parallel | None:
    """Draw the configurations that have a value; None if there are fewer than two."""
    shown = [result for result in results if result.mean is not None]
    if len(shown) < 2:
        return None
    means = [result.mean for result in shown if result.mean is not None]
    low, high = min(means), max(means)
    count = len(plan.axes) + 1
    places = [_SIDE + i * (WIDTH - 2 * _SIDE) / (count - 1) for i in range(count)]
    axes = []
    for x, axis in zip(places, plan.axes, strict=False):
        anchor = "end" if x < WIDTH / 2 else "start"
        axes.append(VerticalAxis(x, _name_lines(axis.path), tuple(_labels(axis)), anchor))
    marks = sorted({low, high} | {low + (high - low) * i / 4 for i in range(5)})
    ends = tuple(AxisLabel(_y(_part(mark, low, high)), f"{mark:.3g}") for mark in marks)
    axes.append(VerticalAxis(places[-1], _name_lines(plan.metric.name), ends, "start"))
    lines = []
    for result in reversed(shown):  # the best is drawn over the others
        mean = result.mean or 0.0
        spots = [_place(axis, result.configuration[axis.path]) for axis in plan.axes]
        ys = [_y(spot) for spot in (*spots, _part(mean, low, high))]
        good = _part(mean, low, high) if plan.metric.more_is_better else _part(-mean, -high, -low)
        points = "L".join(f"{x:.0f} {y:.0f}" for x, y in zip(places, ys, strict=True))
        tip = f"{values_text(result.configuration)}: {number(mean)}"
        lines.append(ConfigurationLine(f"M{points}", round(good, 3), result is shown[0], tip))
    return Parallel(tuple(axes), tuple(lines))


def _y(part: float) -> float:
    return round(_BOTTOM - part * (_BOTTOM - _TOP), 1)


def _part(value: float, low: float, high: float) -> float:
    """Return the place of a value between two others, from 0 to 1."""
    return (value - low) / (high - low) if high > low else 0.5


def _place(axis: AxisPlan, text: str) -> float:
    if axis.range is None:
        return _part(axis.values.index(text), 0, len(axis.values) - 1)
    low, high, value = axis.range.low, axis.range.high, float(text)
    if axis.range.scale == "log":
        low, high, value = math.log(low), math.log(high), math.log(value)
    return _part(value, low, high)


def _labels(axis: AxisPlan) -> list[AxisLabel]:
    if axis.range is None:
        return [AxisLabel(_y(_place(axis, text)), _short(text)) for text in axis.values]
    low, high = axis.range.low, axis.range.high
    parts = [i / (_NUMBERS - 1) for i in range(_NUMBERS)]
    if axis.range.scale == "log":
        return [AxisLabel(_y(part), f"{low * (high / low) ** part:.2g}") for part in parts]
    return [AxisLabel(_y(part), f"{low + (high - low) * part:g}") for part in parts]


def _name_lines(path: str) -> tuple[str, ...]:
    """Return what comes before the last name of a path, and that name, on lines of their own."""
    head, dot, name = path.rpartition(".")
    return tuple(
        one if len(one) <= _WIDEST else f"…{one[1 - _WIDEST :]}"
        for one in (head + dot, name)
        if one
    )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


@frozen
class Mark:
    """A seed's difference: where it lies, and what a pointer on it says."""

    x: float
    tip: str


@frozen
class ClaimFigure:
    """A claim on an axis of differences: the seeds as dots, the interval of their mean as a bar,
    and the limit as a line. ``claimed``: where the claim says that the mean is, from and to."""

    result: ClaimResult
    marks: tuple[Mark, ...]
    limit: float
    claimed: tuple[float, float]
    mean: float | None
    interval: tuple[float, float] | None
    ends: tuple[str, str]  # of the axis
    width: float
    height: float


def claim_drawing(result: ClaimResult) -> ClaimFigure:
    """Draw what is known of a claim."""
    plan, unit, margin, width = result.plan, result.plan.unit, 12.0, 640.0
    # A wide interval of few seeds would leave no room for the seeds themselves.
    near = [plan.limit, *result.values]
    reach = max(near) - min(near) or abs(plan.limit) or 1.0
    low, high = min(near) - reach / 2, max(near) + reach / 2

    def place(value: float) -> float:
        share = min(max((value - low) / (high - low), 0.0), 1.0)
        return round(margin + share * (width - 2 * margin), 1)

    marks = [
        Mark(place(each.value), f"seed {each.seed}: {shown(each.value, unit)}")
        for each in result.differences
        if each.value is not None
    ]
    limit = place(plan.limit)
    bar = None
    if result.low is not None and result.high is not None:
        bar = place(result.low), place(result.high)
    return ClaimFigure(
        result,
        tuple(marks),
        limit,
        (limit, width - margin) if plan.above else (margin, limit),
        None if result.mean is None else place(result.mean),
        bar,
        (shown(low, unit), shown(high, unit)),
        width,
        64.0,
    )
