"""What a check finds in an open text, in the protocol's form: findings, and the edits that mend
them, or lay the text out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher

from attrs import evolve, field, frozen
from lsprotocol import types

from rlc.compile import CompileResult, compile_source
from rlc.data import Reader
from rlc.lang import Diagnostic, Diagnostics, Fix, Severity, Source, fix_all, format_text
from rlc.lang.syntax import parse
from rlc.lsp.documents import Document, Documents, uri_of
from rlc.lsp.positions import Positions
from rlc.pricing import StageCost, plan_cost

NAME = "rlc"
NO_STAGE = "RL0301"
_SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
}


@frozen(eq=False)
class CheckedText:
    """A text, what it compiled to, and the costs of the stages of its plan by their names."""

    document: Document
    compiled: CompileResult
    costs: Mapping[str, StageCost] = field(factory=dict)

    def by_path(self) -> dict[str, list[Diagnostic]]:
        """The findings by the files that they are in: some are in imported ones."""
        found: dict[str, list[Diagnostic]] = defaultdict(list)
        for item in self.compiled.diagnostics:
            found[item.file_name].append(item)
        return found


def check(documents: Documents, document: Document) -> CheckedText:
    """Check an open text as `rlc check` would, had it and what it imports been saved. A file of the
    project that others import needs no stage, and a text that is not begun has no mistakes."""
    if not document.source.text.strip():
        return CheckedText(document, CompileResult(None, Diagnostics()))
    compiled = _compiled(documents, document.source)
    if any(item.code == NO_STAGE for item in compiled.diagnostics) and any(
        document.path in other.imports for other in documents.project()
    ):
        rest = (item for item in compiled.diagnostics if item.code != NO_STAGE)
        compiled = evolve(compiled, diagnostics=Diagnostics(rest))
    costs = plan_cost(compiled.plan) if compiled.plan is not None else ()
    return CheckedText(document, compiled, {cost.stage: cost for cost in costs})


def _compiled(documents: Documents, source: Source) -> CompileResult:
    return compile_source(source, reader=Reader(), read=documents.read)


def fixed_text(documents: Documents, document: Document) -> str:
    """Return a text with all its safe fixes."""
    fixed = fix_all(document.source, lambda source: _compiled(documents, source).diagnostics)
    return fixed.source.text


def as_diagnostic(item: Diagnostic, encoding: str) -> types.Diagnostic:
    """Return a finding as editors show it."""
    start = types.Range(types.Position(0, 0), types.Position(0, 0))
    return types.Diagnostic(
        range=Positions(item.span.source, encoding).of(item.span) if item.span else start,
        message=f"{item.message}\nhelp: {item.help}" if item.help else item.message,
        severity=_SEVERITIES[item.severity],
        code=item.code,
        source=NAME,
        related_information=[
            types.DiagnosticRelatedInformation(
                types.Location(
                    uri_of(label.span.source.name),
                    Positions(label.span.source, encoding).of(label.span),
                ),
                label.text,
            )
            for label in item.labels
        ],
    )


def fix_actions(
    found: Iterable[Diagnostic], document: Document, asked: types.Range, encoding: str
) -> Iterator[types.CodeAction]:
    """Return the fixes of what is found in a part of a text, those first that need no thought."""
    positions = Positions(document.source, encoding)
    start, end = positions.offset(asked.start), positions.offset(asked.end)
    for item in found:
        span = item.span
        if item.fix is None or span is None or span.source.name != document.path:
            continue
        if span.start <= end and start <= span.end:
            yield types.CodeAction(
                title=item.fix.title[:1].upper() + item.fix.title[1:],
                kind=types.CodeActionKind.QuickFix,
                diagnostics=[as_diagnostic(item, encoding)],
                is_preferred=item.fix.safe,
                edit=_edit(item.fix, encoding),
            )


def _edit(fix: Fix, encoding: str) -> types.WorkspaceEdit:
    changes: dict[str, list[types.TextEdit]] = defaultdict(list)
    for span, text in fix.edits:
        edit = types.TextEdit(Positions(span.source, encoding).of(span), text)
        changes[uri_of(span.source.name)].append(edit)
    return types.WorkspaceEdit(changes=changes)


# Changes of a text as edits of the lines that change


def line_edits(source: Source, new: str, encoding: str) -> list[types.TextEdit]:
    """Return the edits that make a text a new one and leave equal lines alone."""
    positions = Positions(source, encoding)
    before, after = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (source.text, new))
    starts = [0]
    for line in before:
        starts.append(starts[-1] + len(line))
    edits = []
    for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            where = positions.range(starts[i], starts[j])
            edits.append(types.TextEdit(where, "".join(after[k:m])))
    return edits


def format_edits(source: Source, encoding: str) -> list[types.TextEdit] | None:
    """Return the edits that lay a recipe out the canonical way; None if it has syntax errors."""
    recipe, problems = parse(source)
    if problems.has_errors or not source.text.strip():
        return None
    return line_edits(source, format_text(source, recipe), encoding)
