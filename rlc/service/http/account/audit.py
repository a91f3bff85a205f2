"""What happened to checkpoints and projects: a line each in a file beside the runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

from attrs import frozen
from pydantic import ValidationError
from tinker import types

from rlc.service.http.account.signing import USER

_log = logging.getLogger(__name__)


@frozen
class Audit:
    """The events of one folder of checkpoints, kept over restarts."""

    _file: Path

    def add(self, event: str, **details: object) -> None:
        """Note an event, named ``<resource>_<action>``. That it was noted is not worth failing for
        what happened, so trouble with the file is logged."""
        entry = types.AuditLogEntry(
            timestamp=datetime.now(UTC), event=event, event_details={"actor": USER, **details}
        )
        try:
            with self._file.open("a", encoding="utf-8") as lines:
                lines.write(entry.model_dump_json(exclude_none=True) + "\n")
        except OSError:
            _log.exception("%s is not in the audit log", event)

    def checkpoint(self, action: str, path: str, **details: object) -> None:
        """Note what was done with the checkpoint at a path of Tinker's."""
        self.add(f"checkpoint_{action}", tinker_path=path, **details)

    def of(self, day: date, resource: str | None) -> Iterator[types.AuditLogEntry]:
        """Yield the events of a day (UTC), of one resource or of all, in order."""
        try:
            lines = self._file.open(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        with lines:
            for line in lines:
                try:
                    entry = types.AuditLogEntry.model_validate(json.loads(line))
                except (ValueError, ValidationError):
                    continue  # half written when a process was killed
                if entry.timestamp.astimezone(UTC).date() != day:
                    continue
                if resource is None or entry.event.startswith(f"{resource}_"):
                    yield entry
