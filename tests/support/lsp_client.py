"""An editor as the language server sees it: pygls' client, which talks to the real process."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types
from paths import ROOT
from pygls.lsp.client import LanguageClient

from rlc.lsp.documents import uri_of

T = TypeVar("T")
PATIENCE = 60  # seconds; an answer that takes longer never comes


class Editor:
    """One server process and the texts that are open in it. Every method waits for the answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.published: dict[str, types.PublishDiagnosticsParams] = {}  # by path, the last
        self.logged: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._news = asyncio.Event()
        self._versions: dict[Path, int] = {}
        self._numbers = count(1)  # never one twice, so that no answer is taken for another
        self.client: Any = LanguageClient("tests", "1")
        self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(partial(self._receive))
        self.client.feature(types.WINDOW_LOG_MESSAGE)(partial(self._log))
        self.capabilities = self._wait(self._start()).capabilities

    def _receive(self, params: types.PublishDiagnosticsParams) -> None:
        self.published[params.uri] = params
        self._news.set()

    def _log(self, params: types.LogMessageParams) -> None:
        self.logged.append(params.message)

    def _wait(self, awaited: Awaitable[T]) -> T:
        return self._loop.run_until_complete(asyncio.wait_for(awaited, PATIENCE))

    async def _start(self) -> Any:
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path}
        command = (sys.executable, "-m", "rlc", "lsp")
        await self.client.start_io(*command, env=environment, cwd=str(self.folder))
        text = types.TextDocumentClientCapabilities(
            completion=types.CompletionClientCapabilities(
                completion_item=types.ClientCompletionItemOptions(snippet_support=True)
            )
        )
        answer = await self.client.initialize_async(
            types.InitializeParams(
                capabilities=types.ClientCapabilities(text_document=text),
                workspace_folders=[types.WorkspaceFolder(uri_of(str(self.folder)), "tests")],
            )
        )
        self.client.initialized(types.InitializedParams())
        return answer

    def close(self) -> int:
        """End the server as editors do; return its exit status."""
        self._wait(self.client.shutdown_async(None))
        self.client.exit(None)
        status = self._wait(self.client._server.wait())
        self._wait(self.client.stop())
        self._loop.close()
        return int(status)

    def open(self, name: str, text: str | None = None) -> Path:
        """Open a file of the folder, with another text if one is given."""
        path = self.folder / name
        self._versions[path] = version = next(self._numbers)
        given = path.read_text("utf-8") if text is None else text
        item = types.TextDocumentItem(uri_of(str(path)), "rl", version, given)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return path

    def change(self, path: Path, text: str) -> None:
        self._versions[path] = next(self._numbers)
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(self._versions[path], uri_of(str(path))),
                [types.TextDocumentContentChangeWholeDocument(text)],
            )
        )

    def close_file(self, path: Path) -> None:
        del self._versions[path]
        document = types.TextDocumentIdentifier(uri_of(str(path)))
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(document))

    def findings(
        self, path: Path, until: Callable[[list[types.Diagnostic]], bool] | None = None
    ) -> list[types.Diagnostic]:
        """Wait for what is found in the last text of a file, or until it is as it should be."""
        uri = uri_of(str(path))

        async def wait() -> list[types.Diagnostic]:
            while True:
                self._news.clear()
                last = self.published.get(uri)
                is_current = last is not None and last.version == self._versions.get(path)
                found = list(last.diagnostics) if last is not None else []
                if is_current and (until is None or until(found)):
                    return found
                await self._news.wait()

        return self._wait(wait())

    def ask(self, method: str, path: Path, **params: Any) -> Any:
        """Ask about a text, ``hover`` and the like; ``at`` is a line and a character."""
        if "at" in params:
            params["position"] = types.Position(*params.pop("at"))
        method = f"textDocument/{method}"
        kind: Any = types.METHOD_TO_TYPES[method][2]
        text = types.TextDocumentIdentifier(uri_of(str(path)))
        asked = kind(text_document=text, **params)
        return self._request(method, asked)

    def resolve(self, what: str, item: Any) -> Any:
        """Ask for what was left out of a ``completionItem`` or a ``codeAction``."""
        return self._request(f"{what}/resolve", item)

    def _request(self, method: str, params: Any) -> Any:
        async def request() -> Any:
            return await self.client.protocol.send_request_async(method, params)

        return self._wait(request())


def at(text: str, mark: str = "¦") -> tuple[str, tuple[int, int]]:
    """Return a text without its mark, and where that was: line and UTF-16 unit."""
    before, _, after = text.partition(mark)
    line = before.rsplit("\n", 1)[-1]
    return before + after, (before.count("\n"), len(line.encode("utf-16-le")) // 2)
