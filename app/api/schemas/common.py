"""Shapes that several routes share."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from app.api.schemas import story
from app.events.codec import format_instant
from app.policy.prices import write_amount


class Wire(BaseModel):
    """A frozen object with no fields but its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def require_all(schema: dict[str, Any]) -> None:
    schema["required"] = list(schema["properties"])


def told_by(example: Mapping[str, Any]) -> ConfigDict:
    """Of a model that is answered: the example that stands in the description."""

    def add(schema: dict[str, Any]) -> None:
        require_all(schema)
        schema["examples"] = [dict(example)]

    return ConfigDict(json_schema_extra=add)


class View(Wire):
    """What is answered: every field is always there."""

    model_config = ConfigDict(json_schema_extra=require_all)


def _refuse_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must say something")
    return text


MAX_METADATA_PAIRS: Final = 16

Text = Annotated[str, StringConstraints(min_length=1), AfterValidator(_refuse_blank)]
Metadata = Annotated[
    dict[
        Annotated[str, StringConstraints(min_length=1, max_length=64)],
        Annotated[str, StringConstraints(max_length=512)],
    ],
    Field(max_length=MAX_METADATA_PAIRS),
]
Instant = Annotated[str, Field(description="RFC 3339, UTC, milliseconds", json_schema_extra={"format": "date-time"})]
Money = Annotated[str, Field(description="A decimal number, exact", pattern=r"^[0-9]+(\.[0-9]+)?$")]


class FieldError(View):
    pointer: str = Field(
        description="RFC 6901 pointer into the body; `/query/<name>` for a parameter of the query, "
        "`/path/<name>` for a part of the path"
    )
    detail: str


class Problem(BaseModel):
    """RFC 9457. `code` is stable and is what a program branches on; the texts are for people."""

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:runwright:problem:invalid_request",
                    "title": "Invalid request",
                    "status": 422,
                    "detail": "the body is not what this route takes",
                    "instance": f"urn:runwright:request:{story.REQUEST_ID}",
                    "code": "invalid_request",
                    "errors": [{"pointer": "/input", "detail": "must say something"}],
                }
            ]
        },
    )

    type: str
    title: str
    status: int
    detail: str
    instance: str = Field(description="Names this request, as `X-Request-Id` does")
    code: str
    errors: list[FieldError] = Field(default_factory=list, description="Where single fields are at fault")


def instant(at: float | None) -> str | None:
    return None if at is None else format_instant(at)


def money(amount: Decimal | None) -> str | None:
    return None if amount is None else write_amount(amount)


def page(items: list[Any], next_cursor: str | None) -> dict[str, Any]:
    return {"items": items, "next_cursor": next_cursor}
