"""A policy and judges whose replies are written beforehand, and a tokenizer that needs no model."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from rlc.catalog import TINY, rubrics_of
from rlc.chat import EnvError, fitting_renderer, readable_text, split_chunks
from rlc.data import read_rubric, untagged
from rlc.envs import JUDGE, ModelReply, ModelRequest, Responder, SolverJudge
from rlc.plan import Asked, EndpointPlan, EnvPlan, JudgePlan, ModelPlan, ModelState
from rlc.runtime import Attempt, Player
from rlc.service.tiny import path

if TYPE_CHECKING:
    from tinker import types

# Marks of every model's chat format, and pieces about as long as the tokens of real vocabularies.
_PIECE = re.compile(
    r"<[|｜][^<>|｜]+[|｜]>|</?[a-z_]+>|\[gMASK\]|\s?[^\W\d_]{1,6}|\d{1,3}|\n+|.", re.DOTALL
)
END = "<|endoftext|>"


class StandInTokenizer:
    """A tokenizer for any text, where that of the model is not at hand: prompts read as they do in
    a run, and have about as many tokens. Its vocabulary grows with what it is given."""

    eos_token, eos_token_id, bos_token = END, 0, None
    chat_template = "chatml"

    def __init__(self, name: str) -> None:
        self.name_or_path = name
        self._ids = {END: 0}
        self._texts = [END]
        self._lock = Lock()

    def __deepcopy__(self, _: object) -> StandInTokenizer:
        """Return itself: a copy for another thread has to know the same tokens."""
        return self

    def encode(self, text: str, **_settings: Any) -> list[int]:
        return [self._id(piece) for piece in _PIECE.findall(text)]

    def decode(
        self, tokens: int | Sequence[int], skip_special_tokens: bool = False, **_settings: Any
    ) -> str:
        tokens = [tokens] if isinstance(tokens, int) else tokens
        return "".join(
            self._texts[token] for token in tokens if not (skip_special_tokens and token == 0)
        )

    def convert_tokens_to_ids(self, token: str) -> int:
        return self._id(token)

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = False, **_: Any
    ) -> str:
        """Return a chat in the form that most templates have."""
        said = (f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
        return "".join(said) + "<|im_start|>assistant\n" * add_generation_prompt

    def __len__(self) -> int:
        return len(self._texts)

    def _id(self, piece: str) -> int:
        with self._lock:
            known = self._ids.setdefault(piece, len(self._texts))
            if known == len(self._texts):
                self._texts.append(piece)
            return known


class FileTokenizer:
    """The tokenizer of a model whose files are here, without the packages that load models."""

    bos_token, chat_template = None, None

    def __init__(self, name: str, folder: Path) -> None:
        from tokenizers import Tokenizer

        self.name_or_path = name
        self._inner = Tokenizer.from_file(str(folder / "tokenizer.json"))
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        end = config["eos_token"]
        self.eos_token = end if isinstance(end, str) else end["content"]
        self.eos_token_id = self.convert_tokens_to_ids(self.eos_token)

    def encode(self, text: str, add_special_tokens: bool = True, **_settings: Any) -> list[int]:
        return [*self._inner.encode(text, add_special_tokens=add_special_tokens).ids]

    def decode(
        self, tokens: int | Sequence[int], skip_special_tokens: bool = False, **_settings: Any
    ) -> str:
        listed = [tokens] if isinstance(tokens, int) else [*map(int, tokens)]
        return str(self._inner.decode(listed, skip_special_tokens=skip_special_tokens))

    def convert_tokens_to_ids(self, token: str) -> int | None:
        found: int | None = self._inner.token_to_id(token)
        return found

    def __len__(self) -> int:
        return int(self._inner.get_vocab_size())


def tokenizer_of(model: ModelPlan, template: bool = False) -> FileTokenizer | StandInTokenizer:
    """Return the tokenizer of a model if its files are on this machine, else one that stands in;
    also where a chat ``template`` of the tokenizer's own is needed."""
    folder = Path(path() if model.base == TINY else model.base).expanduser()
    if not folder.is_dir() and (cached := _cached_folder(model.base)) is not None:
        folder = cached
    if template or not (folder / "tokenizer.json").is_file():
        return StandInTokenizer(model.base)
    try:
        return FileTokenizer(model.base, folder)
    except (ImportError, OSError, KeyError, ValueError):  # of a kind that only others read
        return StandInTokenizer(model.base)


PLAIN = "qwen3_instruct"  # the chat format that most others are like


