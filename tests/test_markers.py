"""The guard that keeps the markers of tests true."""

from __future__ import annotations

import socket
import sys

import pytest
from markers import TESTS, Guard, deselects, leaves_out, marks_of


@pytest.fixture
def guard() -> Guard:
    """The one that watches this process."""
    return next(finder for finder in sys.meta_path if isinstance(finder, Guard))


def test_a_listening_socket_needs_a_marker(guard: Guard) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(RuntimeError, match="without the marker `server`"):
            free.listen()
        assert guard.broken
        guard.broken = None  # as this test wants it
        with guard.allowing({"server"}):
            free.listen()


def test_importing_torch_needs_a_marker(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(RuntimeError, match="without the marker `engine`"):
        import torch  # noqa: F401
    assert guard.broken
    guard.broken = None
    for mark in ("engine", "plain"):
        with guard.allowing({mark}):
            assert guard.find_spec("torch", None) is None  # left to the importers after it


def test_markers_of_a_file_are_known_without_importing_it() -> None:
    assert marks_of(TESTS / "service/server/test_serve_protocol.py") == {"engine", "server"}
    assert marks_of(TESTS / "service/server") == {"engine", "server"}
    assert marks_of(TESTS / "runtime/journal/test_kill.py") == {"plain", "kill", "slow"}
    assert marks_of(TESTS / "service/hosted/test_hosted_faults.py") == {"plain", "server", "slow"}
    assert marks_of(TESTS / "runtime") == marks_of(TESTS / "test_house.py") == set()


@pytest.mark.parametrize(
    ("expression", "left_out"),
    [
        ("not engine", True),
        ("not engine and not server", True),
        ("not kill and not engine", True),
        ("not slow", False),
        ("quick", True),
        ("engine", False),
        ("not engine or kill", False),
        ("not (engine and slow)", False),
        ("", False),
    ],
)
def test_files_are_left_out_only_where_that_is_certain(expression: str, left_out: bool) -> None:
    assert deselects(expression, {"engine"}) is left_out


@pytest.mark.parametrize(
    ("expression", "folder", "left_out"),
    [
        ("not engine", "service/server", True),
        ("not engine", "service/hosted", False),  # there are files of another mark
        ("not engine and not server and not plain", "service/server", True),
        ("quick", "service/hosted", True),
        ("quick", "support", False),
        ("", "foreign", True),
    ],
)
def test_a_folder_is_left_out_where_all_its_files_are(
    expression: str, folder: str, left_out: bool
) -> None:
    assert leaves_out(expression, TESTS / folder) is left_out


@pytest.mark.parametrize(
    ("expression", "folder", "left_out"),
    [
        ("", None, True),
        ("slow", None, True),
        ("foreign", None, False),
        ("foreign and not slow", None, False),
        ("", "somewhere", False),
    ],
)
def test_other_packages_are_tested_if_asked_for(
    monkeypatch: pytest.MonkeyPatch, expression: str, folder: str | None, left_out: bool
) -> None:
    monkeypatch.delenv("RLC_SKYRL", raising=False)
    if folder is not None:
        monkeypatch.setenv("RLC_SKYRL", folder)
    assert deselects(expression, marks_of(TESTS / "foreign/test_skyrl.py")) is left_out
    assert deselects("foreign", {"engine"})
