"""The words for what becomes of a long conversation are stored with agents, so they stay."""

from app.policy import HistoryPolicy


def test_the_policies_keep_their_names() -> None:
    assert [policy.value for policy in HistoryPolicy] == ["fit", "all"]
