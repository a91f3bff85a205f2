"""The server itself: which question of the protocol is answered by what."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from rlc.check import NamedDecl
from rlc.explanation import price
from rlc.lang import Diagnostic
from rlc.lsp import describe, documents, protocol
from rlc.lsp.completion import complete, resolved, signature_help
from rlc.lsp.documents import Document, Documents, TextRange, path_of, uri_of
from rlc.lsp.protocol import (
    NAME,
    UTF16,
    CheckedText,
    Positions,
    as_diagnostic,
    check,
    fix_actions,
    fixed_text,
)
from rlc.plan import Plan
from rlc.pricing import StageCost
from rlc.version import __version__

PAUSE = 0.2  # seconds without a change before a text is checked
FIX_ALL = "source.fixAll.rlc"


class RecipeServer(LanguageServer):
    """Answers an editor. Texts are checked in a thread, one after the other; everything else is
    answered at once, from the text as it is."""

    def __init__(self) -> None:
        super().__init__(NAME, __version__, types.TextDocumentSyncKind.Full)
        self.documents = Documents()
        self._checks: dict[str, CheckedText] = {}  # by path, the last of each
        self._planned: dict[str, CheckedText] = {}  # by path, the last that has a plan
        self._found: dict[str, dict[str, list[Diagnostic]]] = {}  # by checked text, by file
        self._due: dict[str, asyncio.TimerHandle] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._worker = ThreadPoolExecutor(1, "check")
        for method, handler, *options in (
            (types.INITIALIZED, self._start),
            (types.TEXT_DOCUMENT_DID_OPEN, self._opened),
            (types.TEXT_DOCUMENT_DID_CHANGE, self._changed),
            (types.TEXT_DOCUMENT_DID_CLOSE, self._closed),
            (types.TEXT_DOCUMENT_DID_SAVE, self._saved),
            (types.WORKSPACE_DID_CHANGE_WATCHED_FILES, self._saved),
            (types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, self._start),
            (types.TEXT_DOCUMENT_COMPLETION, self._completion, _COMPLETION),
            (types.COMPLETION_ITEM_RESOLVE, resolved),
            (types.TEXT_DOCUMENT_HOVER, self._hover),
            (types.TEXT_DOCUMENT_SIGNATURE_HELP, self._signature, _SIGNATURE),
            (types.TEXT_DOCUMENT_DEFINITION, self._definition),
            (types.TEXT_DOCUMENT_REFERENCES, self._references),
            (types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT, self._highlights),
            (types.TEXT_DOCUMENT_PREPARE_RENAME, self._prepare_rename),
            (types.TEXT_DOCUMENT_RENAME, self._rename, types.RenameOptions(prepare_provider=True)),
            (types.TEXT_DOCUMENT_FORMATTING, self._format),
            (types.TEXT_DOCUMENT_CODE_ACTION, self._actions, _ACTIONS),
            (types.CODE_ACTION_RESOLVE, self._fix_all),
            (types.TEXT_DOCUMENT_INLAY_HINT, self._hints),
            (types.TEXT_DOCUMENT_DOCUMENT_SYMBOL, self._symbols),
            (types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, self._tokens, protocol.LEGEND),
        ):
            self.feature(method, *options)(partial(handler))  # pygls sets attributes of it

    # Texts and their checks

    def _start(self, _: object) -> None:
        folders = self.workspace.folders or {}
        root = self.workspace.root_uri
        uris = [folder.uri for folder in folders.values()] or ([root] if root else [])
        self.documents.folders = tuple(map(path_of, uris))
        self._worker.submit(describe.entry_of, "")  # the catalogue, before somebody waits for it

    def _opened(self, params: types.DidOpenTextDocumentParams) -> None:
        item = params.text_document
        self._put(item.uri, item.text, item.version, pause=0)

    def _changed(self, params: types.DidChangeTextDocumentParams) -> None:
        item = params.text_document
        self._put(item.uri, self.workspace.get_text_document(item.uri).source, item.version)

    def _put(self, uri: str, text: str, version: int | None, pause: float = PAUSE) -> None:
        path = self.documents.put(path_of(uri), text, version).path
        self._check_soon(path, pause)
        self._check_importers(path)

    def _closed(self, params: types.DidCloseTextDocumentParams) -> None:
        path = path_of(params.text_document.uri)
        self.documents.close(path)
        if path in self._due:
            self._due.pop(path).cancel()
        self._checks.pop(path, None)
        self._publish(path, {})
        self._check_importers(path)

    def _saved(self, _: object) -> None:
        """Check all texts again: they may read or import what was saved."""
        for document in self.documents.opened():
            self._check_soon(document.path)

    def _check_importers(self, path: str) -> None:
        for document in self.documents.importers(path):
            self._check_soon(document.path)

    def _check_soon(self, path: str, pause: float = PAUSE) -> None:
        if path in self._due:
            self._due[path].cancel()
        self._due[path] = asyncio.get_running_loop().call_later(pause, self._check_now, path)

    def _check_now(self, path: str) -> None:
        self._due.pop(path, None)
        task = asyncio.ensure_future(self._check(path))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _check(self, path: str) -> None:
        document = self.documents.get(path)
        if document is None or not self.documents.is_open(path):
            return
        try:
            checked = await self._checked(document, again=True)
        except Exception:
            text = f"rlc could not check {path}, which is a mistake in rlc itself:\n"
            message = types.LogMessageParams(types.MessageType.Error, text + traceback.format_exc())
            self.window_log_message(message)
            return
        if self.documents.is_open(path) and self.documents.get(path) is document:
            self._publish(path, checked.by_path())
            capabilities = self.client_capabilities.workspace
            hints = capabilities.inlay_hint if capabilities else None
            if hints is not None and hints.refresh_support:
                self.workspace_inlay_hint_refresh(None)

    async def _checked(self, document: Document, again: bool = False) -> CheckedText:
        """Return the check of a text, a new one if it has changed or ``again``."""
        known = self._checks.get(document.path)
        if again or known is None or known.document is not document:
            loop = asyncio.get_running_loop()
            known = await loop.run_in_executor(self._worker, check, self.documents, document)
            if self.documents.get(document.path) is document:
                self._checks[document.path] = known
                if known.compiled.plan is not None:
                    self._planned[document.path] = known
        return known

    def _publish(self, path: str, found: dict[str, list[Diagnostic]]) -> None:
        """Show the findings in a text and in the files that it imports, with those of others that
        import them."""
        before = self._found.get(path, {})
        self._found[path] = found
        for file in {path, *before, *found}:
            shown = {}
            for findings in self._found.values():
                for item in findings.get(file, ()):
                    place = (item.span.start, item.span.end) if item.span else None
                    shown[item.code, place, item.message] = as_diagnostic(item, self._encoding)
            document = self.documents.get(file) if self.documents.is_open(file) else None
            version = document.version if document is not None else None
            self.text_document_publish_diagnostics(
                types.PublishDiagnosticsParams(uri_of(file), list(shown.values()), version)
            )

    # Questions

    @property
    def _encoding(self) -> str:
        return str(getattr(self.workspace.position_encoding, "value", None) or UTF16)

    def _document(self, params: Any) -> Document | None:
        return self.documents.get(path_of(params.text_document.uri))

    def _at(self, params: Any) -> tuple[Document, int] | None:
        if (document := self._document(params)) is None:
            return None
        return document, self._positions(document).offset(params.position)

    def _plan(self, document: Document) -> tuple[Plan | None, Mapping[str, StageCost]]:
        known = self._planned.get(document.path)
        return (known.compiled.plan, known.costs) if known is not None else (None, {})

    def _positions(self, document: Document) -> Positions:
        return Positions(document.source, self._encoding)

    def _location(self, place: TextRange) -> types.Location:
        where = self._positions(place.document).range(place.start, place.end)
        return types.Location(uri_of(place.document.path), where)

    def _completion(self, params: types.CompletionParams) -> types.CompletionList | None:
        if (at := self._at(params)) is None:
            return None
        document, offset = at
        text = self.client_capabilities.text_document
        items = text.completion.completion_item if text and text.completion else None
        plan, _ = self._plan(document)
        stages = {stage.name: stage for stage in plan.stages} if plan else {}
        snippets, positions = bool(items and items.snippet_support), self._positions(document)
        proposals = complete(self.documents, document, offset, positions, snippets, stages)
        return types.CompletionList(is_incomplete=False, items=proposals)

    def _hover(self, params: types.HoverParams) -> types.Hover | None:
        if (at := self._at(params)) is None:
            return None
        document, offset = at
        word = documents.note_at(self.documents, document, offset)
        if word is None:
            return None
        text = describe.hover(word, document.source.text[word.start : word.end], document.path)
        if text is None:
            return None
        (_, costs), decl = self._plan(document), word.what
        if isinstance(decl, NamedDecl) and decl.name.id in costs:
            text += f"\n\n{price([costs[decl.name.id]])}"
        content = types.MarkupContent(types.MarkupKind.Markdown, text)
        return types.Hover(content, self._positions(document).range(word.start, word.end))

    def _signature(self, params: types.SignatureHelpParams) -> types.SignatureHelp | None:
        at = self._at(params)
        return at and signature_help(self.documents, *at)

    def _definition(self, params: types.DefinitionParams) -> types.Location | None:
        at = self._at(params)
        place = documents.definition(self.documents, *at) if at is not None else None
        return None if place is None else self._location(place)

    def _name(self, params: Any) -> tuple[Document, documents.NameUse] | None:
        at = self._at(params)
        name = at and documents.name_at(self.documents, *at)
        return (at[0], name) if at and name else None

    def _references(self, params: types.ReferenceParams) -> list[types.Location] | None:
        if (named := self._name(params)) is None:
            return None
        name, declared = named[1], None
        if not (params.context.include_declaration or name.is_local):
            declared = self.documents.place_of(name.decl)
        places = documents.uses(self.documents, *named)
        return [self._location(place) for place in places if place != declared]

    def _highlights(
        self, params: types.DocumentHighlightParams
    ) -> list[types.DocumentHighlight] | None:
        if (named := self._name(params)) is None:
            return None
        places = documents.uses_within(self.documents, *named)
        return [types.DocumentHighlight(self._location(place).range) for place in places]

    def _prepare_rename(self, params: types.PrepareRenameParams) -> types.Range | None:
        at = self._at(params) if self._name(params) is not None else None
        word = at and documents.note_at(self.documents, *at)
        return self._positions(at[0]).range(word.start, word.end) if at and word else None

    def _rename(self, params: types.RenameParams) -> types.WorkspaceEdit | None:
        if (named := self._name(params)) is None:
            return None
        if (reason := documents.why_not(self.documents, *named, params.new_name)) is not None:
            raise JsonRpcException(reason, types.LSPErrorCodes.RequestFailed.value)
        changes: defaultdict[str, list[types.TextEdit]] = defaultdict(list)
        for location in map(self._location, documents.uses(self.documents, *named)):
            changes[location.uri].append(types.TextEdit(location.range, params.new_name))
        return types.WorkspaceEdit(changes=changes)

    def _format(self, params: types.DocumentFormattingParams) -> list[types.TextEdit] | None:
        document = self._document(params)
        return protocol.format_edits(document.source, self._encoding) if document else None

    async def _actions(self, params: types.CodeActionParams) -> list[types.CodeAction] | None:
        if (document := self._document(params)) is None:
            return None
        only = [str(getattr(kind, "value", kind)) for kind in params.context.only or ()]
        found = (await self._checked(document)).compiled.diagnostics
        actions: list[types.CodeAction] = []
        if not only or types.CodeActionKind.QuickFix.value in only:
            actions += fix_actions(found, document, params.range, self._encoding)
        can_fix = any(item.fix is not None and item.fix.safe for item in found)
        if can_fix and any(FIX_ALL.startswith(kind) for kind in only or ("source",)):
            data = {"uri": params.text_document.uri}
            title = "Apply every clear correction"
            actions.append(types.CodeAction(title, FIX_ALL, data=data))
        return actions

    def _fix_all(self, action: types.CodeAction) -> types.CodeAction:
        """Add the edit of all safe fixes to an action that was chosen."""
        uri = action.data["uri"] if isinstance(action.data, dict) else ""
        document = self.documents.get(path_of(uri))
        if document is not None:
            text = fixed_text(self.documents, document)
            changes = protocol.line_edits(document.source, text, self._encoding)
            action.edit = types.WorkspaceEdit(changes={uri: changes})
        return action

    def _hints(self, params: types.InlayHintParams) -> list[types.InlayHint] | None:
        if (document := self._document(params)) is None:
            return None
        positions = self._positions(document)
        start, end = positions.offset(params.range.start), positions.offset(params.range.end)
        plan, text = self._plan(document), document.source.text
        notes = self.documents.notes(document)
        return protocol.inlay_hints(text, *notes, *plan, positions, start, end)

    def _symbols(self, params: types.DocumentSymbolParams) -> list[types.DocumentSymbol] | None:
        if (document := self._document(params)) is None:
            return None
        return protocol.document_symbols(document, self._positions(document))

    def _tokens(self, params: types.SemanticTokensParams) -> types.SemanticTokens | None:
        if (document := self._document(params)) is None:
            return None
        notes, _ = self.documents.notes(document)
        return types.SemanticTokens(protocol.semantic_tokens(notes, self._positions(document)))


_COMPLETION = types.CompletionOptions(
    trigger_characters=[".", "=", "(", ",", '"', "/", ">"], resolve_provider=True
)
_SIGNATURE = types.SignatureHelpOptions(trigger_characters=["(", ","], retrigger_characters=["="])
_ACTIONS = types.CodeActionOptions(
    code_action_kinds=[types.CodeActionKind.QuickFix, FIX_ALL], resolve_provider=True
)


def serve() -> None:
    """Serve on standard input and output until the editor ends it. Whatever else would be printed
    meanwhile goes to standard error, for the editor reads every byte."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.setswitchinterval(0.001)  # seconds after which a check lets an answer go first
    RecipeServer().start_io(questions, answers)