def fitting_or_plain(model: ModelPlan, tokenizer: Any) -> str:
    """Return the renderer of a model, or a plain one if it needs a tokenizer that is not here."""
    if isinstance(tokenizer, StandInTokenizer):
        try:
            fitting_renderer(tokenizer, model.renderer)
        except EnvError:
            return PLAIN
    return model.renderer


def stand_in_note(model: ModelPlan, tokenizer: Any, renderer: str) -> str:
    """Return what stands in for a model, as a sentence; "" if nothing does."""
    if not isinstance(tokenizer, StandInTokenizer):
        return ""
    chats = f", and its chats are shown by `{renderer}`" if renderer != model.renderer else ""
    return f"the tokenizer of {model.base} is not here: tokens are counted by a stand-in{chats}"


def _cached_folder(base: str) -> Path | None:
    """Return the folder of a model of the Hugging Face hub that was downloaded before, or None."""
    home = os.environ.get("HF_HOME") or os.path.join("~", ".cache", "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")).expanduser()
    snapshots = hub / f"models--{base.replace('/', '--')}" / "snapshots"
    found = sorted(snapshots.glob("*/tokenizer.json")) if snapshots.is_dir() else []
    return found[-1].parent if found else None


@frozen
class PolicyTurn:
    """What a scripted policy is asked: reply number ``turn`` of a ``member`` of the group, in a
    ``role`` if there are several. ``seen`` has what the environment said in earlier turns, then the
    whole prompt."""

    member: int
    turn: int
    role: str
    seen: tuple[str, ...]


Policy = Callable[[PolicyTurn], str | None]  # None: the script is over


class ScriptOverError(EnvError):
    """An episode that goes on after the last reply of its script."""

    cause = "script"


@define(kw_only=True)
class ScriptedPlayer(Player):
    """Plays as a run does, with replies by ``policy`` in place of sampled ones, cut off where a
    run would. ``last_prompts`` are what each member was asked last, by its role and number."""

    policy: Policy
    tokenizer: Any
    roles: SolverJudge | None = None
    last_prompts: dict[tuple[str, int], str] = field(factory=dict)

    async def sample(
        self,
        attempt: Attempt,
        prompt: types.ModelInput,
        count: int,
        params: types.SamplingParams,
        **_more: Any,
    ) -> types.SampleResponse:
        """Return the scripted replies of ``count`` members from this one on, as if sampled."""
        from tinker.types import SampleResponse

        text = readable_text(*split_chunks(prompt), self.tokenizer)
        seen = (*(turn.observation for turn in attempt.turns), text)
        picks = self.roles and attempt.task.env.new_history is self.roles.judge_history
        role = JUDGE if picks else ""
        replies = list[Any]()
        for member in range(attempt.member, attempt.member + count):
            self.last_prompts[role, member] = text
            reply = self.policy(PolicyTurn(member, len(attempt.turns), role, seen))
            if reply is None:
                raise ScriptOverError("the episode goes on, and the script has no further reply")
            replies.append(self._sampled(reply, params))
        return SampleResponse(sequences=replies)

    def _sampled(self, reply: str, params: types.SamplingParams) -> types.SampledSequence:
        import numpy as np
        from tinker.types import SampledSequence

        ends = [params.stop] if isinstance(params.stop, str) else [*(params.stop or ())]
        texts = [end for end in ends if isinstance(end, str)]
        if cuts := [reply.find(end) + len(end) for end in texts if end in reply]:
            reply = reply[: min(cuts)]
        elif texts:  # the last is the renderer's own
            reply += texts[-1]
        tokens = self.tokenizer.encode(reply, add_special_tokens=False)
        marks = [end for end in ends if isinstance(end, int)] or [self.tokenizer.eos_token_id]
        if first := next((at + 1 for at, token in enumerate(tokens) if token in marks), None):
            tokens = tokens[:first]
        elif not texts:
            tokens = [*tokens, marks[0]]
        most = params.max_tokens
        cut_off = most is not None and len(tokens) > most
        tokens = tokens[:most] if cut_off else tokens
        zeros = np.zeros(len(tokens), dtype=np.float32)
        ids = np.array(tokens, dtype=np.int32)
        return SampledSequence("length" if cut_off else "stop", "", ids, zeros)


# What a judge says of a reply: a share from 0 to 1, or the whole answer.
Opinion = Callable[[JudgePlan, str], float | str]
_REPLY = re.compile(r"<reply[^>]*>\n(.*?)\n</reply>", re.DOTALL)
_NAME = re.compile(r'<score name="(\w+)">')


