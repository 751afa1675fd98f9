"""SQL files of the revisions."""

from pathlib import Path

from alembic import op
from sqlalchemy.util import await_only


def run_script(path: Path) -> None:
    """Runs all statements of a file, in the migration's transaction."""
    connection = op.get_bind()
    # Nothing was sent yet, perhaps: the driver must not be asked before the transaction is open.
    connection.exec_driver_sql("SELECT 1")
    driver = connection.connection.driver_connection
    assert driver is not None
    # The simple protocol: a prepared statement can't hold more than one command.
    await_only(driver.execute(path.read_text(encoding="utf-8")))
