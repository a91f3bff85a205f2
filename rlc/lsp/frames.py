"""What is open at a place of a text, and what may stand there; what a word means."""

from __future__ import annotations

from typing import Literal

from attrs import define, evolve, field, frozen

from rlc.algo.expressions.vocabulary import Input, Operation
from rlc.catalog.index import KINDS, builtins_of
from rlc.catalog.records import Builtin, Declaration, Param
from rlc.lsp.outline import Declared

Role = Literal[
    "kind",
    "declares",
    "type",
    "field",
    "argument",
    "key",
    "builtin",
    "word",
    "reference",
    "parameter",
    "local",
    "input",
    "function",
    "attribute",
    "string",
    "number",
    "bool",
    "path",
]
Form = Literal["file", "parameters", "fields", "record", "call", "list", "group"]
State = Literal["item", "named", "value", "after", "head", "type"]
Owner = Declaration | Builtin | Declared | Operation
What = Declaration | Param | Builtin | Declared | Operation | Input

# Types of the fields of sweeps, and of what is written as an expression.
STAGE_OF_SWEEP, AXIS, MEASURE, EXPRESSION = "stage", "axis", "measure", "expression"


@frozen(eq=False)
class Meaning:
    """What a word is. ``what`` it stands for, if that is known; ``want``: what takes it, if it is a
    value; ``owner``: what the field or argument that it names belongs to. ``within`` is where the
    declaration starts that a local name belongs to."""

    role: Role
    start: int
    end: int
    what: What | None = None
    want: Param | None = None
    owner: Owner | None = None
    within: int = -1


@define(eq=False)
class Frame:
    """What is open. ``want``: what its values are for, if they have no name of their own."""

    form: Form
    state: State = "item"
    owner: Owner | None = None
    params: tuple[Param, ...] = ()
    want: Param | None = None
    current: Param | None = None  # what the value that is read is for, if that was said by name
    is_step: bool = False  # behind `|>`
    position: int = 0
    given: list[str] = field(factory=list)
    first: str | None = None  # its first argument, if that is a string
    starts: list[int] = field(factory=list)  # of its arguments without a name

    def all_params(self) -> tuple[Param, ...]:
        """Its parameters, with those that its first argument decides."""
        if isinstance(self.owner, Builtin) and self.owner.more and self.first is not None:
            choices = self.owner.params[0].all_choices()
            if self.first in choices:
                return (*self.params, *self.owner.more(self.first).params)
        return self.params

    def find(self, name: str) -> Param | None:
        return next((param for param in self.all_params() if param.name == name), None)

    @property
    def expected(self) -> Param | None:
        """What a value here is for; None if that is not known."""
        if self.current is not None or self.form != "call":
            param = self.current or self.want
        else:
            param = self.params[self.position] if self.position < len(self.params) else None
        if param is not None and self.is_step:
            kind = KINDS.get(param.type)
            return evolve(param, type=kind.step) if kind and kind.step else param
        return param

    @property
    def unnamed_expression(self) -> Param | None:
        """The expression that may stand here, first, without its name; None if there is none."""
        if self.form != "call" or self.current is not None or self.position:
            return None
        return next((param for param in self.params if param.type == EXPRESSION), None)


def params_of(owner: Owner) -> tuple[Param, ...]:
    """What can be given to something in parentheses."""
    if isinstance(owner, Operation):
        return tuple(Param(name, EXPRESSION, owner.doc) for name in owner.params)
    if isinstance(owner, Declared):
        return owner.parameters or ()
    return owner.params if isinstance(owner, Builtin) else ()


def fields_of(param: Param | None) -> tuple[Param, ...]:
    """What can stand behind the point of a field, as in `optimizer.learning_rate`: the settings of
    all that makes such a thing."""
    if param is None or param.type not in KINDS:
        return ()
    every = (each for builtin in builtins_of(param.type) for each in builtin.params)
    return tuple({each.name: each for each in every}.values())


def field_of(param: Param | None, name: str) -> Param | None:
    """What a name behind a field means."""
    return next((each for each in fields_of(param) if each.name == name), None)
