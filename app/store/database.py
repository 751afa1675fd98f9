"""Connections to Postgres, and the one place where a database that is away becomes StoreUnavailable."""

import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

import asyncpg
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import exc, text
from sqlalchemy.connectors.asyncio import AsyncAdapt_Error
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from app.errors import ConfigurationError, StoreUnavailable
from app.ids import TenantId
from app.store.pool import Pool, discard
from app.store.types import escape_text

_TENANT_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class DatabaseConfig(BaseModel):
    """Where Postgres is. ``url`` logs in as the application's role, ``admin_url`` as the owner (migrations, doctor).

    ``listen_url`` is for LISTEN, which a pooler in transaction mode can't do; without it ``url`` is used. All are
    ``postgresql://`` URLs as libpq reads them. A process that is paused in a transaction holds its rows for
    ``idle_in_transaction_seconds``: less than a third of a lease, or it would cost others theirs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(repr=False)
    admin_url: str | None = Field(default=None, repr=False)
    listen_url: str | None = Field(default=None, repr=False)
    pool_size: int = Field(default=10, ge=1, le=1000)
    pool_timeout_seconds: float = Field(default=5.0, gt=0)
    connect_timeout_seconds: float = Field(default=5.0, gt=0)
    command_timeout_seconds: float = Field(default=20.0, gt=0)
    idle_in_transaction_seconds: float = Field(default=9.0, ge=0.001)


class Database:
    """A pool of connections as one role. Belongs to the event loop that first uses it."""

    def __init__(self, config: DatabaseConfig) -> None:
        url = to_driver_url(config.url)
        arguments = connect_arguments(config)

        async def connect() -> asyncpg.Connection:
            # The driver reads the URL itself: it knows sockets, several hosts and sslmode as libpq does.
            return await asyncpg.connect(url, **arguments)

        self.pool: Final = Pool(connect, size=config.pool_size, timeout_seconds=config.pool_timeout_seconds)
        # Of connections of its own, for what is asked rarely.
        self.engine: Final = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)

    async def fetch(self, statement: str, *arguments: Any) -> Sequence[asyncpg.Record]:
        """One statement, one transaction, one round trip. Raises StoreUnavailable."""
        with store_errors():
            driver = await self.pool.take()
            try:
                rows: Sequence[asyncpg.Record] = await driver.fetch(statement, *arguments)
            except asyncpg.PostgresError:
                # The server has answered, so the connection is in step (or closed, which the pool sees).
                raise
            except BaseException:
                # Cancelled or timed out: the answer may still come, and must not meet the next question.
                await discard(driver)
                raise
            finally:
                self.pool.give_back(driver)
            return rows

    @contextlib.asynccontextmanager
    async def enter_tenant(self, tenant_id: TenantId, *, actor: str | None = None) -> AsyncIterator[asyncpg.Connection]:
        """A transaction that sees one tenant's rows and commits when the block ends well. ``actor`` is who the audit
        trail names for what is changed in it.

        Statements in it are sent under ``store_errors``. Raises StoreUnavailable; then it did not commit, or nobody
        knows.
        """
        if not _TENANT_ID.fullmatch(tenant_id):
            raise ValueError(f"{tenant_id!r} is no tenant's id")
        with store_errors():
            driver = await self.pool.take()
        try:
            with store_errors():
                # One round trip, which parameters would make two: that is why the id is checked above.
                await driver.execute(f"BEGIN; SET LOCAL app.tenant_id = '{tenant_id}'{_name_actor(actor)}")
            yield driver
            with store_errors():
                ended = await driver.execute("COMMIT")
            if ended != "COMMIT":
                # A statement failed and somebody went on regardless: the server undid everything.
                raise StoreUnavailable("the transaction was undone")
        except BaseException as error:
            await _roll_back(driver, after=error)
            raise
        finally:
            self.pool.give_back(driver)

    @contextlib.asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """SQLAlchemy's transaction, over no tenant and outside of the pool, for what is asked rarely. Raises
        StoreUnavailable.

        Of what the block itself raises only the driver's errors are translated: a TimeoutError there may be its own.
        """
        async with contextlib.AsyncExitStack() as stack:
            with store_errors():
                connection = await stack.enter_async_context(self.engine.connect())
                transaction = await stack.enter_async_context(connection.begin())
            try:
                yield connection
            except exc.DBAPIError:
                with store_errors():
                    raise
            with store_errors():
                await transaction.commit()

    async def close(self) -> None:
        await self.pool.close()
        await self.engine.dispose()


def _name_actor(actor: str | None) -> str:
    """The statement that says who acts, whatever they are called: of the name only hexadecimal digits are in it."""
    if actor is None:
        return ""
    name = escape_text(actor).encode(errors="replace").hex()
    return f"; SELECT set_config('app.actor', convert_from(decode('{name}', 'hex'), 'UTF8'), true)"


async def _roll_back(driver: asyncpg.Connection, *, after: BaseException) -> None:
    """Leaves the connection clean, or gives it up: where the server may be away or an answer is due, it isn't asked."""
    if isinstance(after, Exception) and not isinstance(after, StoreUnavailable):
        with contextlib.suppress(*DRIVER_ERRORS):
            await driver.execute("ROLLBACK")
            return
    await discard(driver)


