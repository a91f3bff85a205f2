"""Data on standard output stays whole, whoever prints meanwhile."""

from __future__ import annotations

import os

import pytest

from rlc.cli.output import standard_output_kept


def test_what_any_code_prints_goes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with standard_output_kept():
        print("progress")
        os.write(1, b"of a program\n")
    print("{}")
    captured = capfd.readouterr()
    assert captured.out == "{}\n"
    assert sorted(captured.err.splitlines()) == ["of a program", "progress"]
