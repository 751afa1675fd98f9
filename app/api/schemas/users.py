"""Shapes of ``/users``."""

from pydantic import Field

from app.api.schemas.common import View, told_by


class ErasedUserView(View):
    model_config = told_by({"runs": 2, "sessions": 1})

    runs: int = Field(ge=0, description="Runs that were erased, with those that they started")
    sessions: int = Field(ge=0, description="Sessions that were erased")
