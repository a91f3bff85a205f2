"""Recipes with changes that the grammar knows: parts of a tree replaced, doubled, dropped, swapped
or nested, numbers and texts at the ends of what can be written, and words that are no grammar."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from random import Random

from attrs import fields, frozen

from rlc.lang.ast import Argument, BlockDecl, Call, Decl, Expr, Field, Name, Node, Parameter
from rlc.lang.source import Source, Span
from rlc.lang.syntax import parse

ROOT = Path(__file__).parents[2]
FOLDERS = (
    *("recipes", "examples", "benchmarks/methods", "rlc/projects/templates"),
    *("tests/check/cases", "tests/check/sound", "tests/imports/cases"),
    *("tests/lang/syntax/cases", "tests/lsp/cases"),
)
NUMBERS = (
    *("0", "1", "2", "3", "7", "-1", "-0.5", "0.0", "1e308", "-1e308", "1e-308", "5e-324", "1e309"),
    *("9" * 400, "1" + "0" * 400, "2147483648", "9223372036854775808", "1_000_000_000_000"),
    *("0.1", "1.0", "$0", "$1e300", "$0.001", "0%", "100%", "1e300%", "0s", "1d", "1e300d", "7h"),
)
STRINGS = (
    *(
        '""',
        '" "',
        '"\\n"',
        '"\\""',
        '"{}"',
        '"{question}"',
        '"/"',
        '"."',
        '".."',
        '"~"',
        '"~nobody/x"',
    ),
    *(
        '"~nobody/x"',
        '"/dev/null"',
        '"/etc"',
        '"x.py:f"',
        '"words.jsonl"',
        '"a b:c d"',
        '":"',
        '"hf://a/b"',
    ),
    *('"tiny"', '"http://[::1"', '"http://127.0.0.1:1/v1"', '"tinker://x"', '"run:main"', '"(("'),
    *(
        '"\\\\d+"',
        '"[a-"',
        '"é😀\u202e"',
        '"\x00"',
        '"\udc80"',
        f'"{"x" * 5_000}"',
        f'"{"é" * 300}"',
    ),
    *('"%s%n"', '"{{"', '"{% if %}"', '"a/../../b"', '"math"', '"rg:basic_arithmetic"'),
)
OTHERS = (
    *(
        "none",
        "true",
        "false",
        "[]",
        "{}",
        "[[]]",
        "[1, 2]",
        "{ a = 1 }",
        "nobody",
        "x.y.z",
        "[none]",
    ),
    *("f()", "tiny", "policy", "main", "reward", "adv", "logp", "then", "retry(3) then drop"),
)
STRAY = (
    *"{}[]()=,.:;\"'`#\\$%@&|<>!?*/+-~^",
    "|>",
    "==",
    "é",
    "\x00",
    "\u2028",
    "😀",
    "\r",
    "\t",
    "//",
)
NESTINGS = (
    *(("(", ")"), ("[", "]"), ("{ a = ", " }"), ("-", ""), ("1 + ", ""), ("2 * (", ")")),
    *(("", " |> chat()"), ("", " then drop"), ("", ".a"), ("", " { a = 1 }")),
)
_WORDS, _STRINGS = re.compile(r"\w+"), re.compile(r'"(?:[^"\\\n]|\\.)*"')
# Names of other things: not of what is called, of arguments, nor of what comes with rlc.
_NAMES = re.compile(r"(?<![\w.])(?!none|true|false|group|std|mean)[A-Za-z_]\w*(?!\w|\s*[(=])")
DEPTHS = (3, 20, 60, 150, 1_500)


@frozen
class Place:
    """A part of a recipe: its span, the node, and the kind of place it stands in."""

    span: Span
    node: Node
    kind: str


class Text:
    """A recipe and the parts of its syntax tree."""

    def __init__(self, name: str, text: str) -> None:
        self.source = Source(name, text)

    @cached_property
    def decls(self) -> tuple[Decl, ...]:
        return parse(self.source)[0].decls

    @cached_property
    def places(self) -> dict[str, list[Place]]:
        """Parts by kind: ``decl``, ``field``, ``argument``, ``parameter``, ``name``, ``value``."""
        found: dict[str, list[Place]] = defaultdict(list)
        for decl in self.decls:
            for place in _parts(decl):
                found[place.kind].append(place)
        return found


def _parts(node: Node) -> Iterator[Place]:
    kinds = {Field: "field", Argument: "argument", Parameter: "parameter", Name: "name"}
    kind = kinds.get(type(node), "value" if isinstance(node, Expr) else "decl")
    yield Place(node.span, node, kind)
    if isinstance(node, Name):
        yield Place(node.span, node, "value")
    for attribute in fields(type(node)):
        value = getattr(node, attribute.name)
        for child in value if isinstance(value, tuple) else (value,):
            if isinstance(child, Node):
                yield from _parts(child)


class Pool:
    """The recipes to start from, and all the parts of them by what they are a value of."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.texts = [Text(str(path), path.read_text(encoding="utf-8")) for path in paths]

    @cached_property
    def sound(self) -> list[Text]:
        """The recipes without those that have a mistake each."""
        return [text for text in self.texts if "/cases/" not in text.source.name]

    @cached_property
    def parts(self) -> dict[str, list[str]]:
        found: dict[str, dict[str, None]] = defaultdict(dict)
        for text in self.texts:
            for kind, places in text.places.items():
                for place in places:
                    found[kind][place.span.text] = None
                    if isinstance(node := place.node, Field):  # what such a field can be
                        found[f"{node.name.id} ="][node.value.span.text] = None
                    if isinstance(node, Argument) and node.name is not None:
                        found[f"{node.name.id} ="][node.value.span.text] = None
                    if isinstance(node, BlockDecl):
                        for part in node.fields:
                            found[f"{node.kind.id} {{"][part.span.text] = None
        return {kind: list(texts) for kind, texts in found.items()}


