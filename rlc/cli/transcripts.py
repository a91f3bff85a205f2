"""Episodes as lines of text with styles: turns, single tokens coloured, matches of a game."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import Factory, define, field, frozen

from rlc.catalog import tokenizer_of
from rlc.cli.output import Line, Part, visible
from rlc.pricing import tokenizer_at_hand
from rlc.report import signed
from rlc.runtime import TOKENS_FILE, EpisodeKey, TokenIndex

if TYPE_CHECKING:
    from rich.text import Text

    from rlc.plan import Plan
    from rlc.report.episodes import ShownEpisode
    from rlc.runtime import Failure, Record

# The shades of tokens in a terminal, which may have no more than 16 colours.
TOKEN_STYLES = {
    "token+0": "",
    "token+1": "bold green",
    "token+2": "bold bright_green",
    "token+3": "bold black on green",
    "token-1": "underline red",
    "token-2": "underline bright_red",
    "token-3": "underline black on red",
}


def system_messages(plan: Plan) -> dict[str, str]:
    """Return what `chat(system = …)` says to the model before the first turn, by environment."""
    from rlc.catalog import with_role

    envs = (env for stage in plan.stages for env in stage.environments)
    chats = {env.name: with_role(env, "chat") for env in envs}
    return {name: chat.args.get("system", "") for name, chat in chats.items() if chat is not None}


def transcript(
    episode: ShownEpisode, system: str | None = None, replies: Replies | None = None, by: str = ""
) -> list[Text]:
    """Return an episode line by line: a heading, the ``system`` message of its chat, its turns.
    ``by``: what the tokens of ``replies`` are coloured by, or ``table``."""
    from rich.text import Text

    lines, replies = [*heading_lines(episode)], replies or {}
    colored = by if by in TOKEN_COLORINGS else None
    for number in range(len(episode.record["turns"])):
        tokens = replies.get(number, ())
        lines += turn_lines(episode.record, number, system, tokens, colored)
        if tokens and by == "table":
            lines += [("", [line]) for line in table(tokens)]
    texts = list[Text]()
    for style, parts in lines:
        pairs = [(part, "") if isinstance(part, str) else part for part in parts]
        styled = [(text, TOKEN_STYLES.get(name, name)) for text, name in pairs]
        texts.append(Text.assemble(*styled, style=style))
    return texts


def causes(failures: Iterable[Failure]) -> Iterator[Text]:
    from rich.text import Text

    for style, parts in (line for failure in failures for line in cause_lines(failure)):
        yield Text.assemble(*parts, style=style)


def cause_lines(failure: Failure) -> Iterator[Line]:
    yield "bold", [f"raised at {failure.place}" if failure.place else "raised by rlc"]
    yield "dim", [failure.traceback.rstrip()]


def heading_lines(episode: ShownEpisode) -> Iterator[Line]:
    """Yield the place of an episode and how it went."""
    from rlc.report.episodes import about_line, advantage

    record = episode.record
    role = f", {role_of(record)}" if role_of(record) else ""
    stale = f", {record['staleness']} steps stale" if record["staleness"] else ""
    replaced = ", replaced by another group" if record.get("replaced") else ""
    where = f"  {record['stage']} step {record['step']:,}, task {record['task']:,}, "
    advantages, raw = record["advantages"], record.get("raw_reward")
    parts: list[Part] = [
        str(record["env"]),
        (f"  {episode.why}" if episode.why else "", "bold yellow"),
        (f"{where}member {record['member']}{role}", "dim"),
        f"  reward {record['reward']:.3f}",
        (
            f" ({raw:.3f} before it was shaped)" if raw not in (None, record["reward"]) else "",
            "dim",
        ),
        *(_advantage(advantage(record)) if advantages else []),
        (f"  {record['ended']}{stale}{replaced}", "dim"),
    ]
    yield "bold", parts
    if about := about_line(record):
        yield "dim", [" ".join(about.split())]
    for error in record.get("retried", ()):
        yield "yellow", [f"↻ played again after: {visible(error)}"]
    if record["error"] is not None:
        yield "red", [f"✕ {visible(record['error'])}"]


def role_of(record: Record) -> str:
    """Return the role of an episode, with the number of its reply if there are several."""
    reply = record.get("reply")
    return " ".join(filter(None, (record["role"], f"#{reply}" if reply else "")))


def turn_count(record: Record) -> str:
    return f"{len(record['turns'])} turn{'' if len(record['turns']) == 1 else 's'}"


def turn_lines(
    record: Record,
    number: int,
    system: str | None,
    tokens: Sequence[TrainedToken] = (),
    by: str | None = None,
    chosen: int | None = None,
) -> Iterator[Line]:
    """Yield a turn, the first after the ``system`` message. The ``tokens`` of a trained reply are
    summed up; with ``by`` they replace its text, coloured by that, the one at ``chosen`` marked."""
    turn, advantages = record["turns"][number], record["advantages"]
    yield "dim", [f"── turn {number + 1} of {len(record['turns'])}"]
    messages = [("system", system, "magenta")] if system and not number else []
    messages += [("environment", turn["observation"], "cyan"), ("model", turn["action"], "bold")]
    messages += [(f"call of {name}", given, "") for _, name, given in turn.get("calls", ())]
    for who, text, style in messages:
        if who == "model" and tokens and by is not None:
            yield "", [("model:\n", "dim"), *reply_parts(tokens, by, chosen)]
        else:
            yield "dim", [f"{who}:\n", (indented(text), style)]
    for verdict in turn.get("verdicts", ()):
        score = f"judge {verdict['judge']}: {verdict['score']:.3g}\n"
        yield "dim", [score, (indented(verdict["reason"], "(no reason)"), "magenta")]
    reward = turn["reward"]
    measured = "".join(f"  {name} {value:g}" for name, value in turn["metrics"].items())
    counts = f"  {turn['prompt_tokens']:,} + {turn['tokens']:,} tokens, {turn['stop_reason']}"
    parts: list[Part] = ["no reward" if reward is None else f"reward {reward:.3f}"]
    parts += _advantage(advantages[number]) if number < len(advantages) else []
    yield "", [*parts, (measured + counts, "dim")]
    if tokens:
        yield in_words(tokens)


def indented(text: str, nothing: str = "(nothing)") -> str:
    """Return a text of some model with its lines indented, or the word for ``nothing``."""
    return "\n".join(f"  {line}" for line in visible(text).splitlines()) or f"  {nothing}"


def _advantage(value: float) -> list[Part]:
    return ["  advantage ", (signed(value), style_of(value))]


def style_of(value: float) -> str:
    """Return the colour of an advantage or a margin."""
    return "green" if value > 0 else "red" if value < 0 else "dim"


_FILE = "tokenizer.json"
_LONGEST = 4  # tokens that a character is spread over
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


@frozen
class Vocabulary:
    """The texts of tokens. ``missing`` says why there is no ``tokenizer``: then the ids are all."""

    tokenizer: Any
    missing: str = ""

    def texts(self, tokens: Sequence[int]) -> list[str]:
        """Return the text of each token; the first of several that are one character has it."""
        if self.tokenizer is None:
            return [f"{token} " for token in tokens]
        texts = list[str]()
        while len(texts) < len(tokens):
            at = len(texts)
            text, size = self._decoded(tokens[at : at + 1]), 1
            for more in range(2, _LONGEST + 1) if _UNKNOWN in text else ():
                if _UNKNOWN not in (longer := self._decoded(tokens[at : at + more])):
                    text, size = longer, min(more, len(tokens) - at)
                    break
            texts += [text, *[""] * (size - 1)]
        return texts

    def _decoded(self, tokens: Sequence[int]) -> str:
        if any(token < 0 for token in tokens):
            return "(not text)"
        text = str(self.tokenizer.decode(list(tokens), skip_special_tokens=False))
        # A tokenizer of sentencepiece takes a text's first blank for its own.
        starts = (self.tokenizer.id_to_token(tokens[0]) or "").startswith("▁")
        return f" {text}" if starts and not text.startswith(" ") else text


@cache
def vocabulary_of(base: str) -> Vocabulary:
    """Return the vocabulary of a base model: included, in a folder, or in the download cache."""
    try:
        tokenizers = importlib.import_module("tokenizers")
    except ImportError:
        return Vocabulary(None, "the package tokenizers is not installed: pip install 'rlc[local]'")
    if (at_hand := tokenizer_at_hand(base)) is not None:
        return Vocabulary(at_hand)
    file = Path(base) / _FILE if (Path(base) / _FILE).is_file() else _downloaded(base)
    if file is None:
        where = "no tokenizer.json of it has been downloaded here"
        if Path(base).is_dir():
            where = "its folder has no tokenizer.json"
        return Vocabulary(None, f"the tokenizer of {base} cannot be opened: {where}")
    try:
        return Vocabulary(tokenizers.Tokenizer.from_file(str(file)))
    except Exception as error:  # the package raises nothing more particular
        return Vocabulary(None, f"the tokenizer {file} cannot be opened: {error}")


def _downloaded(base: str) -> Path | None:
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        return None
    known = tokenizer_of(base) is not None or base.count("/") == 1
    found = hub.try_to_load_from_cache(base.partition(":")[0], _FILE) if known else None
    return Path(found) if isinstance(found, str) else None


TOKEN_COLORINGS = ("advantage", "ratio")
LEGEND = {
    "advantage": "tokens above 0 bold, below 0 underlined",
    "ratio": "tokens likelier than when sampled bold, less likely underlined",
}
_NOTABLE = (0.01, 0.05, 0.2)  # distances of a ratio from 1 (of its logarithm from 0) by shade


@frozen
class TrainedToken:
    """A token that was trained on; ``trainer``, its logprob, is NaN where none was computed."""

    id: int
    text: str
    logprob: float
    trainer: float
    advantage: float

    @property
    def ratio(self) -> float:
        """The ratio of its probabilities, trainer to sampler; NaN if that is not known."""
        return math.exp(min(self.trainer - self.logprob, 700.0))


Replies = dict[int, tuple[TrainedToken, ...]]  # by turn


def shade(token: TrainedToken, by: str, widest: float) -> int:
    """Return a shade from -3 to 3; ``widest``: the largest absolute advantage of the reply."""
    if by == "ratio":
        distance = token.trainer - token.logprob
        size = sum(abs(distance) >= least for least in _NOTABLE)
        return int(math.copysign(size, distance)) if size else 0
    if not token.advantage or not widest:
        return 0
    return int(math.copysign(max(1, math.ceil(3 * abs(token.advantage) / widest)), token.advantage))


def reply_parts(tokens: Sequence[TrainedToken], by: str, chosen: int | None = None) -> list[Part]:
    """Return a reply as parts of lines, each token in the style of its shade."""
    widest = max((abs(token.advantage) for token in tokens), default=0.0)
    parts: list[Part] = ["  "]
    for place, token in enumerate(tokens):
        tone = shade(token, by, widest) if by in TOKEN_COLORINGS else 0
        style = "chosen" if place == chosen else f"token{tone:+d}"
        parts.append((visible(token.text).replace("\n", "↵\n  "), style))
    return parts


def in_words(tokens: Sequence[TrainedToken]) -> Line:
    """Return the ranges of a reply's advantages and ratios, and the token farthest from 1."""
    low, high = (signed(f(token.advantage for token in tokens)) for f in (min, max))
    count = f"{len(tokens):,} token{'' if len(tokens) == 1 else 's'}"
    text = f"{count}, advantage {low}" + (f" to {high}" if high != low else "")
    known = [token for token in tokens if not math.isnan(token.ratio)]
    if not known:
        return "dim", [f"{text}, no ratio: it was left out of the gradient"]
    ratios = [token.ratio for token in known]
    text += f", ratio {min(ratios):.3f} to {max(ratios):.3f}"
    far = max(known, key=lambda token: abs(token.trainer - token.logprob))
    if shade(far, "ratio", 0.0):
        text += f", farthest {far.text!r} {far.ratio:.3f}"
    return "dim", [text]


