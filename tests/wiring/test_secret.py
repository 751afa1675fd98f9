"""The server's own secret outlives a restart and is nobody else's to read."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app.wiring.secret import derive_key, load_secret, write_private


def test_a_configured_secret_is_taken_as_it_is(tmp_path: Path) -> None:
    assert load_secret("k" * 32, tmp_path) == b"k" * 32


def test_a_configured_secret_leaves_no_file(tmp_path: Path) -> None:
    load_secret("k" * 32, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_made_secret_is_the_same_at_the_next_start(tmp_path: Path) -> None:
    assert load_secret(None, tmp_path / "data") == load_secret(None, tmp_path / "data")


def test_two_deployments_make_two_secrets(tmp_path: Path) -> None:
    assert load_secret(None, tmp_path / "one") != load_secret(None, tmp_path / "two")


def test_a_made_secret_is_for_this_user_only(tmp_path: Path) -> None:
    load_secret(None, tmp_path)
    assert (tmp_path / "server-secret").stat().st_mode & 0o777 == 0o600


def test_writing_leaves_no_draft_behind(tmp_path: Path) -> None:
    write_private(tmp_path / "file", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_processes_that_start_together_have_one_secret(tmp_path: Path) -> None:
    together = threading.Barrier(16)

    def start(_: int) -> bytes:
        together.wait()
        return load_secret(None, tmp_path / "data")

    with ThreadPoolExecutor(16) as pool:
        secrets = set(pool.map(start, range(16)))
    assert len(secrets) == 1
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["server-secret"]


def test_a_key_of_one_purpose_is_not_that_of_another() -> None:
    assert derive_key(b"k" * 32, "approvals") != derive_key(b"k" * 32, "webhooks")


def test_a_key_of_one_purpose_is_always_the_same() -> None:
    assert derive_key(b"k" * 32, "approvals") == derive_key(b"k" * 32, "approvals")
