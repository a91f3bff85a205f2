"""A chat in the terminal, with one model or with two side by side."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from attrs import define, evolve, field

from rlc.errors import Error

if TYPE_CHECKING:
    from rlc.models.model import Conversation
    from rlc.service import SampledReply

PROMPT = "you › "
_NARROWEST = 60  # columns in which two replies are still shown side by side
HELP = """\
/system TEXT       what the model is told before all else (without a text: nothing)
/temperature X     how replies are sampled; 0: the most likely tokens
/max_tokens N      the longest reply
/undo              forget the last exchange
/reset             forget all of them
/save FILE         write the chat as a line of JSON, for `chats()` or `rlc sample`
/quit              end (also Ctrl-D)
A line that ends with \\ goes on in the next one."""


@define
class Talk:
    """A chat with some models, each of which hears what is said and its own replies."""

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
        """The next text; None at the end."""
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
                    self._change(lambda chat: setattr(chat, "system", rest))
                case "/temperature":
                    self._sample(temperature=_number(rest, 0.0))
                case "/max_tokens":
                    self._sample(max_tokens=int(_number(rest, 1.0)))
                case "/undo":
                    self._change(lambda chat: chat.undo())
                case "/reset":
                    self._change(lambda chat: chat.messages.clear())
                case "/save" if rest:
                    self._save(Path(rest))
                case _:
                    print(HELP, file=self.out)
        except (ValueError, OSError) as error:
            print(f"error: {error}", file=self.out)

    def _change(self, change: Callable[[Conversation], Any]) -> None:
        for chat in self.chats:
            change(chat)

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
                reply = chat.say(text, self._write)
                print(_cut(reply), file=self.out, flush=True)
        except Error as error:
            hint = f"\n  help: {error.hint}" if error.hint else ""
            print(f"\nerror: {error}{hint}", file=self.out)
        except KeyboardInterrupt:
            print("\n(stopped: nothing of it is kept)", file=self.out)

    def _write(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()

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

        def answer(number: int) -> None:
            def more(part: str) -> None:
                shown[number] += part

            reply = self.chats[number].say(text, more)
            shown[number] += _cut(reply)

        console = Console(file=self.out)
        with Live(get_renderable=table, console=console, refresh_per_second=12):
            with ThreadPoolExecutor(len(self.chats)) as pool:
                answers = [pool.submit(answer, number) for number in range(len(self.chats))]
            for done in answers:
                done.result()


def _cut(reply: SampledReply) -> str:
    return f" … (cut off after {len(reply.tokens)} tokens)" if reply.stop_reason == "length" else ""


def _number(text: str, least: float) -> float:
    """A number of at least so much. Raise ValueError for other text."""
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None
    if not least <= number < 1e9:
        raise ValueError(f"{text} is not at least {least:g}")
    return number
