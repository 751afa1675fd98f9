"""The server's own secret outlives a restart and is nobody else's to read."""

from pathlib import Path

from app.wiring.secret import load_secret, write_private


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
