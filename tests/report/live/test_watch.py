"""`rlc watch`: the page over HTTP while a run is being written."""

from __future__ import annotations

import base64
import http.client
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from made_up_runs import add_step, write_run

from rlc.cli.main import main
from rlc.report.pages import PageServer, WatchedPage, version_of_all
from rlc.report.run_page import run_html
from rlc.runtime.journal.database import Journal
from rlc.runtime.journal.episodes import EpisodeHead, EpisodeIndex
from rlc.runtime.journal.folder import lock
from rlc.service.sockets import bind

pytestmark = pytest.mark.server


def set_meta(folder: Path, **values: str) -> None:
    journal = Journal(folder / "journal.sqlite")
    journal.set_meta(**values)
    journal.close()


@contextmanager
def watching(*folders: Path, key: str | None = None) -> Iterator[Callable[..., Any]]:
    """Serve the page of some runs; a function that asks for it: status, headers, text."""
    server = PageServer(bind("127.0.0.1", 0), WatchedPage(folders, clock=lambda: 0.0), key)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    port = server.socket.getsockname()[1]

    def ask(path: str = "/", method: str = "GET", **headers: str) -> tuple[int, Any, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.headers, text

    try:
        yield ask
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_page_follows_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_run(folder, done=4)
    set_meta(folder, state="running")
    process = lock(folder)  # as the process of the run holds it
    with watching(folder) as ask:
        status, headers, text = ask()
        assert status == 200
        assert 'data-state="running"' in text
        assert "4 of 8" in text
        assert ask(If_None_Match=headers["ETag"])[0] == 304
        add_step(folder, 5)
        status, headers, text = ask(If_None_Match=headers["ETag"])
        assert status == 200
        assert "5 of 8" in text
        os.close(process)  # the process is killed
        status, headers, text = ask(If_None_Match=headers["ETag"])
        assert status == 200
        assert "its process is gone" in text
        process = lock(folder)  # the run is resumed
        assert 'data-state="running"' in ask(If_None_Match=headers["ETag"])[2]
        set_meta(folder, state="failed", cause="the disk is <full>")
        os.close(process)
        text = ask()[2]
        assert 'data-state="failed"' in text
        assert "the disk is &lt;full&gt;" in text


def test_several_runs_are_watched_side_by_side(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_run(tmp_path / name, done=4)
        set_meta(tmp_path / name, state="finished")
    with watching(tmp_path / "one", tmp_path / "two") as ask:
        _, headers, text = ask()
        assert "2 runs side by side" in text
        add_step(tmp_path / "two", 5)
        status, _, text = ask(If_None_Match=headers["ETag"])
        assert status == 200
        assert "main 5/8" in text


def body(page: str) -> str:
    """A page without the time at which it was written."""
    return page.partition("<footer>")[0]


def test_runs_that_begin_in_a_watched_folder_are_shown(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with watching(tmp_path / "runs") as ask:
        assert 'data-state="none"' in ask()[2]
        write_run(tmp_path / "runs" / "one", done=4)
        assert "4 of 8" in ask()[2]
        write_run(tmp_path / "runs" / "another", done=4)
        text = ask()[2]
        assert "2 runs side by side" in text
        assert text.index("> one<") < text.index("> another<")  # still A
        for number in range(11):
            write_run(tmp_path / "runs" / f"more-{number}", planned=1)
        text = ask()[2]
        assert "12 runs side by side" in text
        assert text.count("a page shows 12 runs") == 1


def test_episodes_are_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    write_run(folder, done=4)
    read = list[int]()
    read_on = EpisodeIndex.read_on

    def counted(index: EpisodeIndex, *args: Any) -> Iterator[tuple[EpisodeHead, bytes]]:
        for found in read_on(index, *args):
            read.append(found[0].step)
            yield found

    monkeypatch.setattr(EpisodeIndex, "read_on", counted)
    watched = WatchedPage([folder], clock=lambda: 0.0)
    watched.page()
    assert set(read) == {3, 4}  # of which there are episodes
    read.clear()
    rollouts = folder / "rollouts.jsonl"
    last = [line for line in rollouts.read_bytes().splitlines(True) if b'"step": 4,' in line]
    with rollouts.open("ab") as file:
        file.writelines(line.replace(b'"step": 4,', b'"step": 5,') for line in last)
    add_step(folder, 5)
    page = watched.page().html.decode()
    assert read == [5] * len(last)
    assert body(page) == body(run_html(folder, live=True))  # as if it were read at once
    rollouts.write_bytes(b"".join(last[:1]))  # it was resumed before those steps
    add_step(folder, 6)
    assert body(watched.page().html.decode()) == body(run_html(folder, live=True))


def test_nothing_changes_by_looking(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    watched = WatchedPage([tmp_path / "run"], clock=lambda: 0.0)
    made = watched.page()
    assert watched.page() is made
    assert version_of_all([tmp_path / "run"]) == made.version


def test_a_page_that_takes_long_is_made_less_often(tmp_path: Path) -> None:
    write_run(tmp_path / "run", done=4)
    times = iter([0.0, 2.0, 5.0, 10.0, 11.0])  # two seconds to make it: it rests until 10
    watched = WatchedPage([tmp_path / "run"], clock=lambda: next(times))
    first = watched.page()
    add_step(tmp_path / "run", 5)
    assert watched.page() is first
    assert "5 of 8" in watched.page().html.decode()


def test_only_this_machine_is_answered_and_only_at_the_one_address(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    with watching(tmp_path / "run") as ask:
        assert ask(Host="elsewhere.example")[0] == 403
        assert ask(Host="localhost:9999")[0] == 200  # a tunnel
        assert ask("/etc/passwd")[0] == 404
        assert ask(method="POST")[0] == 501
        status, headers, text = ask(method="HEAD")
        assert (status, text) == (200, "")
        assert int(headers["Content-Length"]) > 10_000
        (tmp_path / "run" / "plan.json").rename(tmp_path / "plan.json")
        status, _, text = ask()
        assert status == 503
        assert "is not a run folder" in text


def test_a_key_is_asked_for(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    with watching(tmp_path / "run", key="secret") as ask:
        status, headers, _ = ask()
        assert status == 401
        assert headers["WWW-Authenticate"].startswith("Basic")
        for wrong in ("me:wrong", "me:", "secret:"):
            given = base64.b64encode(wrong.encode()).decode()
            assert ask(Authorization=f"Basic {given}")[0] == 401
        assert ask(Authorization="Basic ???")[0] == 401
        given = base64.b64encode(b"me:secret").decode()
        assert ask(Authorization=f"Basic {given}", Host="elsewhere.example")[0] == 200


def test_the_command_prints_the_address_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    command = [sys.executable, "-m", "rlc", "watch", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().rstrip().rpartition("http://")[2].rstrip("/")
        connection = http.client.HTTPConnection(address, timeout=60)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert "stopped" in process.stdout.read()


def test_what_cannot_be_served_is_said_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "run")
    monkeypatch.delenv("RLC_SERVE_KEY", raising=False)
    run = str(tmp_path / "run")
    assert main(["watch", str(tmp_path / "nowhere")]) == 1
    assert "is not a run folder" in capsys.readouterr().err
    assert main(["watch", run, "--host", "0.0.0.0"]) == 2
    assert "--allow-remote" in capsys.readouterr().err
    assert main(["watch", run, "--host", "0.0.0.0", "--allow-remote"]) == 2
    assert "needs a key" in capsys.readouterr().err
    with bind("127.0.0.1", 0) as taken:
        assert main(["watch", run, "--port", str(taken.getsockname()[1])]) == 2
    assert "cannot listen" in capsys.readouterr().err
