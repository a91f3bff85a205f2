"""``rlc sample``: replies of a model to the rows of a file, for scripts."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import IO, Any

from rlc.cli.commands.models.options import (
    add_model_options,
    add_sampling_options,
    opened,
    sampling_of,
    text_of,
)
from rlc.cli.output import UsageError

HELP = "sample replies of a model to prompts, as JSON lines"
DESCRIPTION = (
    "Sample replies to prompts: rows of a JSONL file with a field `prompt` or `messages`, or "
    "texts. A line is written for each reply: its row with `reply`, `sample`, `stop_reason` and "
    "`tokens`, so that it is a row of `rows()` too."
)
EPILOG = """\
examples:
  rlc sample runs/x --prompt "2 + 3 = ?"
  rlc sample runs/x prompts.jsonl -n 4 --seed 1 > replies.jsonl
  cat prompts.jsonl | rlc sample Qwen/Qwen3-8B - --field question --out replies.jsonl

exit status: 0, 1 a row or the model cannot be used, 2 usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_options(parser)
    parser.add_argument("file", nargs="?", help="rows (JSONL), `-` for standard input")
    parser.add_argument(
        "--prompt", dest="prompts", action="append", default=[], metavar="TEXT", help="a prompt"
    )
    parser.add_argument("--field", metavar="NAME", help="the field that is asked (default prompt)")
    parser.add_argument("--system", default="", metavar="TEXT|@FILE", help="the system message")
    parser.add_argument("-n", type=int, default=1, metavar="N", help="replies to each (default 1)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="(default: standard output)")
    parser.add_argument("--logprobs", action="store_true", help="with those of the reply's tokens")
    add_sampling_options(parser)


def run(args: argparse.Namespace) -> int:
    if bool(args.file) == bool(args.prompts):
        raise UsageError("give a file with rows (`-` for standard input), or --prompt")
    if args.n < 1:
        raise UsageError("-n is at least 1")
    from rlc.models.model import with_system

    sampling, system = sampling_of(args), text_of(args.system)
    rows = list(_rows(args.file)) if args.file else [{"prompt": text} for text in args.prompts]
    prompts = [_chat(row, args.field, number) for number, row in enumerate(rows, 1)]
    chats = [with_system(prompt, system) for prompt in prompts]
    with ExitStack() as stack:
        out: IO[str] = stack.enter_context(
            args.out.open("w", encoding="utf-8") if args.out else nullcontext(sys.stdout)
        )
        model = stack.enter_context(opened(args.model, args))
        for row, replies in zip(rows, model.sample_all(chats, sampling, args.n), strict=True):
            for sample, reply in enumerate(replies):
                line = {**row, "reply": reply.text, "sample": sample}
                line |= {"stop_reason": reply.stop_reason, "tokens": len(reply.tokens)}
                if args.logprobs:
                    line |= {"token_ids": reply.tokens, "logprobs": reply.logprobs}
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
    return 0


def _rows(file: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file. Raise UsageError if one is no JSON object."""
    try:
        with open(file, encoding="utf-8") if file != "-" else nullcontext(sys.stdin) as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise UsageError(f"{file}:{number} is no JSON: {error}") from error
                if not isinstance(row, dict):
                    raise UsageError(f"{file}:{number} is no JSON object")
                yield row
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {error}") from error


def _chat(row: Mapping[str, Any], field: str | None, number: int) -> Sequence[Mapping[str, Any]]:
    """Return the prompt of a row as messages. Raise UsageError if it has no such field."""
    from rlc.models.model import as_messages

    known = (field,) if field else ("prompt", "messages")
    name = next((name for name in known if name in row), None)
    if name is None:
        has = ", ".join(f"`{name}`" for name in row) or "none"
        wanted = " or ".join(f"`{name}`" for name in known)
        raise UsageError(f"row {number} has no field {wanted}", f"it has {has}")
    prompt = row[name]
    is_chat = isinstance(prompt, list) and all(
        isinstance(m, dict) and isinstance(m.get("role"), str) and "content" in m for m in prompt
    )
    if not isinstance(prompt, str) and not (is_chat and prompt):
        raise UsageError(f"`{name}` of row {number} is neither a text nor a list of messages")
    return as_messages(prompt)
