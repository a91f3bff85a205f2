"""Settings shared by all tests, their markers, and the guard that keeps the markers true."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator, Set
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from freezing import begin_hypothesis, freeze_for_good
from hypothesis import settings
from markers import NEEDS, QUICK, Guard, leaves_out, marks_of
from shared_tls import share_tls_contexts
from unsynced import sync_nothing

import rlc.service.engine  # noqa: F401 (before any test imports torch)

# Properties run the same examples everywhere; a slow machine is no failure. Most say enough with
# 40; RLC_EXAMPLES=1000 looks further.
EXAMPLES = int(os.environ.get("RLC_EXAMPLES", "40"))
settings.register_profile("rlc", deadline=None, derandomize=True, max_examples=EXAMPLES)
settings.load_profile("rlc")

# Many tests start processes: each would compile rlc anew where nothing is written down.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Models this small lose time to a second thread, here and in the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What is known of models is what is shipped, and prices do not grow old.
SETTINGS = TemporaryDirectory(prefix="rlc-tests-", ignore_cleanup_errors=True)
os.environ |= {"XDG_CONFIG_HOME": SETTINGS.name, "RLC_TODAY": "2026-08-01"}

# Most of what tests make is no garbage: modules, and the records of thousands of other tests.
gc.set_threshold(5_000, 20, 20)

sync_nothing()
share_tls_contexts()

GUARD = Guard()
GUARD.install()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file or a folder whose tests are all deselected: it may take seconds to load
    torch, or be without it."""
    return leaves_out(config.option.markexpr, collection_path) or None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Guard the import of a file of tests; of a folder there may be a conftest of engine tests."""
    is_file = isinstance(collector, pytest.Module)
    with GUARD.allowing(marks_of(collector.path) if is_file else GUARD.allowed):
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long, and end with those that need nothing, so that no worker
    is left with a long one."""
    marks = [(item.path, {mark.name for mark in item.iter_markers()}) for item in items]
    slow = Counter(path for path, own in marks if "slow" in own)
    heavy = {path for path, own in marks if own & {"engine", "plain", "server"}}
    items.sort(key=lambda item: (-slow[item.path], item.path not in heavy))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from scheduling import Scheduling

    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage among what is imported."""
    begin_hypothesis()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    freeze_for_good()


def pytest_itemcollected(item: pytest.Item) -> None:
    for mark in sorted(marks_of(item.path) - {mark.name for mark in item.iter_markers()}):
        item.add_marker(mark)
    if not NEEDS & {mark.name for mark in item.iter_markers()}:
        item.add_marker(QUICK)


@pytest.fixture(scope="module", autouse=True)
def _modules_are_searched_where_they_were() -> Iterator[None]:
    """A run leaves the folder of its recipe on the path, where the next file would find modules."""
    before = [*sys.path]
    yield
    sys.path[:] = before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    GUARD.broken = None
    marks = {mark.name for mark in item.iter_markers()}
    with GUARD.allowing(marks), _service(marks):
        try:
            return (yield)
        finally:
            _forget_keys()
            _forget_environments()


def _forget_keys() -> None:
    """Take back what a run found in a `.env`: the next test has none."""
    if (keys := sys.modules.get("rlc.catalog.keys")) is not None:
        for name in keys._provided:
            os.environ.pop(name, None)
        keys._provided.clear()


def _forget_environments() -> None:
    """Have the next test make its own environments of GEM: it may give them other data."""
    if (source := sys.modules.get("rlc.envs.gem.source")) is not None:
        source._prototype.cache_clear()


def _service(marks: Set[str]) -> AbstractContextManager[None]:
    """Until the block ends, have the double answer in place of the engine, if a test wants it."""
    if "plain" not in marks or "engine" in marks:
        return nullcontext()
    from plain_service import plain_service

    return plain_service()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    result = yield
    assert GUARD.broken is None, GUARD.broken  # also where somebody caught the error
    return result
