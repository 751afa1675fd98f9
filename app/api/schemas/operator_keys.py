"""Keys on the wire."""

from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, StringConstraints

from app.agents.definition import named_once
from app.api.schemas import story
from app.api.schemas.common import Instant, Text, View, Wire, instant, told_by
from app.auth import Scope
from app.events.codec import format_instant
from app.ports.tenancy import KeyInfo
from app.service.operator_keys import CreatedKey, KeyRequest, Rotation

_MOST_GROUPS: Final = 64
_MOST_OVERLAP_SECONDS: Final = 30 * 86_400
_MOST_LIFETIME_SECONDS: Final = 3_653 * 86_400


def _refuse_operator(scopes: tuple[Scope, ...]) -> tuple[Scope, ...]:
    if Scope.OPERATOR in scopes:
        raise ValueError("the scope operator is never mixed with a tenant's; see /operators/keys")
    return scopes


_Subject = Annotated[Text, StringConstraints(max_length=200)]
_Group = Annotated[Text, StringConstraints(max_length=200)]
_Description = Annotated[str, StringConstraints(max_length=256)]
_Lifetime = Annotated[int, Field(ge=1, le=_MOST_LIFETIME_SECONDS)]

_DESCRIPTION: Final = Field(description="For people")
_LIFETIME: Final = Field(description="Seconds from now until it expires; null: it does not")


class CreateKey(Wire):
    """A key of a tenant."""

    subject: Annotated[_Subject | None, Field(description="The person or program whose key it is")] = None
    scopes: Annotated[
        tuple[Scope, ...],
        AfterValidator(named_once),
        AfterValidator(_refuse_operator),
        Field(min_length=1, max_length=len(Scope), description="`approvals:decide` needs a subject: somebody decides"),
    ]
    groups: Annotated[
        tuple[_Group, ...],
        AfterValidator(named_once),
        Field(max_length=_MOST_GROUPS, description="Those that the tenant's rules for approvers name"),
    ] = ()
    description: Annotated[_Description, _DESCRIPTION] = ""
    lifetime_seconds: Annotated[_Lifetime | None, _LIFETIME] = None

    def to_request(self) -> KeyRequest:
        return KeyRequest(
            subject=self.subject,
            scopes=frozenset(self.scopes),
            groups=frozenset(self.groups),
            description=self.description,
            lifetime_seconds=self.lifetime_seconds,
        )


class CreateOperatorKey(Wire):
    """A key of an operator, with the scope `operator` and no other."""

    subject: Annotated[_Subject, Field(description="The person or program whose key it is, as the audit trail says it")]
    description: Annotated[_Description, _DESCRIPTION] = ""
    lifetime_seconds: Annotated[_Lifetime | None, _LIFETIME] = None

    def to_request(self) -> KeyRequest:
        return KeyRequest(
            subject=self.subject,
            scopes=frozenset({Scope.OPERATOR}),
            description=self.description,
            lifetime_seconds=self.lifetime_seconds,
        )


class RotateKey(Wire):
    """How long the old key and the new one are both valid."""

    overlap_seconds: Annotated[int, Field(ge=0, le=_MOST_OVERLAP_SECONDS, description="0: the old key ends at once")]
    lifetime_seconds: Annotated[
        _Lifetime | None, Field(description="Of the new key; null: as long as the old one was made for")
    ] = None

    def to_rotation(self) -> Rotation:
        return Rotation(overlap_seconds=self.overlap_seconds, lifetime_seconds=self.lifetime_seconds)


_EXAMPLE: Final[dict[str, Any]] = {
    "id": story.KEY_ID,
    "tenant_id": story.TENANT_ID,
    "subject": story.SERVICE,
    "scopes": ["runs:read", "runs:write"],
    "groups": [],
    "description": "the site's backend",
    "created_at": story.DAY_BEFORE,
    "expires_at": None,
    "revoked_at": None,
    "last_used_at": story.CREATED_AT,
    "replaces": None,
}


class KeyView(View):
    model_config = told_by(_EXAMPLE)

    id: str
    tenant_id: str | None = Field(description="null: an operator's")
    subject: str | None
    scopes: list[str]
    groups: list[str]
    description: str
    created_at: Instant
    expires_at: Instant | None
    revoked_at: Instant | None
    last_used_at: Instant | None = Field(description="May be a minute old")
    replaces: str | None = Field(description="The key that it was made for by a rotation")


class CreatedKeyView(KeyView):
    model_config = told_by({**_EXAMPLE, "last_used_at": None, "secret": f"rw_{'0' * 43}"})

    secret: str = Field(description="The key itself, for `Authorization: Bearer`. Shown this once")


class KeyPage(View):
    items: list[KeyView]
    next_cursor: None = None


def view_key(key: KeyInfo) -> KeyView:
    return KeyView(**_fields_of(key))


def view_created_key(created: CreatedKey) -> CreatedKeyView:
    return CreatedKeyView(**_fields_of(created.info), secret=created.secret)


def _fields_of(key: KeyInfo) -> dict[str, Any]:
    return {
        "id": key.key_id,
        "tenant_id": key.tenant_id,
        "subject": key.subject,
        "scopes": sorted(key.scopes),
        "groups": sorted(key.groups),
        "description": key.description,
        "created_at": format_instant(key.created_at),
        "expires_at": instant(key.expires_at),
        "revoked_at": instant(key.revoked_at),
        "last_used_at": instant(key.last_used_at),
        "replaces": key.replaces,
    }
