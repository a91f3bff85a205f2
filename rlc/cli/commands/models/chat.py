"""``rlc chat``: talk to a model in the terminal, or to two side by side."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from attrs import define, evolve, field

from rlc.cli.commands.models.options import (
    add_model_options,
    add_sampling_options,
    opened,
    sampling_of,
    text_of,
)
from rlc.errors import Error

if TYPE_CHECKING:
    from rlc.models.model import Conversation
    from rlc.service import SampledReply

HELP = "talk to a model, or to two side by side"
DESCRIPTION = (
    "Talk to what was trained, or to any base model. With --against another model answers the same "
    "beside it, for example the one that the training began with."
)
EPILOG = """\
examples:
  rlc chat runs/quickstart-20261121-101500               its best or last state
  rlc chat runs/x@main:20 --against tiny                 beside the base model
  rlc chat Qwen/Qwen3-8B --system @prompt.txt            a base model on Tinker
  echo "2 + 3 = ?" | rlc chat runs/x --temperature 0     from a script; see also `rlc sample`

`/help` in the chat lists what it understands. Exit status: 0, 1 the model cannot be used, 2 usage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_options(parser)
    parser.add_argument("--against", metavar="MODEL", help="another model, which answers as well")
    parser.add_argument("--system", default="", metavar="TEXT|@FILE", help="the system message")
    add_sampling_options(parser)


def run(args: argparse.Namespace) -> int:
    system, sampling = text_of(args.system), sampling_of(args)
    with ExitStack() as stack:
        names = filter(None, (args.model, args.against))
        models = [stack.enter_context(opened(name, args)) for name in names]
        if sys.stdin.isatty():
            print(f"{' and '.join(model.name for model in models)}   (/help, Ctrl-D ends)")
        Talk([model.conversation(system, sampling) for model in models]).run(sys.stdin)
    return 0


PROMPT = "you › "
_NARROWEST = 60  # columns in which two replies are still shown side by side
CHAT_HELP = """\
/system TEXT       the system prompt (without a text: nothing)
/temperature X     how replies are sampled; 0: the most likely tokens
/max_tokens N      the longest reply
/undo              forget the last exchange
/reset             forget all of them
/save FILE         write the chat as a line of JSON, for `chats()` or `rlc sample`
/quit              end (also Ctrl-D)
A line that ends with \\ goes on in the next one."""


@define
class Talk:
    """A chat with some models, each of which sees the prompts and its own replies."""

    chats: Sequence[Conversation]
    out: TextIO = field(factory=lambda: sys.stdout)

    def run(self, lines: TextIO) -> None:
        """Answer line by line, to the end of ``lines`` or ``/quit``."""
        while (text := self._read(lines)) is not None:
            command, _, rest = text.strip().partition(" ")
            if command == "/quit":
                return
            if command.startswith("/"):
                self._command(command, rest.strip())
            elif text.strip():
                self._say(text)

    def _read(self, lines: TextIO) -> str | None:
        """Return the next text; None at the end."""
        text = ""
        while True:
            line = self._line(lines, PROMPT if not text else "    › ")
            if line is None:
                return text or None
            if not line.endswith("\\"):
                return text + line
            text += f"{line[:-1]}\n"

    def _line(self, lines: TextIO, prompt: str) -> str | None:
        if not lines.isatty():
            line = lines.readline()
            return line.rstrip("\n") if line else None
        try:
            return input(prompt)  # with the line editing of the terminal
        except EOFError:
            print(file=self.out)
            return None

    def _command(self, command: str, rest: str) -> None:
        try:
            match command:
                case "/system":
                    for chat in self.chats:
                        chat.system = rest
                case "/temperature":
                    self._sample(temperature=_number(rest, 0.0))
                case "/max_tokens":
                    self._sample(max_tokens=int(_number(rest, 1.0)))
                case "/undo":
                    for chat in self.chats:
                        chat.undo()
                case "/reset":
                    for chat in self.chats:
                        chat.messages.clear()
                case "/save" if rest:
                    self._save(Path(rest))
                case _:
                    print(CHAT_HELP, file=self.out)
        except (ValueError, OSError) as error:
            print(f"error: {error}", file=self.out)

    def _sample(self, **values: Any) -> None:
        for chat in self.chats:
            chat.sampling = evolve(chat.sampling, **values)

    def _save(self, path: Path) -> None:
        with path.open("a", encoding="utf-8") as file:
            for chat in self.chats:
                system = [{"role": "system", "content": chat.system}] if chat.system else []
                row = {"model": chat.model.name, "messages": [*system, *chat.messages]}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        print(f"written to {path}", file=self.out)

    def _say(self, text: str) -> None:
        wide = shutil.get_terminal_size().columns >= 2 * _NARROWEST
        try:
            if len(self.chats) > 1 and self.out.isatty() and wide:
                self._side_by_side(text)
                return
            for chat in self.chats:
                if len(self.chats) > 1:
                    print(f"── {chat.model.name}", file=self.out)
                reply = chat.say(text, lambda part: print(part, end="", file=self.out, flush=True))
                print(_cut(reply), file=self.out, flush=True)
        except Error as error:
            hint = f"\n  help: {error.hint}" if error.hint else ""
            print(f"\nerror: {error}{hint}", file=self.out)
        except KeyboardInterrupt:
            print("\n(stopped: nothing of it is kept)", file=self.out)

    def _side_by_side(self, text: str) -> None:
        """Show the replies of several models as they come, in columns."""
        from rich.console import Console
        from rich.live import Live
        from rich.table import Table
        from rich.text import Text

        shown = [""] * len(self.chats)

        def table() -> Table:
            made = Table(*(chat.model.name for chat in self.chats), expand=True, box=None)
            made.add_row(*map(Text, shown))
            return made

        def add(number: int, part: str) -> None:
            shown[number] += part

        def answer(number: int) -> None:
            add(number, _cut(self.chats[number].say(text, partial(add, number))))

        console = Console(file=self.out)
        with Live(get_renderable=table, console=console, refresh_per_second=12):
            with ThreadPoolExecutor(len(self.chats)) as pool:
                answers = [pool.submit(answer, number) for number in range(len(self.chats))]
            for done in answers:
                done.result()


def _cut(reply: SampledReply) -> str:
    return f" … (cut off after {len(reply.tokens)} tokens)" if reply.stop_reason == "length" else ""


def _number(text: str, least: float) -> float:
    """Return a number that is not below ``least``. Raise ValueError for other text."""
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None
    if not least <= number < 1e9:
        raise ValueError(f"{text} is not at least {least:g}")
    return number
