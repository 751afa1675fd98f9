"""What a tenant was granted is asked about again when a run is driven: it may have been taken back meanwhile."""

from app.errors import ConfigurationError
from app.execution.perform.context import DriveContext


def check_grants(context: DriveContext) -> None:
    """Raises ConfigurationError (``not_granted``) where an agent of the run names a tool or a model that its tenant may
    not use (any more)."""
    terms, models = context.terms, context.runtime.models
    for name, role in context.cast.roles.items():
        missing = [] if terms.tools is None else sorted(set(role.member.agent.tools) - terms.tools)
        if missing:
            raise ConfigurationError(f"{name} may not use {', '.join(missing)} in this tenant", code="not_granted")
        if terms.models is None:
            continue
        for model in context.runtime.route(role.agent) or (role.agent.model,):
            provider, own = models.resolve(model)
            if f"{provider.name}:{own}" not in terms.models:
                raise ConfigurationError(f"the model of {name} is not this tenant's to use", code="not_granted")
