"""The packages that recipes need are called as pip and Python call them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import invalidate_caches
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
from paths import ROOT

from rlc.catalog.index import builtins_of, tracker_traits
from rlc.catalog.packages import ENVIRONMENTS, NEWEST_PYTHON, TASKSETS, lacking, name_of, too_new
from rlc.catalog.requirements import packages_of_file, service_packages
from rlc.plan.parts import LOCAL, TINKER


def named() -> Iterator[str]:
    for kind in ("env", "grader"):
        yield from (each.traits.package for each in builtins_of(kind) if each.traits.package)
    yield from (tracker_traits(each.name).package for each in builtins_of("tracker"))
    for service in (LOCAL, TINKER):
        yield from service_packages(service)
    yield from ("datasets", *packages_of_file("rows.parquet"))


@pytest.mark.parametrize("package", sorted(set(named())))
def test_a_package_is_an_extra_of_rlc_and_imported_by_this_name(package: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {
        re.split(r"[<>=\[]", requirement)[0]
        for extra in extras["optional-dependencies"].values()
        for requirement in extra
    }
    name = name_of(package)
    assert name in names
    if ">=" in package:
        needed = [one for extra in extras["optional-dependencies"].values() for one in extra]
        assert any(one.startswith(f"{package},") for one in needed)
    developed = ",".join(
        extras["optional-dependencies"]["dev"] + extras["optional-dependencies"]["all"]
    )
    left_out = {
        re.split(r"[<>=\[]", requirement)[0]
        for extra, requirements in extras["optional-dependencies"].items()
        if not re.search(rf"\b{extra}\b", developed)
        for requirement in requirements
    }
    refused = {name_of(one) for one in NEWEST_PYTHON if too_new(one)}
    assert lacking(name) is None or name in left_out | refused


def test_a_folder_of_that_name_is_no_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the folder `datasets` beside a recipe."""
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "own_rows"
    folder.mkdir()
    assert lacking("own-rows") == "not installed here"
    (folder / "__init__.py").touch()
    invalidate_caches()
    assert lacking("own-rows") is None


def test_a_version_is_too_old_or_too_new() -> None:
    here = f"{version('pytest')} here"
    assert [lacking("pytest>=8"), lacking("pytest>=1000")] == [None, here]
    assert [lacking("pytest<8"), lacking("pytest<1000")] == [here, None]


@pytest.mark.parametrize(
    ("package", "python", "most"),
    [
        ("gem-llm", (3, 12, 0), ""),
        ("gem-llm", (3, 12, 1), "3.12.0"),
        (ENVIRONMENTS, (3, 13, 5), ""),
        (ENVIRONMENTS, (3, 14, 0), "3.13"),
        (TASKSETS, (3, 14, 0), ""),
    ],
)
def test_a_python_that_is_too_new_is_told_which_will_do(
    package: str, python: tuple[int, ...], most: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlc.catalog.packages.sys", SimpleNamespace(version_info=python))
    this = ".".join(map(str, python))
    told = f"{package} needs a Python from 3.11 to {most}, and this is {this}: make"
    assert too_new(package).startswith(told) if most else too_new(package) == ""
