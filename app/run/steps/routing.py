"""Which model stands in for one that failed."""

from app.run.spec import RunSpec
from app.run.state import State


def stand_in_for(spec: RunSpec, state: State) -> str | None:
    """The next model of the route. None at its end, and once a call went out whose effect can't be repeated: another
    model would go on from another reading of it."""
    # A model that is named twice has failed the first time.
    route = tuple(dict.fromkeys(spec.route))
    if state.routed_to not in route or state.landed:
        return None
    following = route[route.index(state.routed_to) + 1 :]
    return following[0] if following else None
