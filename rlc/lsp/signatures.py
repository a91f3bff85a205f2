"""The call that the cursor is in: its parameters, and which of them comes next."""

from __future__ import annotations

from collections.abc import Mapping

from lsprotocol import types

from rlc.lang.source import Source
from rlc.lsp import describe
from rlc.lsp.frames import Frame
from rlc.lsp.outline import Declared, read_outline
from rlc.lsp.reading import Reader


def signature_help(
    source: Source, offset: int, scope: Mapping[str, Declared]
) -> types.SignatureHelp | None:
    """Return the innermost call around an offset; None outside of calls."""
    before = Source(source.name, source.text[:offset], source.folder)
    reader = Reader(read_outline(before), scope).read()
    calls = [f for f in reader.frames if f.form == "call" and f.owner is not None]
    if not calls:
        return None
    frame = calls[-1]
    assert frame.owner is not None
    text, labels = describe.signature(frame.owner)
    doc = getattr(frame.owner, "doc", "")
    shown = frame.all_params()
    for param in shown[len(labels) :]:  # those that the first argument decides
        labels.append(f"{param.name} = {describe.default_text(param)}")
        text = f"{text[:-1]}{', ' if len(labels) > 1 else ''}{labels[-1]})"
    parameters = [
        types.ParameterInformation(
            label, types.MarkupContent(types.MarkupKind.Markdown, describe.meaning(param))
        )
        for label, param in zip(labels, shown, strict=True)
    ]
    return types.SignatureHelp(
        [types.SignatureInformation(text, doc, parameters)],
        active_signature=0,
        active_parameter=_active(frame),
    )


def _active(frame: Frame) -> int | None:
    """Which parameter the cursor is at: the one that is named, or the next by position."""
    if frame.current is not None and frame.given:
        names = [param.name for param in frame.all_params()]
        return names.index(frame.given[-1]) if frame.given[-1] in names else None
    return frame.position if frame.position < len(frame.params) else None