def shipped() -> Pool:
    """Return the recipes that are shipped, and those of the tests."""
    return Pool([path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.rl"))])


Change = Callable[[Text, Pool, Random], str | None]


def mutated(pool: Pool, random: Random) -> Text:
    """Return one of the recipes with a few changes: any, or such as leave most recipes valid."""
    likely = random.random() < 0.6
    text = random.choice(pool.sound if likely else pool.texts)
    for _ in range(random.choice([1, 1, 2, 3, 5])):
        new = random.choice(LIKELY if likely else CHANGES)(text, pool, random)
        if new is not None and len(new) < 400_000:
            text = Text(text.source.name, new)
    return text


def _at(text: Text, span: Span, new: str) -> str:
    whole = text.source.text
    return whole[: span.start] + new + whole[span.end :]


def _pick(text: Text, random: Random, *kinds: str) -> Place | None:
    places = [place for kind in kinds for place in text.places.get(kind, ())]
    return random.choice(places) if places else None


def _other_part(text: Text, pool: Pool, random: Random) -> str | None:
    """A part for another one of its kind, of any recipe."""
    place = _pick(text, random, random.choice(["value", "argument", "field", "decl", "name"]))
    return _at(text, place.span, random.choice(pool.parts[place.kind])) if place else None


def _known(text: Text, texts: Sequence[str], random: Random) -> str:
    """Return one of some texts, if there is one whose names the recipe has."""
    words = set(_WORDS.findall(text.source.text))
    for new in random.sample(texts, min(len(texts), 8)):
        if words.issuperset(_NAMES.findall(_STRINGS.sub("", new))):
            return new
    return random.choice(texts)


def _other_value(text: Text, pool: Pool, random: Random) -> str | None:
    """The value of a field or an argument for one that it has elsewhere."""
    place = _pick(text, random, "field", "argument")
    if place is None or not isinstance(item := place.node, Field | Argument) or item.name is None:
        return None
    known = pool.parts.get(f"{item.name.id} =", ["1"])
    return _at(text, item.value.span, _known(text, known, random))


def _likely_field(text: Text, pool: Pool, random: Random) -> str | None:
    """A field that such a block has elsewhere, in place of its own of that name."""
    blocks = [decl for decl in text.decls if isinstance(decl, BlockDecl)]
    if not blocks:
        return None
    block = random.choice(blocks)
    new = _known(text, pool.parts.get(f"{block.kind.id} {{", ["steps = 1"]), random)
    for part in block.fields:
        if part.name.id == new.partition("=")[0].strip():
            return _at(text, part.span, new)
    end = block.span.end - 1
    return _at(text, Span(text.source, end, end), f"\n{new}\n")


def _other_number(text: Text, _: Pool, random: Random) -> str | None:
    """A number for one near it."""
    found = [*re.finditer(r"(?<![\w.\"])\d+(?:\.\d+)?(?=[\s,)%smhd])", text.source.text)]
    if not found:
        return None
    number = random.choice(found)
    value = float(number[0]) * random.choice([0, 0.1, 0.5, 0.999, 2, 3, 10, 1_000, 1e6])
    new = f"{value:.0f}" if random.random() < 0.8 else repr(value)
    return _at(text, Span(text.source, *number.span()), new)


def _other_field(text: Text, pool: Pool, random: Random) -> str | None:
    """Another field beside one, or in an empty block."""
    place = _pick(text, random, "field", "decl")
    if place is None:
        return None
    new, end = random.choice(pool.parts["field"]), place.span.end
    if place.kind == "decl":
        end -= 1
    return _at(text, Span(text.source, end, end), f"\n{new}\n")


def _extreme(text: Text, _: Pool, random: Random) -> str | None:
    place = _pick(text, random, "value", "value", "value", "parameter", "argument")
    choices = random.choice([NUMBERS, NUMBERS, STRINGS, OTHERS])
    return _at(text, place.span, random.choice(choices)) if place else None


def _extreme_alike(text: Text, _: Pool, random: Random) -> str | None:
    """A number for an extreme one, or a text for another one."""
    literals = [*re.finditer(r'"(?:[^"\\\n]|\\.)*"|(?<![\w.])\$?\d[\w.]*%?', text.source.text)]
    if not literals:
        return None
    found = random.choice(literals)
    new = random.choice(STRINGS if found[0][0] == '"' else NUMBERS)
    return _at(text, Span(text.source, *found.span()), new)


def _dropped(text: Text, _: Pool, random: Random) -> str | None:
    place = _pick(text, random, random.choice(["field", "argument", "decl", "value"]))
    return _at(text, place.span, "") if place else None


def _doubled(text: Text, _: Pool, random: Random) -> str | None:
    place = _pick(text, random, random.choice(["field", "argument", "decl"]))
    if place is None:
        return None
    between = ", " if place.kind == "argument" else "\n"
    return _at(text, place.span, between.join([place.span.text] * random.choice([2, 2, 3, 200])))


def _swapped(text: Text, _: Pool, random: Random) -> str | None:
    kind = random.choice(["field", "argument", "decl", "value", "name"])
    one, other = _pick(text, random, kind), _pick(text, random, kind)
    if one is None or other is None or one.span.start >= other.span.start:
        return None
    if one.span.end > other.span.start:  # one within the other
        return _at(text, one.span, other.span.text)
    before = one.span.text
    return _at(Text("", _at(text, other.span, before)), one.span, other.span.text)


def _emptied(text: Text, _: Pool, random: Random) -> str | None:
    """A block without fields, or a call without arguments."""
    place = _pick(text, random, "decl", "value")
    if place is None or not isinstance(place.node, BlockDecl | Call):
        return None
    brackets = "{}" if isinstance(place.node, BlockDecl) else "()"
    head, found, _inside = place.span.text.partition(brackets[0])
    return _at(text, place.span, head + brackets) if found else None


def _circle(text: Text, _: Pool, random: Random) -> str | None:
    """A name of the recipe in place of any value, perhaps within what it names."""
    names = [decl.name.id for decl in text.decls if hasattr(decl, "name")]
    place = _pick(text, random, "value")
    if not names or place is None:
        return None
    name = random.choice(names)
    forms = (name, f"{name}()", f"{name}.base", f"{name} {{ }}", f"{name} + {name}", f"2 * {name}")
    return _at(text, place.span, random.choice(forms))


def _nested(text: Text, _: Pool, random: Random) -> str | None:
    place = _pick(text, random, "value")
    if place is None:
        return None
    depth, inner = random.choice(DEPTHS), place.span.text
    call = random.choice(["f", "mean", "concat", "returns"])
    before, after = random.choice([*NESTINGS, (f"{call}(", ")")])
    return _at(text, place.span, before * depth + inner + after * depth)


def _imported(text: Text, pool: Pool, random: Random) -> str:
    """An import of itself, of another recipe, or of what is none."""
    other = random.choice(pool.texts).source.name
    itself = Path(text.source.name).name
    path = random.choice([itself, other, ".", "/dev/null", "nobody.rl", "\x00"])
    return f'import "{path}"\n{text.source.text}'


def _parametrised(text: Text, _: Pool, random: Random) -> str | None:
    """A declaration with parameters that it may not use."""
    place = _pick(text, random, "decl")
    name = getattr(place.node, "name", None) if place is not None else None
    if not isinstance(name, Name):
        return None
    forms = ["(n)", "(n: int = 3)", "(n = none, n = 1)", "()", "(n: float(0, -1) = n)"]
    form = random.choice(forms)
    return _at(text, name.span, name.id + form)


def _amended(text: Text, pool: Pool, random: Random) -> str | None:
    """Another stage that is one of the recipe with other fields."""
    blocks = [decl for decl in text.decls if isinstance(decl, BlockDecl)]
    if not blocks:
        return None
    block = random.choice(blocks)
    changed = " ".join(random.choices(pool.parts["field"], k=random.randrange(3)))
    copy = f"{block.kind.id} copy_{random.randrange(9)} = {block.name.id} {{ {changed} }}"
    return f"{text.source.text}\n{copy}\n"


def _stray(text: Text, _: Pool, random: Random) -> str:
    size = len(text.source.text)
    start = random.randrange(size + 1)
    end = min(size, start + random.choice([0, 0, 1, 3, 30]))
    new = random.choice(STRAY) * random.choice([1, 1, 2, 50])
    return _at(text, Span(text.source, start, end), new)


def _cut(text: Text, _: Pool, random: Random) -> str:
    """The beginning of a recipe, as somebody has typed it so far, or its end."""
    place = random.randrange(len(text.source.text) + 1)
    return random.choice([text.source.text[:place], text.source.text[place:]])


def _joined(text: Text, pool: Pool, random: Random) -> str:
    """Two recipes in one file."""
    return f"{text.source.text}\n{random.choice(pool.texts).source.text}"


LIKELY: tuple[Change, ...] = (
    *(_other_value, _other_value, _likely_field, _likely_field, _other_number, _dropped, _swapped),
)
CHANGES: tuple[Change, ...] = (
    *(
        _other_part,
        _other_part,
        _other_value,
        _other_value,
        _other_value,
        _other_field,
        _other_field,
    ),
    *(_extreme, _extreme, _extreme_alike, _extreme_alike, _extreme_alike, _dropped, _dropped),
    *(_doubled, _swapped, _emptied, _circle, _nested, _imported, _parametrised, _amended, _stray),
    *(_cut, _joined),
)
