"""A simulated service whose model plays Sudoku: scripted replies, times that depend on tokens.

    python benchmarks/sudoku_service.py --model FOLDER --checkpoints FOLDER --thought 30

`benchmarks/simulated.py` with three differences:

- A reply is a line of thought and a move, decided by the board and the turn that the prompt ends
  with. Whoever asks, and however the prompt is made up, the episode of a puzzle is the same.
- A sample takes ``wait + factor · (fresh / prefill + sampled / decode)`` seconds: the factor is
  heavy-tailed and belongs to board and turn, fresh is what the sampler has not seen as the
  beginning of a prompt or of a prompt with its reply (a prefix cache without bound, in blocks).
- A gradient takes ``tokens / train`` seconds, an update ``update``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Awaitable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from attrs import asdict, define, field, frozen
from made_up_outputs import LOGPROB, output_of
from simulated import (
    CONTEXT,
    SimulatedSampler,
    SimulatedService,
    SimulatedTrainer,
    Times,
    _after,
    tokenizer_of,
)
from tinker import types

import rlc.service.engine  # noqa: F401 (before torch)
from rlc.envs.gem.oracles import Board, empty_cells, fitting_digits, read_board, sudoku_move
from rlc.service.engine.checkpoints import CheckpointStore
from rlc.service.engine.custom_loss import CustomLoss
from rlc.service.engine.lora import LoraSpec
from rlc.service.server.faults import LogNormal

BLOCK = 16  # tokens of the prefix cache that are kept or not
SEEN_FROM = 256  # tokens at the end of a prompt in which the board and the turn are found
ENDS = "<|im_end|>"
_SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@frozen
class Speeds:
    """What a model of some 8 B parameters on a shared GPU could have. All seconds are multiplied
    by ``scale``; 0 is a service that answers at once."""

    wait: float = 0.05  # seconds of each request
    prefill: float = 20_000.0  # tokens a second
    decode: float = 60.0  # tokens a second of one sample
    tail: float = 0.6  # sigma of the log-normal factor, whose median is 1
    train: float = 8_000.0  # tokens a second, forward and backward
    update: float = 0.5  # seconds, and again for a snapshot of the weights
    scale: float = 1.0

    def sample(self, factor: float, fresh: int, sampled: int) -> float:
        work = fresh / self.prefill + sampled / self.decode
        return self.scale * (self.wait + factor * work)

    def gradient(self, tokens: int) -> float:
        return self.scale * tokens / self.train


@frozen
class Player:
    """``thought`` is the median of tokens before the move, ``slips`` the share of wrong moves."""

    tokenizer: Any
    thought: float
    slips: float

    def reply(self, text: str, most: int) -> tuple[list[int], float]:
        """The tokens of a reply to a prompt that ends so, and its time's quantile."""
        board, turn = read_board(text), _turn(text)
        random = Random(blake2b(f"{turn} {board}".encode(), digest_size=8).digest())
        quantile = random.random()
        wrong = random.random() < self.slips
        move = _wrong_move(board, random) if wrong else sudoku_move([text])
        end = self.tokenizer.encode(f" \\boxed{{{move}}}{ENDS}", add_special_tokens=False)
        length = LogNormal(self.thought, 0.6).at(random.random()) if self.thought else 0
        thought = self._thought(board, min(round(length), most - len(end)))
        return [*thought, *end], quantile

    def _thought(self, board: Board, tokens: int) -> list[int]:
        clauses = [_clause(board, *cell) for cell in empty_cells(board)]
        line: list[int] = self.tokenizer.encode(" ".join(clauses), add_special_tokens=False)
        return (line * (tokens // len(line) + 1))[:tokens]


def _turn(text: str) -> int:
    """How many moves have been made."""
    turns = re.findall(r"At turn (\d+),", text)
    return int(turns[-1]) if turns else 0


def _clause(board: Board, row: int, column: int) -> str:
    fitting = " or ".join(map(str, fitting_digits(board, row, column)))
    return f"Row {row + 1}, column {column + 1} is empty, and only {fitting} would fit there."


def _wrong_move(board: Board, random: Random) -> str:
    """One that the game refuses: a digit for a cell that is filled."""
    filled = [(r, c) for r, row in enumerate(board) for c, digit in enumerate(row) if digit]
    row, column = random.choice(filled)
    return f"{row + 1} {column + 1} {random.randint(1, len(board))}"


@define(eq=False, kw_only=True)
class SudokuService(SimulatedService):
    """A :class:`SimulatedService` with a player and speeds."""

    player: Player
    speeds: Speeds

    def trainer(self, base_model: str, spec: LoraSpec, model: str) -> SudokuTrainer:
        return SudokuTrainer(service=self, base_model=base_model, spec=spec, model=model)

    def sampler(self, model: str) -> SudokuSampler:
        return SudokuSampler(service=self, model=model)


@define(eq=False)
class SudokuSampler(SimulatedSampler):
    """One snapshot of the weights, with the prefix cache that belongs to it."""

    service: SudokuService
    _cached: set[bytes] = field(factory=set, init=False)

    def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        include_prompt_logprobs: bool = False,  # noqa: ARG002
        *_: Any,  # other scores, which are not simulated
    ) -> Awaitable[types.SampleResponse]:
        service, tokens = self.service, prompt.to_ints()
        text = service.player.tokenizer.decode(tokens[-SEEN_FROM:])
        most = sampling_params.max_tokens or CONTEXT
        reply, quantile = service.player.reply(text, most)
        factor = LogNormal(1.0, service.speeds.tail).at(quantile)
        fresh = self._fresh(tokens, reply)
        service.tell(kind="sample", fresh=fresh, prompt=len(tokens), sampled=len(reply))
        sequence = types.SampledSequence(
            stop_reason="stop",
            sequence_id="",
            tokens_np=np.array(reply, dtype=np.int32),
            logprobs_np=np.full(len(reply), LOGPROB, dtype=np.float32),
        )
        answer = types.SampleResponse(sequences=[sequence] * num_samples)
        return _after(service.speeds.sample(factor, fresh, len(reply)), answer)

    def _fresh(self, prompt: Sequence[int], reply: Sequence[int]) -> int:
        """Tokens of the prompt that are not cached; all that is known by now is cached."""
        blocks = _blocks([*prompt, *reply])
        known = 0
        while known < len(blocks) and blocks[known] in self._cached:
            known += 1
        self._cached.update(blocks)
        return max(1, len(prompt) - BLOCK * known)


def _blocks(tokens: Sequence[int]) -> list[bytes]:
    """A name of every whole block together with all before it."""
    hashed, names = blake2b(digest_size=12), list[bytes]()
    for end in range(BLOCK, len(tokens) + 1, BLOCK):
        hashed.update(np.asarray(tokens[end - BLOCK : end], dtype=np.int64).tobytes())
        names.append(hashed.digest())
    return names


@define(eq=False)
class SudokuTrainer(SimulatedTrainer):
    """Its gradients take as long as they have tokens."""

    service: SudokuService

    def forward(
        self,
        data: list[types.Datum],
        loss_fn: str | CustomLoss,
        loss_fn_config: Mapping[str, float | str] | None = None,
    ) -> Awaitable[types.ForwardBackwardOutput]:
        lengths = [datum.model_input.length for datum in data]
        seconds = self.service.speeds.gradient(sum(lengths))
        return self._work(seconds, lambda: output_of(data, loss_fn, loss_fn_config))

    def forward_backward(
        self,
        data: list[types.Datum],
        loss_fn: str | CustomLoss,
        loss_fn_config: Mapping[str, float | str] | None = None,
    ) -> Awaitable[types.ForwardBackwardOutput]:
        lengths = [datum.model_input.length for datum in data]
        name = loss_fn if isinstance(loss_fn, str) else loss_fn.name
        self.service.tell(kind="gradient", loss=name, lengths=lengths)
        return self.forward(data, loss_fn, loss_fn_config)


def write_model(folder: Path) -> None:
    """A model's folder, without weights, with a tokenizer such as large models have: the 200,000
    entries of `o200k_base`, which come with the SDK, and numbers digit by digit as Qwen has them.

    Tiny's own tokenizer has whole instructions of GEM as one entry, so it says little about how
    long prompts are.
    """
    from importlib.util import find_spec

    from transformers.convert_slow_tokenizer import TikTokenConverter

    from rlc.service.tiny import path

    found = find_spec("tml_renderers")
    assert found is not None
    assert found.origin is not None
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "tokenizer_config.json"):
        (folder / name).write_text((path() / name).read_text())
    converter = TikTokenConverter(
        vocab_file=str(Path(found.origin).parent / "data/o200k_base.tiktoken"),
        pattern=_SPLIT,
        extra_special_tokens=["<|endoftext|>", "<|im_start|>", ENDS],
    )
    converter.converted().save(str(folder / "tokenizer.json"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model", required=True, help="its folder, which is its name as well")
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--thought", type=float, default=30.0, help="median tokens before a move")
    parser.add_argument("--slips", type=float, default=0.25, help="share of wrong moves")
    for name, value in asdict(Speeds()).items():
        parser.add_argument(f"--{name}", type=float, default=value)
    serve(parser.parse_args())


def serve(options: argparse.Namespace) -> None:
    """Serve until told to stop; the first line says where."""
    from rlc.service.http import Server
    from rlc.service.server.app import build_app
    from rlc.service.server.backend import Backend, load_models
    from rlc.service.sockets import LOOPBACK, bind

    speeds = Speeds(**{name: getattr(options, name) for name in asdict(Speeds())})
    pause = speeds.scale * speeds.update
    engine: Any = SudokuService(
        store=CheckpointStore(options.checkpoints),
        times=Times(update=pause, snapshot=pause),
        replies=(),
        events=(options.checkpoints / "events.jsonl").open("a", encoding="utf-8"),
        player=Player(tokenizer_of(options.model), options.thought, options.slips),
        speeds=speeds,
    )
    backend = Backend(engine, asyncio.run(load_models(engine, {options.model: options.model})))
    with bind(LOOPBACK, options.port) as listening:
        port = listening.getsockname()[1]
        told = {"url": f"http://{LOOPBACK}:{port}", "speeds": asdict(speeds)}
        print(json.dumps(told), flush=True)
        Server(build_app(backend), backend.futures.close).serve_on(listening)


if __name__ == "__main__":
    main()
