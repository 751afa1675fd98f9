"""What an operator sets for tenants, what they have used over time, who decides, and a trail of who changed what."""

from pathlib import Path

from app.store.scripts import run_script

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for part in ("tables", "audit", "operator", "keys", "claims", "ledger", "runs", "votes", "erasure"):
        run_script(Path(__file__).with_name(f"0005_{part}.sql"))


def downgrade() -> None:
    parts = (
        "0005_down_erasure",
        "0005_down_votes",
        "0005_down_ledger",
        "0004_tenant_functions",
        "0005_down_claims",
        "0004_claims",
        "0005_down_operator",
        "0005_down_audit",
        "0005_down_tables",
    )
    for part in parts:
        run_script(Path(__file__).with_name(f"{part}.sql"))
