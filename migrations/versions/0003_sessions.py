"""Sessions with their history, state and artifacts, and runs below other runs."""

from pathlib import Path

from app.store.scripts import run_script

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for part in ("tables", "tenant_functions", "scheduler_functions"):
        run_script(Path(__file__).with_name(f"0003_{part}.sql"))


def downgrade() -> None:
    parts = ("0003_down", "0001_tenant_functions", "0002_answers", "0003_down_columns", "0001_scheduler_functions")
    for part in parts:
        run_script(Path(__file__).with_name(f"{part}.sql"))
