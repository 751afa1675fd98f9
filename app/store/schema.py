"""What the files that describe tables share. Each of them puts its tables into ``metadata``."""

from typing import Final

from sqlalchemy import DateTime, MetaData, Text, text

metadata: Final = MetaData()

# Bytes, whatever the server's locale.
ID: Final = Text(collation="C")
INSTANT: Final = DateTime(timezone=True)
NOW: Final = text("clock_timestamp()")
XID: Final = text("((pg_current_xact_id())::text)::bigint")
