"""What a principal may do, and the secrets that make one."""

import pytest

from app.auth import Principal, Scope, new_secret
from app.errors import Forbidden
from app.ids import KeyId, TenantId

PRINCIPAL = Principal(
    tenant_id=TenantId("ten_1"), key_id=KeyId("key_1"), subject=None, scopes=frozenset({Scope.RUNS_READ})
)


def test_a_scope_that_the_key_lacks_is_forbidden_by_name() -> None:
    assert PRINCIPAL.tenant_for(Scope.RUNS_READ) == "ten_1"
    with pytest.raises(Forbidden, match="runs:write"):
        PRINCIPAL.tenant_for(Scope.RUNS_WRITE)


def test_who_has_no_subject_acts_as_the_key() -> None:
    assert PRINCIPAL.actor == "key_1"


def test_new_secrets_are_keys_and_no_two_are_alike() -> None:
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    assert {len(secret) for secret in made} == {46}
