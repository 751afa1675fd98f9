"""Tenants, keys, agents, runs, their events, and the functions that workers and requests call."""

from pathlib import Path

from app.store.scripts import run_script

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    for part in ("tables", "security", "guards", "tenant_functions", "scheduler_functions"):
        run_script(Path(__file__).with_name(f"0001_{part}.sql"))


def downgrade() -> None:
    run_script(Path(__file__).with_name("0001_down.sql"))
