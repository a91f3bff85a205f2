"""The outline of a run beside its pages: a tree of stages, steps, groups and episodes."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen
from rich.text import Text
from textual.binding import Binding
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from rlc.cli.browser.contents import Group, RunContents, Step
from rlc.cli.browser.pages import member_label
from rlc.cli.output import visible
from rlc.cli.transcripts import style_of
from rlc.report import signed
from rlc.runtime import EpisodeHead, is_number

if TYPE_CHECKING:
    from rlc.report.episodes import StepComparison

_OPENED = 40  # episodes that are shown at once if no more were found


@frozen(eq=False)
class OutlinePlace:
    """The subject of a line of the tree: the run, or the innermost part that is given."""

    stage: str = ""
    step: int | None = None
    group: Group | None = None
    head: EpisodeHead | None = None
    pair: StepComparison | None = None


Node = TreeNode[OutlinePlace]


class Outline(Tree[OutlinePlace]):
    """The tree. A step has its groups, and a group its members, once it is opened."""

    BINDINGS = [
        Binding("left", "close_or_up", "close", show=False),
        Binding("right", "open", "open", show=False),
    ]

    def __init__(self, contents: RunContents, id: str | None = None) -> None:
        super().__init__(Text(contents.folder.resolve().name), OutlinePlace(), id=id)
        self.contents = contents
        self.guide_depth = 2
        self.root.expand()
        self._generation = 0
        self._stages: dict[str, Node] = {}
        self._steps: dict[Step, Node] = {}
        self._left: OutlinePlace | None = None  # where the cursor was before all was read anew
        self._filled: dict[Step, int] = {}  # how many episodes the children of a step stand for

    @property
    def place(self) -> OutlinePlace:
        node = self.cursor_node
        return node.data if node is not None and node.data is not None else OutlinePlace()

    def grow(self) -> None:
        """Add what has been read since; begin anew if the query is another one."""
        if self._generation != self.contents.generation:
            self._generation, self._left = self.contents.generation, self.place
            self.root.remove_children()
            self._stages, self._steps, self._filled = {}, {}, {}
        for stage, steps in self.contents.steps().items():
            if stage not in self._stages:
                self._stages[stage] = self.root.add(Text(stage), OutlinePlace(stage), expand=True)
            for step in steps:
                self._update_step((stage, step))
        if self._left is not None and self.contents.caught_up:
            if self.contents.is_filtered and self.contents.found <= _OPENED:
                for node in list(self._steps.values()):
                    self._open(node)
                    for child in node.children:
                        self._open(child)
            self._return_to(self._left)
            self._left = None

    def _update_step(self, step: Step) -> None:
        label, node = self._step_label(step), self._steps.get(step)
        if node is None:
            parent = self._stages[step[0]]
            # A new step is the last one, except where an older one has just been found.
            places = [child.data.step or 0 for child in parent.children if child.data]
            at = bisect_left(places, step[1]) if places and places[-1] > step[1] else len(places)
            before = at if at < len(places) else None
            self._steps[step] = parent.add(label, OutlinePlace(*step), before=before)
        elif node.label != label:
            node.set_label(label)
            if node.is_expanded:
                self._fill_step(node)

    def _step_label(self, step: Step) -> Text:
        heads = self.contents.episodes(step)
        label = Text(f"step {step[1]:,}")
        metrics = self.contents.metrics.get(step, {})
        watched = [o.key for s in self.contents.info.stages if s.name == step[0] for o in s.watched]
        value = next((metrics[key] for key in watched if key in metrics), None)
        if self.contents.is_filtered:
            label.append(f"  {len(heads):,} found", "dim")
        elif is_number(value):
            label.append(f"  {value:.3f}")
        if failed := sum(head.error is not None for head in heads):
            label.append(f"  ✕{failed:,}", "red")
        return label

    def on_tree_node_expanded(self, event: Tree.NodeExpanded[OutlinePlace]) -> None:
        self.fill(event.node)

    def fill(self, node: Node) -> None:
        """Add the children of a step or a group, if they are not there."""
        place = node.data
        if place is None or place.step is None:
            return
        if place.group is None:
            self._fill_step(node)
        elif not node.children:
            for head in self.contents.groups((place.stage, place.step)).get(place.group, ()):
                self._add_episode(node, head, "")

    def _fill_step(self, node: Node) -> None:
        assert node.data is not None
        step = (node.data.stage, node.data.step or 0)
        groups = self.contents.groups(step)
        count = sum(map(len, groups.values()))
        if self._filled.get(step) == count and node.children:
            return
        self._filled[step] = count
        node.remove_children()
        for group, heads in groups.items():
            title = f"{visible(group[0])} {group[1]:,}"
            if len(heads) == 1:
                self._add_episode(node, heads[0], f"{title} · ", group)
                continue
            rewards = [head.reward for head in heads if head.error is None]
            label = Text(title)
            if len(set(rewards)) > 1:
                label.append(f"  {min(rewards):.2f}…{max(rewards):.2f}", "dim")
            elif rewards:
                label.append(f"  all {rewards[0]:.2f}", "dim")
            if failed := len(heads) - len(rewards):
                label.append(f"  ✕{failed:,}", "red")
            node.add(label, OutlinePlace(*step, group))
        for pair in self.contents.compared(step) if not self.contents.is_filtered else ():
            label, margin = Text(f"{Path(pair.place).name} "), pair.margin
            label.append(signed(margin), style_of(margin))
            node.add_leaf(label, OutlinePlace(*step, pair=pair))

    def _add_episode(
        self, node: Node, head: EpisodeHead, title: str, group: Group | None = None
    ) -> None:
        record = self.contents.record(head)
        label = Text(title)
        if record is None:
            label.append("gone", "red")
        else:
            known = record["advantages"]
            style = "red" if head.error is not None else style_of(sum(known)) if known else ""
            label.append(visible(member_label(record)), style)
        place = OutlinePlace(head.stage, head.step, group or (head.env, head.task), head)
        node.add_leaf(label, place)

    def _open(self, node: Node) -> None:
        if node.allow_expand:
            self.fill(node)
            node.expand()

    def go_to_step(self, step: Step) -> None:
        if (node := self._steps.get(step)) is not None:
            self._stages[step[0]].expand()
            self._move(node)

    def go_to(self, head: EpisodeHead) -> None:
        """Open what an episode is in, and go to it."""
        step = self._steps.get((head.stage, head.step))
        if step is None:
            return
        self._stages[head.stage].expand()
        self._open(step)
        for group in step.children:
            if group.data is not None and group.data.group == (head.env, head.task):
                self._open(group)
                for node in (group, *group.children):
                    if node.data is not None and node.data.head is head:
                        self._move(node)

    def _return_to(self, place: OutlinePlace) -> None:
        """Go to a place that was left, or to the first episode that was found, or the last step."""
        shown = self.contents.shown
        here = shown.get((place.stage, place.step or 0), {}).get(place.group or ("", 0), [])
        left = place.head and (place.head.key, place.head.reply)
        same = [head for head in here if (head.key, head.reply) == left]
        first = [head for key in sorted(shown) for head in self.contents.episodes(key)]
        if same or (first and self.contents.is_filtered):
            self.go_to([*same, *first][0])
        else:
            steps = list(self._steps.values())
            mine = self._steps.get((place.stage, place.step or 0))
            self._move(mine or [self.root, *steps][-1])

    def _move(self, node: Node) -> None:
        assert self.last_line >= 0  # counts the lines, by which nodes are found
        self.move_cursor(node)

    def action_open(self) -> None:
        if (node := self.cursor_node) is not None and node.allow_expand:
            node.expand()

    def action_close_or_up(self) -> None:
        node = self.cursor_node
        if node is not None and node.allow_expand and node.is_expanded:
            node.collapse()
        elif node is not None and node.parent is not None:
            self._move(node.parent)
