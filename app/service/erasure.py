"""Erasing what belongs to one person."""

from dataclasses import dataclass
from typing import Final

from app.auth import Principal
from app.errors import Conflict
from app.ids import TenantId
from app.ports.store import TenantStore
from app.service.approvals import Digest
from app.service.subjects import settle_user

# As many runs and sessions go in one transaction.
_PORTION: Final = 50
# No tool is called so, so no digest of a call's arguments is one of a user.
_NAME: Final = "erased user"


@dataclass(frozen=True, kw_only=True, slots=True)
class Erased:
    """How much went: ``runs`` with those below others."""

    runs: int
    sessions: int


async def erase_user(
    store: TenantStore, principal: Principal, tenant_id: TenantId, user: str, *, digest: Digest
) -> Erased:
    """Erases the user's runs and sessions, what is kept of them, and the state that is kept for him.

    In several transactions: one that is cut off has erased a part of it, and is asked for again. The audit trail names
    him by a digest. Raises Forbidden (``user_mismatch``), and Conflict (``user_has_open_runs``) while a run of his has
    not ended: then nothing is erased, but for a run that came while the rest was being erased.
    """
    settle_user(principal, user)
    target = digest(_NAME, {"tenant": tenant_id, "user": user})
    # Who erases his own name does not write it down by that.
    actor = f"user {target}" if principal.actor == user else principal.actor
    runs, sessions, is_done = 0, 0, False
    async with store.begin(tenant_id) as tx:
        if await tx.has_open_runs(user):
            raise _open()
    while not is_done:
        async with store.begin(tenant_id, actor=actor) as tx:
            erased = await tx.erase_user(user, target=target, limit=_PORTION)
            if erased.is_open:
                raise _open()
        runs, sessions, is_done = runs + erased.runs, sessions + erased.sessions, erased.is_done
    return Erased(runs=runs, sessions=sessions)


def _open() -> Conflict:
    return Conflict("a run of this user, or one that comes after it, has not ended", code="user_has_open_runs")
