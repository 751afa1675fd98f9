"""The query behind a list of runs: for each filter the way along an index that has the rows in the list's order."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.ids import RunId, TenantId
from app.ports.records import RunFilter
from app.store.rows import to_instant
from app.store.types import escape_text

_ORDER: Final = "ORDER BY r.created_at DESC, r.run_id DESC LIMIT $2"
# Conditions on the instant and the id are on the pairs' own, where the list is read along a pair of metadata.
_FROM_RUNS: Final = "runs r"
_FROM_PAIRS: Final = "run_metadata p JOIN runs r ON r.tenant_id = p.tenant_id AND r.run_id = p.run_id"
_ORDER_OF_PAIRS: Final = "ORDER BY p.created_at DESC, p.run_id DESC LIMIT $2"
# Looked up for each run: OFFSET keeps the planner, who knows no values, from reading along this pair instead.
_HAS_PAIR: Final = (
    "EXISTS (SELECT FROM run_metadata m WHERE m.tenant_id = $1 AND m.key = {} AND m.value = {}"
    " AND m.run_id = p.run_id OFFSET 0)"
)

# How many runs have each of these pairs, as far as it matters.
COUNT_PAIRS: Final = """
    SELECT (SELECT count(*) FROM (SELECT FROM run_metadata m
        WHERE m.tenant_id = $1 AND m.key = w.key AND m.value = w.value LIMIT 1000) AS first_ones) AS count
    FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS w (key, value, place) ORDER BY w.place
"""


def rarest_first(metadata: Mapping[str, str], counts: Sequence[int]) -> Mapping[str, str]:
    """A list is read along the first of its pairs: the one that the fewest runs have, as ``COUNT_PAIRS`` tells."""
    ranked = sorted(zip(counts, metadata.items(), strict=True), key=lambda counted: counted[0])
    return dict(pair for _, pair in ranked)


class _Query:
    """Conditions and the arguments for their places. Only places are put in, never a value."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments: list[Any] = list(arguments)
        self.conditions: list[str] = []

    def add(self, condition: str, *values: Any) -> None:
        first = len(self.arguments) + 1
        self.conditions.append(condition.format(*(f"${first + n}" for n in range(len(values)))))
        self.arguments.extend(values)


def run_list(
    tenant_id: TenantId, where: RunFilter, *, limit: int, before: tuple[float, RunId] | None
) -> tuple[str, list[Any]]:
    """The statement for those conditions that were set, and its arguments in the order of their places."""
    query = _Query(tenant_id, limit)
    pairs = [(escape_text(key), escape_text(value)) for key, value in where.metadata.items()]
    place, source, order = ("p", _FROM_PAIRS, _ORDER_OF_PAIRS) if pairs else ("r", _FROM_RUNS, _ORDER)
    query.add(f"{place}.tenant_id = $1")
    if pairs:
        query.add("p.key = {} AND p.value = {}", *pairs[0])
    for pair in pairs[1:]:
        query.add(_HAS_PAIR, *pair)
    _add_filters(query, where, place)
    if before is not None:
        query.add(f"({place}.created_at, {place}.run_id) < ({{}}, {{}})", to_instant(before[0]), before[1])
    # A state is one of ours, and written out.
    states = [f" AND r.state = '{state.value}'" for state in where.states] or [""]
    matching = f"SELECT r.* FROM {source} WHERE {' AND '.join(query.conditions)}"  # noqa: S608 - places only
    branches = [f"{matching}{state} {order}" for state in states]
    if len(branches) == 1:
        return branches[0], query.arguments
    # Each state's newest ones, and of them the newest.
    united = " UNION ALL ".join(f"({branch})" for branch in branches)
    return f"SELECT r.* FROM ({united}) AS r {_ORDER}", query.arguments  # noqa: S608 - places only


def _add_filters(query: _Query, where: RunFilter, place: str) -> None:
    if where.agent is not None:
        query.add("r.agent = {}", where.agent)
    if where.user is not None:
        query.add("r.caller = {}", escape_text(where.user))
    if where.session_id is not None:
        query.add("r.session_id = {}", where.session_id)
    if where.parent_run_id is not None:
        query.add("r.parent_run_id = {}", where.parent_run_id)
    if where.created_after is not None:
        query.add(f"{place}.created_at > {{}}", to_instant(where.created_after))
    if where.created_before is not None:
        query.add(f"{place}.created_at < {{}}", to_instant(where.created_before))
