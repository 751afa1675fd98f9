"""Questions to people, runs that go on from others, webhooks, retention, and what a worker must have."""

from pathlib import Path

from app.store.scripts import run_script

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for part in ("tables", "webhooks", "retention", "claims", "tenant_functions"):
        run_script(Path(__file__).with_name(f"0004_{part}.sql"))


def downgrade() -> None:
    parts = (
        "0004_down_retention",
        "0004_down_webhooks",
        "0004_down",
        "0001_scheduler_functions",
        "0003_scheduler_functions",
        "0003_tenant_functions",
    )
    for part in parts:
        run_script(Path(__file__).with_name(f"{part}.sql"))