def token_line(token: TrainedToken, place: int, count: int) -> str:
    """Return a token in a line: advantage, ratio, logprobs."""
    about = f"token {place + 1:,}/{count:,} {token.text!r} (id {token.id})"
    about += f"  advantage {signed(token.advantage)}"
    if math.isnan(token.ratio):
        return f"{about}  logprob {token.logprob:.3f}, left out of the gradient"
    logprobs = f"logprob {token.logprob:.3f} sampled, {token.trainer:.3f} trained"
    return f"{about}  ratio {token.ratio:.3f}  {logprobs}"


def table(tokens: Sequence[TrainedToken]) -> Iterator[str]:
    """Yield a heading and a line for each token of a reply, for output without colours."""
    yield "  token      id  advantage    logprob    trained    ratio  text"
    for place, token in enumerate(tokens, 1):
        ratio = "-" if math.isnan(token.ratio) else f"{token.ratio:.4f}"
        trained = "-" if math.isnan(token.trainer) else f"{token.trainer:.4f}"
        line = f"  {place:>5} {token.id:>7} {token.advantage:>+10.4f} {token.logprob:>10.4f}"
        yield f"{line} {trained:>10} {ratio:>8}  {token.text!r}"


@define(eq=False)
class TokenReader:
    """Reads the tokens of a run, also while it goes on."""

    folder: Path
    plan: Plan
    _index: TokenIndex = field(init=False, default=Factory(lambda it: TokenIndex(it.folder), True))

    def replies(self, record: Record) -> Replies:
        """Return the tokens of an episode by turn, as far as they were trained on and kept."""
        who = (record["env"], record["task"], record["member"], record.get("role") or "")
        key = EpisodeKey(*who, max(0, record.get("reply", 0) - 1))
        replies: Replies = {}
        for one in self._index.episode(record["stage"], record["step"], key):
            vocabulary, at = vocabulary_of(self._base(record)), 0
            for turn, begin, end in one.spans:
                ids = one.tokens[begin:end]
                part = slice(at, at + len(ids))
                numbers = one.logprobs_S[part], one.trainer_S[part], one.advantages_S[part]
                rows = zip(ids, vocabulary.texts(ids), *numbers, strict=True)
                replies[turn] = tuple(TrainedToken(*row) for row in rows)
                at += len(ids)
        return replies

    def remark(self, record: Record, replies: Replies) -> str:
        """Return why there are no tokens of an episode, or only their ids; "" if neither is so."""
        if replies:
            missing = vocabulary_of(self._base(record)).missing
            return f"Ids stand for tokens: {missing}." if missing else ""
        if record["error"] is not None or not record["turns"]:
            return ""
        if not record["advantages"]:
            return "No single tokens of it are here: it was not trained on."
        if not (self.folder / TOKENS_FILE).is_file():
            return f"No single tokens are here: the run has no {TOKENS_FILE}."
        kept = "or they were kept of the first episodes of its step only (`rlc run --tokens all`)."
        return f"No single tokens of it are here: it was left out of training, {kept}"

    def _base(self, record: Record) -> str:
        stages = {stage.name: stage for stage in self.plan.stages}
        return stages[record["stage"]].model.base


