"""Keys and addresses: where they come from, and what is wrong with one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_support import TINY, compiled, train

from rlc.service.hosted.connect import require_service
from rlc.service.hosted.endpoint import find_endpoint
from rlc.service.interface import ServiceError

KEY = "tml-a-key-for-tests"


def test_the_environment_wins_over_the_file_and_the_option_over_both(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "TINKER_API_KEY=tml-from-file\nTINKER_BASE_URL=http://file:1\nTINKER_PROJECT_ID=p\n"
    )
    alone = find_endpoint(None, {}, tmp_path)
    assert (alone.api_key, alone.base_url, alone.project) == ("tml-from-file", "http://file:1", "p")
    environ = {"TINKER_API_KEY": KEY, "TINKER_BASE_URL": "http://environ:2/"}
    with_environ = find_endpoint(None, environ, tmp_path)
    assert (with_environ.api_key, with_environ.base_url) == (KEY, "http://environ:2")
    assert find_endpoint("http://option:3", environ, tmp_path).base_url == "http://option:3"


def test_an_empty_variable_says_nothing(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"TINKER_API_KEY={KEY}\n")
    assert find_endpoint(None, {"TINKER_API_KEY": " "}, tmp_path).api_key == KEY


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (None, "needs TINKER_API_KEY"),
        ("sk-another-service", "not a Tinker key"),
        ("tml-two words", "a space"),
        ("tml-zero-wide\u200bspace", "no key has"),
    ],
)
def test_a_key_that_cannot_work_is_refused_without_showing_it(
    key: str | None, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ServiceError, match=said) as refusal:
        find_endpoint(None, {} if key is None else {"TINKER_API_KEY": key}, tmp_path)
    shown = f"{refusal.value} {refusal.value.hint}"
    assert refusal.value.hint
    assert "TINKER_API_KEY" in shown
    assert key is None or key not in shown


def test_without_a_key_the_way_without_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="`--rehearse` runs the same job"):
        find_endpoint(None, {}, tmp_path)


def test_the_sdks_own_credentials_do_as_well(tmp_path: Path) -> None:
    environ = {"TINKER_CREDENTIAL_CMD": "print-a-key"}
    assert find_endpoint(None, environ, tmp_path).api_key is None
    stored = Path("~/.tinker/credentials.json").expanduser()
    stored.parent.mkdir(parents=True)
    stored.write_text(
        '{"version": 1, "default": "k", '
        f'"keys": {{"k": {{"type": "manual", "key": "{KEY}", "name": "mine"}}}}}}'
    )
    assert find_endpoint(None, {}, tmp_path).api_key is None
    stored.write_text("{")
    with pytest.raises(ServiceError, match="cannot read"):
        find_endpoint(None, {}, tmp_path)


def test_a_server_on_this_machine_needs_no_key(tmp_path: Path) -> None:
    assert find_endpoint("http://127.0.0.1:8000", {}, tmp_path).api_key
    with pytest.raises(ServiceError, match="needs TINKER_API_KEY"):
        find_endpoint("http://cluster:8000", {}, tmp_path)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", "http://x:99999", "?"])
def test_an_address_that_is_none_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="not the address of a server"):
        find_endpoint(url, {"TINKER_API_KEY": KEY}, tmp_path)


def test_a_password_in_an_address_is_refused_without_showing_it(tmp_path: Path) -> None:
    with pytest.raises(ServiceError) as refusal:
        find_endpoint("http://me:secret@host", {"TINKER_API_KEY": KEY}, tmp_path)
    assert "secret" not in str(refusal.value)


def test_another_service_than_tinker_needs_an_address(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="address of the SkyRL service") as refusal:
        find_endpoint(None, {"TINKER_BASE_URL": "http://a.b"}, tmp_path, "skyrl")
    assert refusal.value.hint == "give --base-url, or set SKYRL_BASE_URL"
    environ = {"SKYRL_BASE_URL": "http://127.0.0.1:1"}
    assert find_endpoint(None, environ, tmp_path, "skyrl").base_url == "http://127.0.0.1:1"


def test_an_unreadable_dotenv_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"TINKER_API_KEY=\xff\xfe")
    with pytest.raises(ServiceError, match=r"cannot read .*\.env"):
        find_endpoint(None, {}, tmp_path)


def test_the_key_is_not_in_the_endpoints_repr(tmp_path: Path) -> None:
    endpoint = find_endpoint("http://127.0.0.1:1", {"TINKER_API_KEY": KEY}, tmp_path)
    assert KEY not in repr(endpoint)


def test_an_address_for_a_local_plan_says_how_to_train_there() -> None:
    plan = compiled(TINY + train())
    with pytest.raises(ServiceError) as caught:
        require_service(plan, "http://127.0.0.1:9")
    assert caught.value.hint == "`--service tinker` trains its model there"
