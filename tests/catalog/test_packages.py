"""The packages that recipes need are called as pip and Python call them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from paths import ROOT

from rlc.catalog.index import builtins_of, tracker_traits
from rlc.catalog.packages import module_of, name_of, too_new
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
    assert find_spec(module_of(package)) is not None or name in left_out or too_new(package)