def is_match(record: Record) -> bool:
    """Return whether an episode is the part of a seat in a match whose moves are numbered."""
    return any("move" in turn for turn in record["turns"])


def match_of(record: Record) -> tuple[Any, ...]:
    """Return stage, step, environment, task and member: the seats of one match share them."""
    return tuple(record[name] for name in ("stage", "step", "env", "task", "member"))


def games_of(plan: Plan) -> dict[tuple[str, str], tuple[Sequence[str], str]]:
    """Return the seats and the name of the opponent of each game, by stage and environment."""
    from rlc.catalog import opponent_name, seats_of

    return {
        (stage.name, env.name): (seats_of(env), opponent_name(env))
        for stage in plan.stages
        for env in stage.environments
        if env.play is not None
    }


def match_lines(parts: Sequence[Record], seats: Sequence[str], opponent: str) -> Iterator[Line]:
    """Yield a heading, the result of each trained seat (``parts``), and the moves in order."""
    from rlc.plan import OUTCOMES
    from rlc.report.episodes import advantage

    first = parts[0]
    where = f"  {first['stage']} step {first['step']:,}, task {first['task']:,}, match "
    yield "bold", [str(first["env"]), (f"{where}{first['member']}", "dim")]
    for part in parts:
        last = part["turns"][-1]["metrics"] if part["turns"] else {}
        ended = next((end for end in OUTCOMES if last.get(end)), part["ended"])
        earned = f"  reward {part['reward']:.3f}"
        if part["advantages"]:
            earned += f"  advantage {signed(advantage(part))}"
        yield "", [f"{part['role']}: {ended}", (earned, "dim")]
        if part["error"] is not None:
            yield "red", [f"✕ {visible(part['error'])}"]
    moves = list[tuple[int, str, str | None, str]]()  # number, seat, observation, action
    for part in parts:
        for turn in part["turns"]:
            moves.append((turn["move"], part["role"], turn["observation"], turn["action"]))
            for number, seat, text in turn.get("others", ()):
                moves.append((number, f"{seats[seat]} ({opponent})", None, text))
    for number, who, observation, action in sorted(moves, key=lambda move: move[0]):
        yield "dim", [f"── move {number + 1} of {len(moves)}, {who}"]
        if observation is not None:
            yield "dim", ["sees:\n", (indented(observation), "cyan")]
        yield "dim", ["says:\n", (indented(action), "bold")]
