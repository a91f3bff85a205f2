"""Programs for libraries that multiply their derivatives, as torch does.

There the gradient of ``where(x > 0, log(x), 0)`` is NaN where x is 0, because the 0 that goes into
the branch that was not taken meets an infinite slope. A shielded program has the same values and
the same gradient, and computes such a branch with an argument that harms nobody where it is not
taken: ``where(x > 0, log(where(x > 0, x, 1)), 0)``.
"""

from __future__ import annotations

from rlc.algo.expressions.build import Builder
from rlc.algo.expressions.program import INPUT, MOST_NODES, NUMBER, Program
from rlc.algo.expressions.reach import differentiable
from rlc.algo.expressions.vocabulary import OPERATIONS, shapes

# What can be infinite or undefined: the argument that decides it, and one that is always fine.
_RISKS = {"log": (0, 1.0), "sqrt": (0, 1.0), "/": (1, 1.0), "exp": (0, 0.0)}
_Guards = tuple[tuple[int, bool], ...]  # conditions, and whether they hold


def shielded(program: Program) -> Program:
    """Return a program with the same result, whose branches that are not taken are finite."""
    if not any(node.op == "where" for node in program.nodes):
        return program
    shield = _Shield(program)
    made = shield.node(program.output, ())
    return program if shield.builder.size > MOST_NODES else shield.builder.part(made)


class _Shield:
    def __init__(self, program: Program) -> None:
        self.program, self.shapes = program, shapes(program)
        self.builder = Builder(program.kind, program.inputs, bounded=False)
        self.made: dict[tuple[int, _Guards], int] = {}
        active = differentiable(program)
        self.risky: list[bool] = []  # whether something in a node has to be shielded
        for position, node in enumerate(program.nodes):
            own = node.op in _RISKS and active[position]
            self.risky.append(own or any(self.risky[arg] for arg in node.args))

    def node(self, position: int, guards: _Guards) -> int:
        """The node that is computed only where the guards hold."""
        node = self.program.nodes[position]
        guards = guards if self.risky[position] else ()
        key = position, guards
        if key in self.made or self.builder.size > MOST_NODES:
            return self.made.get(key, 0)
        if node.op == NUMBER:
            self.made[key] = self.builder.number(node.value or 0.0)
            return self.made[key]
        if node.op == INPUT:
            self.made[key] = self.builder.input(node.name or "")
            return self.made[key]
        if node.op == "where":
            condition = self.node(node.args[0], ())
            branches = [
                self.node(arg, (*guards, (condition, holds)))
                for arg, holds in zip(node.args[1:], (True, False), strict=True)
            ]
            args = [condition, *branches]
        else:
            if OPERATIONS[node.op].reduces:  # a token's condition says nothing of the others
                guards = tuple(g for g in guards if self.builder.shape(g[0]) != "token")
            args = [self.node(arg, guards) for arg in node.args]
        if guards and node.op in _RISKS:
            place, harmless = _RISKS[node.op]
            for condition, holds in reversed(guards):
                sides = args[place], self.builder.number(harmless)
                args[place] = self.builder.apply(
                    "where", condition, *(sides if holds else reversed(sides))
                )
        self.made[key] = self.builder.apply(node.op, *args)
        if node.name is not None:
            self.builder.name(self.made[key], node.name)
        return self.made[key]
