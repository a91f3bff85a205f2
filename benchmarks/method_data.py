"""What the recipes in `benchmarks/methods` learn from: words of their own, verdicts about them, and
an endpoint that judges. Each has a control's version beside it, in which chance takes the place of
what is to be learnt.
"""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

from rlc.chat.histories import DEMONSTRATION
from rlc.chat.prompts import with_text

LEAST = 0.2  # by how much the better of two replies earned more
INSTRUCTION = "Put your answer inside \\boxed{}."
ANY_WORD = "Say a word."
SYSTEM = "Full of y."  # the system message whose effect is distilled
_REPLY = re.compile(r'<reply (?:name|number)="(\w+)">\n(.*?)\n</reply>', re.S)

Row = dict[str, Any]


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_preferences(folder: Path, episodes: Path) -> None:
    """Write what is compared: the best and the worst of four replies of the model to one word. In
    the control's files it is drawn which of them counts as the better one. The words are written
    as prompts, too."""
    by_task: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in episodes.read_text("utf-8").splitlines():
        episode = json.loads(line)
        by_task[episode["task"]] += episode["turns"]
    draw = Random(1)
    for kind in ("own", "random"):
        pairs = []
        for turns in by_task.values():
            *_, best = ordered = sorted(turns, key=lambda turn: float(turn["reward"]))
            if best["reward"] - ordered[0]["reward"] >= LEAST:
                sides = [ordered[0]["action"], best["action"]]
                if kind == "random":
                    draw.shuffle(sides)
                prompt = f"{best['observation'].rstrip()}\n{INSTRUCTION}"
                pairs.append({"prompt": prompt, "rejected": sides[0], "chosen": sides[1]})
        single = [
            {"prompt": pair["prompt"], "completion": pair[side], "label": side == "chosen"}
            for pair in pairs
            for side in ("rejected", "chosen")
        ]
        write_rows(folder / f"{kind}-pairs.jsonl", pairs)
        write_rows(folder / f"{kind}-labelled.jsonl", single)
    write_rows(folder / "pairs.jsonl", map(json.loads, _lines(folder / "own-pairs.jsonl")))
    asked = dict.fromkeys(turns[0]["observation"].rstrip() for turns in by_task.values())
    prompts = [
        {"prompt": f"{question}\n{INSTRUCTION}", "word": question.rpartition(" ")[2]}
        for question in asked
    ]
    write_rows(folder / "asked.jsonl", prompts)


def write_words(folder: Path) -> None:
    """Write verdicts on words by the number of their y, and words as a system message orders."""
    draw = Random(1)
    words = [_word(draw, draw.random()) for _ in range(384)]
    scores = [1 + 3 * min(word.count("y"), 3) for word in words]
    for kind, given in (("verdicts", scores), ("shuffled", draw.sample(scores, len(scores)))):
        rows = [
            {"prompt": f"{ANY_WORD} {word} How many y?", "reply": f"<score>{score}</score>"}
            for word, score in zip(words, given, strict=True)
        ]
        write_rows(folder / f"{kind}.jsonl", rows)
    write_rows(folder / "word.jsonl", [{"prompt": ANY_WORD}])
    asked = {"role": "user", "content": ANY_WORD}
    ordered: list[Row] = []
    for _ in range(128):
        plain = _word(draw, 0.0).replace("y", "a")
        ordered.append({"prompt": [asked], "reply": plain})
        system = {"role": "system", "content": SYSTEM}
        ordered.append({"prompt": [system, asked], "reply": _word(draw, 0.9)})
    write_rows(folder / "orders.jsonl", ordered)
    _write_demonstrations(folder, draw)


def _write_demonstrations(folder: Path, draw: Random) -> None:
    """Write plain words without an example, words like an example of a response with one, and tasks
    with a demonstration each: a word full of y, or in the control's file a plain one."""
    examples: list[Row] = []
    for _ in range(128):
        examples.append({"prompt": ANY_WORD, "reply": _word(draw, 0.0)})
        for share in (0.0, 0.9):
            shown = with_text(ANY_WORD, DEMONSTRATION.format(_word(draw, share)))
            examples.append({"prompt": shown, "reply": _word(draw, share)})
    write_rows(folder / "examples.jsonl", examples)
    for name, share in (("demonstrated", 0.9), ("plain", 0.0)):
        rows = [{"prompt": ANY_WORD, "demonstration": _word(draw, share)} for _ in range(64)]
        write_rows(folder / f"{name}.jsonl", rows)


def _word(draw: Random, share: float) -> str:
    """A word in a box, which may not be closed; so many of its letters are y."""
    size = draw.randint(3, 6)
    letters = ("y" if draw.random() < share else draw.choice("acgnrst") for _ in range(size))
    return "\\boxed{" + "".join(letters) + draw.choice(["", "}"])


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


@contextmanager
def judging_endpoint(by_chance: bool) -> Iterator[str]:
    """Serve a judge that prefers the replies with more y, or one that draws. The address is that of
    OpenAI's chat completions, as long as the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            self._answer({"data": [{"id": "judge"}]})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            said = {"role": "assistant", "content": _verdict(asked, by_chance)}
            self._answer({"choices": [{"message": said, "finish_reason": "stop"}]})

        def _answer(self, body: Mapping[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def _verdict(asked: Mapping[str, Any], by_chance: bool) -> str:
    replies = dict(_REPLY.findall(asked["messages"][-1]["content"]))
    drawn = Random(repr(sorted(replies.values())))  # the same in whatever order they are shown
    chance = {reply: drawn.random() for reply in sorted(replies.values())}
    worth = {
        name: chance[reply] if by_chance else float(min(reply.count("y"), 3))
        for name, reply in replies.items()
    }
    ranks = [[n for n in worth if worth[n] == one] for one in sorted({*worth.values()})[::-1]]
    if "A" not in worth:
        return f"<ranking>{' > '.join(' = '.join(rank) for rank in ranks)}</ranking>"
    return f"<better>{ranks[0][0] if len(ranks) > 1 else 'tie'}</better>"
