"""Questions to processes: answered, or given up with the process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from paths import SUPPORT

from rlc.data.errors import DataError
from rlc.data.grading.math_equivalence import Equivalence, SubprocessPool, compare


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[SubprocessPool]:
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    servers = SubprocessPool("line_server", patience=20.0, most=2)
    yield servers
    servers.close()


def test_questions_of_many_threads_are_answered_by_few_processes(servers: SubprocessPool) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(servers.ask, range(40)))
    assert answers == [[number, number] for number in range(40)]
    assert 1 <= len(servers._idle) <= 2


def test_a_process_that_hangs_or_dies_is_replaced(servers: SubprocessPool) -> None:
    assert servers.ask("die") is None
    servers.patience = 0.05
    assert servers.ask("hang") is None
    servers.patience = 20.0
    assert servers.ask("well?") == ["well?", "well?"]


def test_a_process_that_does_not_start_says_so() -> None:
    with pytest.raises(DataError, match="a process of no_such_module does not start"):
        SubprocessPool("no_such_module", patience=1.0, most=1).ask("anybody?")


def test_meanings_are_compared_from_any_thread() -> None:
    pytest.importorskip("math_verify")
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(compare, ["1/2", "x + 1", "0.4", "\\text"], ["0.5", "1 + x"] * 2))
    assert found[:2] == [Equivalence(True, True, True)] * 2
    assert found[2] == Equivalence(True, True, False)
    assert found[3] is not None
    assert not found[3].same
