"""The HTTP surface: what a request asks for in one statement.

Revision ID: 0006
"""

from pathlib import Path

from app.store.scripts import run_script

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for part in ("audit", "metrics", "fast", "idempotency", "tickets", "readers", "lists", "events", "groups"):
        run_script(Path(__file__).with_name(f"0006_{part}.sql"))


def downgrade() -> None:
    for part in ("groups", "events", "lists", "readers", "idempotency", "fast", "tickets", "metrics", "audit"):
        run_script(Path(__file__).with_name(f"0006_down_{part}.sql"))
