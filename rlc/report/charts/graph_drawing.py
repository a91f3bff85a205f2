"""The job graph as a drawing: each stage a column of layers, what waits for what as arrows."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from rlc.explanation import edge_notes
from rlc.plan import GraphEdge, GraphNode, Plan

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
    arrows += [_beside(edge, plan, boxes, lane) for lane, edge in enumerate(past)]
    arrows += [_beside(edge, plan, boxes, lane) for lane, edge in enumerate(back)]
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
