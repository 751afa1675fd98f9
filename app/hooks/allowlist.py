"""Which models a run may ask."""

from collections.abc import Collection
from fnmatch import fnmatchcase

from app.ports.hooks import HookDecision, HookPoint, HookSubject


class ModelAllowList:
    """Refuses every call of a model that is not listed.

    Entries are full names, ``provider:model``, or shell patterns such as ``llama:*``; capitals count. Without a list,
    only the model that the run was set up with may be asked, so a fallback to another one is refused. A call whose
    model is not known is refused too. Raises ValueError for a list that is empty or has an empty entry.
    """

    points = frozenset({HookPoint.BEFORE_MODEL_CALL})

    def __init__(self, models: Collection[str] | None = None, *, name: str = "model_allow_list") -> None:
        if isinstance(models, str):
            raise ValueError(f"{models!r} is one name: a list of names is wanted")
        if models is not None and not all(models):
            raise ValueError("an empty name allows no model")
        if models is not None and not models:
            raise ValueError("an empty list would refuse every model")
        self.name = name
        self._models = None if models is None else tuple(models)

    async def decide(self, subject: HookSubject) -> HookDecision:
        if subject.model is not None and self._allows(subject.model, subject.configured_model):
            return HookDecision.proceed()
        return HookDecision.refuse(f"the model {subject.model} is not allowed here")

    def _allows(self, model: str, configured: str | None) -> bool:
        if self._models is None:
            return model == configured
        return any(fnmatchcase(model, pattern) for pattern in self._models)
