"""What each word of a text means: read word by word, so that a text may stop or be wrong anywhere.

A :class:`Reader` keeps the brackets that are open, and for each what belongs in it. Where a text
ends it therefore knows what may come next, which is what completion and signature help ask.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from rlc.algo.expressions.vocabulary import INPUTS, OPERATIONS
from rlc.catalog.declarations import DECLARATIONS
from rlc.catalog.index import KINDS, find_anywhere, find_builtin
from rlc.catalog.records import Builtin, Declaration, Param
from rlc.lang.words import NAMES, Word, string_value
from rlc.lsp.frames import (
    AXIS,
    EXPRESSION,
    MEASURE,
    Frame,
    Meaning,
    Owner,
    Role,
    State,
    What,
    field_of,
    params_of,
)
from rlc.lsp.outline import CLOSE, OPEN, Declared, Outline

KEYS_ARE_NAMES = (AXIS, "teacher")  # the keys of a record for one of these are names of the recipe
_LIMITS = tuple(Param(name, "any", "allowed values") for name in ("low", "high", "above", "below"))
_ANY = Param("value", "any", "a value")


class Reader:
    """Reads the words of an outline in the light of the names that are declared."""

    def __init__(self, outline: Outline, scope: Mapping[str, Declared]) -> None:
        self.outline = outline
        self.text = outline.source.text
        self.words = outline.words
        self.scope = scope
        self.meanings: list[Meaning] = []
        self.frames = [Frame("file")]
        self.decl: Declared | None = None  # the one that is read
        self.locals: dict[str, Param] = {}  # its parameters, and the parts of a loss so far
        self.calls: list[tuple[Frame, int]] = []  # those that are closed, and where
        self._callee: Owner | None = None  # what the path that was read last names
        self._base: Declared | None = None  # what could be amended here

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def read(self) -> Reader:
        """Read all words; return itself."""
        index = 0
        while index < len(self.words):
            word = self.words[index]
            at_item = self.frame.form == "call" and self.frame.state == "item"
            if at_item and word.kind != "RPAR" and self._kind(index + 1) != "EQUAL":
                self.frame.starts.append(word.start)
            if index in self.outline.heads:
                index = self._head(index)
            elif word.kind in NAMES and self._is_name(index):
                index = self._path(index)
            else:
                self._other(word, index)
                index += 1
        return self

    def _say(self, role: Role, word: Word, what: What | None = None, **more: object) -> None:
        within = self.decl.first if self.decl else -1
        self.meanings.append(
            Meaning(role, word.start, word.end, what, **{"within": within, **more})  # type: ignore[arg-type]
        )

    def _text(self, word: Word) -> str:
        return self.text[word.start : word.end]

    def _kind(self, index: int) -> str:
        return self.words[index].kind if index < len(self.words) else ""

    def _is_name(self, index: int) -> bool:
        """Whether a word is a name: `then` and the like are where they cannot be keywords."""
        frame, kind = self.frame, self.words[index].kind
        if kind == "NAME":
            return True
        return (kind == "THEN" and frame.state in ("item", "value")) or (
            self._kind(index + 1) == "EQUAL" and frame.form in ("fields", "call", "record")
        )

    def _head(self, index: int) -> int:
        """Read ``kind name``; whatever was open is over."""
        self.decl = decl = self.outline.heads[index]
        known = DECLARATIONS.get(decl.kind)
        self.locals = {param.name: param for param in decl.parameters or ()}
        self._say("kind", self.words[index], known)
        self._say("declares", self.words[index + 1], decl)
        value = known.value if known else None
        want = Param(decl.name, value or decl.kind, f"what `{decl.name}` stands for")
        if value == "param":
            want = evolve(want, type="any")
        self.frames = [Frame("file", "head", known, current=want)]
        return index + 2

    def _path(self, index: int) -> int:
        """Read a name and what is behind its points; return the index of the word after it."""
        stop = index + 1
        while self._kind(stop) == "DOT" and self._kind(stop + 1) in NAMES:
            stop += 2
        parts = self.words[index:stop:2]
        frame, after = self.frame, self._kind(stop)
        is_item = frame.form in ("fields", "call", "record") and (
            after == "EQUAL"
            or frame.state == "after"
            or (frame.state == "item" and frame.form != "call")
        )
        if frame.form == "file" and frame.state in ("item", "after"):
            self._start(parts)
        elif frame.form == "parameters" and frame.state == "item":
            param = self.locals.get(self._text(parts[0]))
            self._say("parameter", parts[0], param)
            frame.current, frame.state = param, "named"
        elif frame.state == "type":
            self._say("type", parts[0], want=Param("type", "type", ""))
            self._base = None
        elif is_item:
            self._item(parts)
        else:
            self._operand(parts, after)
        return stop

    def _start(self, parts: list[Word]) -> None:
        """Read the word that a declaration starts with, where the rest is not there yet, or is no
        name."""
        kind = self._text(parts[0])
        known = DECLARATIONS.get(kind)
        self.decl, self.locals = None, {}
        self._say("kind", parts[0], known)
        is_form = known is not None and known.form is not None
        state: State = "value" if is_form else "head"
        want = Param(kind, MEASURE, known.doc) if is_form and known else None
        self.frames = [Frame("file", state, known, current=want)]

    def _item(self, parts: list[Word]) -> None:
        """Read the name of a field, argument or key."""
        frame, name = self.frame, self._text(parts[0])
        frame.state, frame.is_step = "named", False
        frame.given.append(name)
        if frame.form == "record":
            self._key(parts)
            return
        param = frame.find(name)
        if frame.form == "call":
            self._say("argument", parts[0], param, owner=frame.owner)
        elif param is None and isinstance(frame.owner, Declaration) and frame.owner.open:
            param = Param(name, EXPRESSION, "a part of the expression")
            self._say("local", parts[0], param)
            self.locals[name] = param
        else:
            self._say("field", parts[0], param, owner=frame.owner)
        for part in parts[1:]:
            param = field_of(param, self._text(part))
            self._say("attribute", part, param)
        frame.current = param or _ANY

    def _key(self, parts: list[Word]) -> None:
        """Read the key of a record: of some it is a name of the recipe, with a path behind it."""
        frame = self.frame
        want = frame.want
        decl = self.scope.get(self._text(parts[0]))
        if decl is None or want is None or want.type not in KEYS_ARE_NAMES:
            self._say("key", parts[0])
            frame.current = want or _ANY
            return
        self._say("reference", parts[0], decl)
        if want.type != AXIS:
            frame.current = want
            return
        value = DECLARATIONS[decl.kind].value if decl.kind in DECLARATIONS else None
        param: Param | None = Param(decl.name, value or "any", f"what `{decl.name}` stands for")
        known = DECLARATIONS.get(decl.kind)
        for number, part in enumerate(parts[1:]):
            name = self._text(part)
            if number == 0 and known and known.is_block:
                param = next((each for each in known.fields if each.name == name), None)
            else:
                param = field_of(param, name)
            self._say("attribute", part, param)
        many = param is not None and param.type != "param"
        frame.current = evolve(param, many=True) if many and param else evolve(_ANY, many=True)

    def _operand(self, parts: list[Word], after: str) -> None:
        """Read a path that stands for a value, or for what makes one."""
        frame, name = self.frame, self._text(parts[0])
        want, whole = frame.expected, ".".join(map(self._text, parts))
        self._base = self._callee = None
        frame.state = "after"
        own = want if want is not None and want.type == EXPRESSION else frame.unnamed_expression
        is_word = own is not want and want is not None and name in want.all_choices()
        if own and (after == "LPAR" or not is_word) and self._in_expression(parts, own, after):
            return
        builtin = self._builtin(whole, want, after == "LPAR")
        if builtin is not None:
            for part in parts:
                self._say("builtin", part, builtin, want=want)
            self._callee = builtin
        elif name in self.locals:
            self._say("parameter", parts[0], self.locals[name], want=want)
            self._attributes(parts[1:], None)
        elif want is not None and self._is_word(name, want):
            self._say("word", parts[0], want, want=want)
        elif (decl := self.scope.get(name)) is not None:
            self._say("reference", parts[0], decl, want=want)
            self._callee = self._base = decl
            self._attributes(parts[1:], DECLARATIONS.get(decl.kind))
        elif want is not None and (
            name in want.all_choices() or (want.optional and name == "none")
        ):
            self._say("word", parts[0], want, want=want)
        else:
            self._say("reference", parts[0], want=want)
            self._attributes(parts[1:], None)

    def _is_word(self, name: str, want: Param) -> bool:
        """Whether a name is one of the words that may stand here, and not a declared value."""
        if want.optional and name == "none":
            return True
        decl = self.scope.get(name)
        return name in want.all_choices() and (
            decl is None or decl.kind not in (want.type, "param")
        )

    def _attributes(self, parts: list[Word], known: Declaration | None) -> None:
        fields = known.fields if known and known.is_block else ()
        for number, part in enumerate(parts):
            named = (each for each in fields if number == 0 and each.name == self._text(part))
            self._say("attribute", part, next(named, None))

    def _builtin(self, name: str, want: Param | None, called: bool) -> Builtin | None:
        """The builtin of the wanted kind that has a name; where something is called that is none of
        these, any of that name, for it is likely meant."""
        if want is not None and want.type in KINDS:
            known = KINDS[want.type]
            for kind in filter(None, (want.type, known.also, want.also, known.before_then)):
                found = find_builtin(kind, name)
                if found is not None and found.word != called:
                    return found
        return find_anywhere(name) if called and name not in self.scope else None

    def _in_expression(self, parts: list[Word], want: Param, after: str) -> bool:
        """Read a name of an expression; return whether it is one."""
        name = self._text(parts[0])
        kind = "loss" if self.decl is not None and self.decl.kind == "loss" else "reward"
        if after == "LPAR" and name in OPERATIONS:
            self._callee = OPERATIONS[name]
            self._say("function", parts[0], OPERATIONS[name], want=want)
        elif name in self.locals:
            self._say("local", parts[0], self.locals[name], want=want)
        elif name in INPUTS[kind]:  # type: ignore[index]
            self._say("input", parts[0], INPUTS[kind][name], want=want)  # type: ignore[index]
        else:
            return False
        return True

    def _other(self, word: Word, index: int) -> None:
        """Read a word that is no name."""
        frame, kind = self.frame, word.kind
        if kind in OPEN:
            self._open(word)
        elif kind in CLOSE:
            self._close(word)
        elif kind == "EQUAL":
            frame.state, frame.is_step = "value", False
        elif kind == "COLON":
            frame.state = "type" if frame.form in ("file", "parameters") else "value"
        elif kind == "COMMA":
            frame.position += frame.form == "call" and frame.current is None
            frame.state, frame.current, frame.is_step = "item", None, False
        elif kind == "PIPE":
            frame.state, frame.is_step = "value", True
        elif kind == "STRING" and self._kind(index - 1) in NAMES and frame.state == "head":
            self._say("path", word)  # of an import
            self.frames = [Frame("file", "after")]
        elif kind in ("STRING", "NUMBER", "MONEY", "DURATION", "PERCENT", "TRUE", "FALSE", "BAD"):
            self._literal(word)
        elif kind != "DOT":  # an operator
            frame.state, frame.is_step = "value", False

    def _literal(self, word: Word) -> None:
        frame = self.frame
        role: Role = "number"
        if word.kind == "STRING":
            role = "string"
            if frame.form == "call" and frame.position == 0 and frame.first is None:
                frame.first = string_value(self._text(word))
        elif word.kind in ("TRUE", "FALSE"):
            role = "bool"
        self._say(role, word, want=frame.expected)
        frame.state, self._base, self._callee = "after", None, None

    def _open(self, word: Word) -> None:
        frame = self.frame
        want, owner, before = frame.expected, frame.owner, frame.state
        frame.state = "value"  # until it is closed
        if word.kind == "LPAR" and before == "head":
            self.frames.append(Frame("parameters"))
        elif word.kind == "LPAR" and before == "type":
            self.frames.append(Frame("call", params=_LIMITS))
        elif word.kind == "LPAR" and before == "after" and self._callee is not None:
            self.frames.append(Frame("call", owner=self._callee, params=params_of(self._callee)))
        elif word.kind == "LPAR":
            unknown = before == "after"
            want = want if unknown else frame.unnamed_expression or want
            self.frames.append(Frame("call" if unknown else "group", "item", want=want))
        elif word.kind == "LSQB":
            one = evolve(want, many=False) if want else None
            self.frames.append(Frame("list", want=one))
        elif before == "head":
            fields = owner.fields if isinstance(owner, Declaration) else ()
            self.frames.append(Frame("fields", owner=owner, params=fields))
        elif before == "after":
            kind = self._base.kind if self._base else want.type if want else ""
            known = DECLARATIONS.get(kind)
            fields = known.fields if known else ()
            self.frames.append(Frame("fields", owner=known, params=fields))
        else:
            each = evolve(want, named=False) if want and want.named else None
            self.frames.append(Frame("record", owner=owner, want=each))

    def _close(self, word: Word) -> None:
        """Close the innermost bracket of that kind; what was left open in it is over too."""
        forms = {
            "RPAR": ("parameters", "call", "group"),
            "RSQB": ("list",),
            "RBRACE": ("fields", "record"),
        }[word.kind]
        for depth in range(len(self.frames) - 1, 0, -1):
            if self.frames[depth].form in forms:
                closed = self.frames[depth]
                if closed.form == "call":
                    self.calls.append((closed, word.start))
                del self.frames[depth:]
                self._base = closed.owner if isinstance(closed.owner, Declared) else None
                self._callee = None
                self.frame.state = "head" if closed.form == "parameters" else "after"
                return
