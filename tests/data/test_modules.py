"""Modules are found as an import would find them, and none is imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlc.data.code import module_file
from rlc.data.errors import CodeError, PackageMissingError

RAISES = "raise SystemExit('this is not run')"
FILES = {
    "found_rewards.py": RAISES,
    "own_package/__init__.py": RAISES,
    "own_package/inner/__init__.py": RAISES,
    "own_package/inner/deep.py": RAISES,
    "own_folder/part.py": RAISES,  # a package without `__init__.py`
    "makes_modules/__init__.py": "import sys\nsys.modules[__name__ + '.made'] = object()",
    "json.py": RAISES,  # never takes the place of a library
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("found_rewards", "found_rewards.py"),
        ("own_package", "own_package/__init__.py"),
        ("own_package.inner.deep", "own_package/inner/deep.py"),
        ("own_folder.part", "own_folder/part.py"),
    ],
)
def test_a_module_is_found_beside_the_recipe(folder: Path, name: str, file: str) -> None:
    assert module_file(name, [str(folder)]) == str(folder / file)
    assert name.partition(".")[0] not in sys.modules


def test_a_module_is_found_among_what_is_installed(folder: Path) -> None:
    import json.decoder

    assert module_file("json", [str(folder)]) == json.__file__
    assert module_file("json.decoder", [str(folder)]) == json.decoder.__file__


@pytest.mark.parametrize("name", ["math", "sys", "os.path", "own_folder", "makes_modules.made"])
def test_what_has_no_text_or_may_be_made_is_not_judged(folder: Path, name: str) -> None:
    assert module_file(name, [str(folder)]) is None


@pytest.mark.parametrize(
    ("name", "said", "kind"),
    [
        ("own_rewads", "no module `own_rewads` among", PackageMissingError),
        ("own_package.iner", "no module `iner` in `own_package`", CodeError),
        ("own_package.inner.depp", "in `own_package.inner`; did you mean `deep`", CodeError),
        ("own_folder.parts", "`parts` in `own_folder`; did you mean `part`", CodeError),
        ("found_rewards.other", "no module `other` in `found_rewards`", CodeError),
    ],
)
def test_what_is_not_there(folder: Path, name: str, said: str, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=said):
        module_file(name, [str(folder)])


def test_a_slip_is_noticed(folder: Path) -> None:
    with pytest.raises(PackageMissingError) as error:
        module_file("own_rewads", [str(folder)])
    assert error.value.hint == "did you mean `found_rewards`?"