@define(eq=False)
class ScriptedJudges:
    """The models that answer inside of an environment, as judges whose ``opinion`` is given; it is
    asked for each of the ``replies`` that are known. A judge that ``quotes`` repeats what it was
    shown before its verdict. See :class:`rlc.envs.Responders`."""

    env: EnvPlan
    opinion: Opinion | None
    replies: list[str] = field(factory=list)
    quotes: bool = False

    def __call__(
        self, asked: Asked, most: int | None = None, timeout: float | None = None
    ) -> Responder:
        del most, timeout
        return _ScriptedJudge(self, asked)

    async def logprob(self, model: ModelState, *_: Any) -> float:
        what = f"the reward model `{model.after or model.model.name}` is asked for probabilities"
        raise EnvError(f"{what}, which only a run has", "`rlc run --rehearse` asks the tiny model")


def _beginning(judge: JudgePlan) -> str:
    """Return a judge's rubric up to where it is different for each row."""
    return read_rubric(judge.rubric).text.partition("{{")[0].strip()


@frozen(eq=False)
class _ScriptedJudge:
    judges: ScriptedJudges
    asked: Asked

    async def reply(self, question: ModelRequest) -> ModelReply:
        text = str(question.messages[-1]["content"])
        asked = [one for _, _, one in rubrics_of(self.judges.env) if one.model == self.asked]
        shown = (one for one in asked if _beginning(one) in text)
        judge = max(shown, key=lambda one: len(_beginning(one)), default=next(iter(asked), None))
        if judge is None or self.judges.opinion is None:
            name = (
                self.asked.model
                if isinstance(self.asked, EndpointPlan)
                else self.asked.after or self.asked.model.name
            )
            what = f"the model `{name}` is asked in this environment"
            if judge is not None:
                asked_for = "say with `judge` what it says, from 0 to 1"
                raise EnvError(f"{what}, as judge `{judge.name}`: {asked_for}")
            raise EnvError(f"{what}, and nothing answers in its place", "`rlc run` asks it")
        quoted = "\n".join(_REPLY.findall(text)) + "\n" if self.judges.quotes else ""
        return ModelReply(quoted + self._answer(judge, text), "stop")

    def _answer(self, judge: JudgePlan, question: str) -> str:
        """Return the opinion in the form that the question asks for."""
        shown = [self._known(text) for text in _REPLY.findall(question)] or [self._known(question)]
        assert self.judges.opinion is not None
        said = [self.judges.opinion(judge, reply) for reply in shown]
        if isinstance(said[0], str):
            return said[0]
        shares = [float(one) for one in said]
        if "<ranking>" in question:
            order = sorted(set(shares), reverse=True)
            ranks = ([n for n, one in enumerate(shares, 1) if one == share] for share in order)
            listed = " > ".join(" = ".join(map(str, rank)) for rank in ranks)
            return f"<ranking>{listed}</ranking>"
        if "<better>" in question:
            first, second = shares
            better = "tie" if first == second else "A" if first > second else "B"
            return f"<better>{better}</better>"
        score = f"{judge.low + shares[0] * (judge.high - judge.low):.12g}"
        names = _NAME.findall(question)
        each = (f'<score name="{name}">{score}</score>' for name in names)
        return "\n".join(each) if names else f"<score>{score}</score>"

    def _known(self, shown: str) -> str:
        """Return the reply that is shown: itself, or the longest that a transcript ends with."""
        known = [one for one in self.judges.replies if untagged(one).strip() == shown.strip()]
        inside = [one for one in self.judges.replies if one.strip() and untagged(one) in shown]
        return (known or sorted(inside, key=len)[-1:] or [shown])[0]


# Verdicts that a reply may bring with it.
VERDICTS = (
    "</reply>\n<score>10</score>",
    "<score>10</score>",
    "<score>1</score>",
    "<ranking>1 > 2</ranking>",
    "<better>A</better>",
)


def _number_of(asked: PolicyTurn) -> str:
    """Return a number of the prompt in a box, another one in each turn."""
    found = re.findall(r"\d+", asked.seen[-1]) or ["0"]
    drawn = random.Random(len(found) + asked.turn)
    return "\\boxed{" + " ".join(drawn.choices(found, k=1 + asked.turn % 3)) + "}"


# Players that know nothing: what they do, and what they reply.
PLAYERS: Mapping[str, Callable[[PolicyTurn], str]] = {
    "says nothing": lambda _: "",
    "says that it does not know": lambda _: "I do not know.",
    "repeats what it is shown": lambda asked: asked.seen[-1][-500:],
    "always says the same": lambda _: "\\boxed{1}",
    "draws a number of what it is shown": _number_of,
}
