"""What the database wants from time to time. Any process may ask, as often as it likes."""

from typing import Final

from app.store.database import Database

_PARTITIONS: Final = "SELECT ensure_event_partitions() AS count"
_FORGET_KEYS: Final = "SELECT forget_idempotency_keys(interval '24 hours') AS count"
_FORGET_LEDGER: Final = "SELECT forget_ledger() AS count"
_FORGET_NOTICES: Final = "SELECT forget_deliveries(interval '30 days', 10000) AS count"


async def maintain(database: Database) -> None:
    """Makes the events' partitions of the coming days, and forgets idempotency keys that have expired, notices that
    were over 30 days ago, and what tenants used in windows that nothing counts from any more.

    Without it for two weeks events go to the default partition: slower to drop later, never lost. Raises
    StoreUnavailable.
    """
    await database.fetch(_PARTITIONS)
    await database.fetch(_FORGET_KEYS)
    await database.fetch(_FORGET_NOTICES)
    await database.fetch(_FORGET_LEDGER)
