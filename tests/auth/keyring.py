"""A store of keys in memory: what authentication asks of one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.errors import StoreUnavailable
from app.ids import KeyId, TenantId
from app.ports.records import KeyRecord, TicketHolder

SECRET = "rw_" + "k" * 43
RECORD = KeyRecord(
    key_id=KeyId("key_1"),
    tenant_id=TenantId("ten_1"),
    subject="ada",
    scopes=frozenset({"runs:read"}),
    expires_at=None,
    revoked=False,
)
TENANT = KeyRecord(
    key_id=KeyId(""), tenant_id=TenantId("ten_1"), subject=None, scopes=frozenset(), expires_at=None, revoked=False
)


@dataclass
class Keyring:
    """Satisfies ``ports.store.KeyStore``. ``found`` and ``admitted`` count what it was asked."""

    records: dict[bytes, KeyRecord] = field(default_factory=dict)
    tenants: dict[str, KeyRecord] = field(default_factory=dict)
    holders: dict[TicketHolder, KeyRecord] = field(default_factory=dict)
    is_away: bool = False
    found: int = 0
    admitted: int = 0
    noted: list[Mapping[KeyId, float]] = field(default_factory=list)

    async def find_key(self, secret_hash: bytes) -> KeyRecord | None:
        self.found += 1
        return self._answer(self.records.get(secret_hash))

    async def admit_key(self, secret_hash: bytes) -> KeyRecord | None:
        self.admitted += 1
        return self._answer(self.records.get(secret_hash))

    async def has_tenant(self, tenant: str) -> bool:
        self.found += 1
        return self._answer(self.tenants.get(tenant)) is not None

    async def admit_tenant(self, tenant: str) -> KeyRecord | None:
        self.admitted += 1
        return self._answer(self.tenants.get(tenant))

    async def find_holder(self, holder: TicketHolder) -> KeyRecord | None:
        self.found += 1
        return self._answer(self.holders.get(holder))

    async def admit_holder(self, holder: TicketHolder) -> KeyRecord | None:
        self.admitted += 1
        return self._answer(self.holders.get(holder))

    async def note_uses(self, uses: Mapping[KeyId, float]) -> None:
        self._answer(None)
        self.noted.append(dict(uses))

    def _answer(self, record: KeyRecord | None) -> KeyRecord | None:
        if self.is_away:
            raise StoreUnavailable
        return record
