"""What a hook is asked about."""

from app.ids import RunId, TenantId
from app.ports.hooks import HookPoint, HookSubject


def build_subject(
    content: str = "Hello",
    *,
    point: HookPoint = HookPoint.BEFORE_MODEL_CALL,
    model: str | None = "llama:small",
    configured_model: str | None = "llama:small",
) -> HookSubject:
    return HookSubject(
        point=point,
        tenant_id=TenantId("acme"),
        run_id=RunId("run_1"),
        agent="clerk",
        user=None,
        iteration=1,
        content=content,
        model=model,
        configured_model=configured_model,
    )