def connect_arguments(config: DatabaseConfig) -> dict[str, Any]:
    """What every connection of ours is opened with, beside its URL."""
    return {
        "timeout": config.connect_timeout_seconds,
        "command_timeout": config.command_timeout_seconds,
        "server_settings": {
            "application_name": "runwright",
            "idle_in_transaction_session_timeout": f"{config.idle_in_transaction_seconds * 1000:.0f}ms",
            "jit": "off",
            "timezone": "UTC",
        },
    }


def to_driver_url(url: str) -> str:
    """Takes SQLAlchemy's spelling too. Raises ConfigurationError for what is no Postgres URL."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.partition("+")[0] not in {"postgresql", "postgres"}:
        raise ConfigurationError("a database URL begins with postgresql://", code="database_url_invalid")
    return f"postgresql://{rest}"


# SQLSTATE classes and codes (appendix A of the manual): connection lost, resources, being shut down, locks, failover.
_AWAY_CLASSES: Final = ("08", "53", "57P", "58")
_AWAY_CODES: Final = frozenset({"25006", "25P03", "40001", "40P01", "55P03", "57014"})


# All that the driver raises, told of absence or not. Its InternalClientError means that a connection is out of step:
# the server's last words (being shut down, say) came between two statements.
DRIVER_ERRORS: Final = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)


@contextlib.contextmanager
def store_errors() -> Iterator[None]:
    """Raises StoreUnavailable for whatever says that the database does not answer now but may again."""
    try:
        yield
    except (exc.SQLAlchemyError, AsyncAdapt_Error, *DRIVER_ERRORS) as error:
        cause = _driver_error(error)
        # Never the statement or its arguments: they hold what people wrote.
        told = type(cause).__name__
        if _refuses_login(cause):
            raise ConfigurationError(
                f"the database refuses the login: {told}", code="database_login_refused"
            ) from error
        if _tells_of_absence(cause) or (isinstance(error, exc.DBAPIError) and error.connection_invalidated):
            raise StoreUnavailable(f"the database does not answer: {told}") from error
        raise


def _driver_error(error: BaseException) -> BaseException:
    """What the driver raised, inside the two coats that SQLAlchemy puts around it."""
    inner = error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error
    return inner.__cause__ or inner if isinstance(inner, AsyncAdapt_Error) else inner


def _refuses_login(error: BaseException) -> bool:
    # Wrong password or role, no such database.
    return isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "").startswith(("28", "3D"))


def _tells_of_absence(error: BaseException) -> bool:
    if isinstance(error, asyncpg.InvalidCachedStatementError):
        # A migration changed a table while we ran. Asked again, the statement is planned anew.
        return True
    if isinstance(error, asyncpg.PostgresError):
        code = error.sqlstate or ""
        return code.startswith(_AWAY_CLASSES) or code in _AWAY_CODES
    if isinstance(error, asyncpg.InterfaceError):
        return "closed" in str(error) or "connection" in str(error)
    # PendingRollback: the connection was lost earlier in this transaction, and somebody went on regardless.
    return isinstance(error, (OSError, TimeoutError, asyncpg.InternalClientError, exc.PendingRollbackError))


async def check_role(database: Database, *, allow_owner: bool = False) -> None:
    """Refuses a login that row-level security does not hold.

    Raises ConfigurationError ``database_role_owns_tables`` for a superuser, a role with BYPASSRLS, and one that owns
    the tables or may become their owner. ``allow_owner`` is for development.
    """
    if allow_owner:
        return
    async with database.begin() as connection:
        row = (await connection.execute(text(_ROLE_QUERY))).one()
    reasons = [
        reason
        for reason, holds in (
            ("is a superuser", row.rolsuper),
            ("bypasses row-level security", row.rolbypassrls),
            ("owns the tables", row.owns),
        )
        if holds
    ]
    if reasons:
        raise ConfigurationError(
            f"the database role {row.name!r} {' and '.join(reasons)}, so row-level security would not keep tenants "
            "apart; let DATABASE_URL log in as runwright_app, and RUNWRIGHT_ADMIN_DATABASE_URL as the owner",
            code="database_role_owns_tables",
        )


_ROLE_QUERY: Final = """
    SELECT current_user AS name, r.rolsuper, r.rolbypassrls,
        EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace
            AND c.relname IN ('runs', 'events', 'keys') AND pg_has_role(current_user, c.relowner, 'MEMBER')) AS owns
    FROM pg_roles r WHERE r.rolname = current_user
"""
