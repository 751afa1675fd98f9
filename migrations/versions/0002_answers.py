"""The form of a run's answer, and what the run cost."""

from pathlib import Path

from app.store.scripts import run_script

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_script(Path(__file__).with_name("0002_answers.sql"))


def downgrade() -> None:
    run_script(Path(__file__).with_name("0002_down.sql"))
    run_script(Path(__file__).with_name("0001_tenant_functions.sql"))
