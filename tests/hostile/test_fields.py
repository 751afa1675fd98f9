"""Bodies that are right but for one part: whatever stands there, nothing breaks."""

import pytest

from tests.hostile.corpus import VALUES
from tests.hostile.targets import WITH_BODY, Operation, Target, deep_mutations, unsound

each_route = pytest.mark.parametrize("operation", WITH_BODY, ids=lambda operation: operation.name)


@each_route
def test_every_field_may_hold_anything(target: Target, operation: Operation) -> None:
    example = operation.example or {}
    requests = [{"json": {**example, name: value}} for name in operation.fields for value in VALUES.values()]
    assert unsound(target.ask_each(operation, requests)) == []


@each_route
def test_every_part_of_a_field_may_be_anything(target: Target, operation: Operation) -> None:
    requests = [{"json": body} for value in VALUES.values() for body in deep_mutations(operation.example or {}, value)]
    assert unsound(target.ask_each(operation, requests)) == []
