"""What a loss would be without its bounds: how often they act can then be counted."""

from __future__ import annotations

from rlc.algo.expressions.build import Builder
from rlc.algo.expressions.program import INPUT, NUMBER, Program


def unbounded(program: Program) -> Program | None:
    """Return a loss without what holds the ratio, or anything else that depends on ``logp``, within
    bounds: ``clip(x, …)`` is ``x`` there, and so are the ``min`` and ``max`` of it and something
    that does not depend on ``logp``. None if there is no such bound."""
    builder = Builder(program.kind, program.inputs, bounded=False)
    made, depends = list[int](), list[bool]()
    held = False
    for node in program.nodes:
        args = [made[arg] for arg in node.args]
        reads = [arg for arg in node.args if depends[arg]]
        depends.append(node.name == "logp" if node.op == INPUT else bool(reads))
        if node.op == NUMBER:
            made.append(builder.number(node.value or 0.0))
        elif node.op == INPUT:
            made.append(builder.input(node.name or ""))
        elif node.op == "clip" and depends[node.args[0]]:
            held = True
            made.append(args[0])
        elif node.op in ("min", "max") and len(reads) == 1:
            held = True
            made.append(made[reads[0]])
        else:
            made.append(builder.apply(node.op, *args))
    return builder.part(made[program.output]) if held else None
