"""The tutorial can be followed from its first page to its last, in one folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from followed_pages import Reader
from http_testing import running_server
from paths import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.server, pytest.mark.slow]

PAGES = sorted((ROOT / "docs" / "tutorial").glob("[0-9]*.md"))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("tutorial").resolve()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.chdir(folder),
        running_server(folder / "served", models={"Qwen/Qwen3-8B": "tiny"}) as address,
    ):
        patch.delenv("TINKER_API_KEY", raising=False)
        patch.delenv("TINKER_BASE_URL", raising=False)
        patch.setenv("COLUMNS", "120")
        patch.setenv("OMP_NUM_THREADS", "1")  # models this small lose time to a second thread
        yield Reader(folder, address)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_can_be_followed(reader: Reader, page: Path) -> None:
    """Each page goes on where the one before it ended."""
    for earlier in PAGES[: PAGES.index(page)]:
        if earlier.stem not in reader.done:
            pytest.skip(f"{earlier.stem} has not been followed to its end")
    reader.follow(page)
    reader.done.append(page.stem)
