"""``rlc report``: where the page goes, and what it says when there is none."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import pytest
from made_up_runs import write_run

from rlc.cli.main import main


def test_the_page_goes_into_the_run_folder_or_where_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "run")
    assert main(["report", str(tmp_path / "run")]) == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    assert "wrote" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "a.html")]) == 0
    assert (tmp_path / "a.html").stat().st_size > 10_000


def test_it_opens_the_browser_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "run")
    opened: list[str] = []

    def show(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", show)
    assert main(["report", str(tmp_path / "run"), "--open"]) == 0
    assert opened == [(tmp_path / "run" / "report.html").as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    assert main(["report", str(tmp_path / "run"), "--open"]) == 1
    assert "there is no browser" in capsys.readouterr().err


def test_errors_say_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 1
    errors = capsys.readouterr().err
    assert "there are no runs in" in errors
    assert "rlc runs" in errors
    assert main(["report", str(tmp_path / "nowhere")]) == 1
    assert "is not a run folder" in capsys.readouterr().err
    write_run(tmp_path / "run")
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "no" / "x.html")]) == 1
    assert "cannot write" in capsys.readouterr().err
