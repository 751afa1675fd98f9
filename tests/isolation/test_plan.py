"""The list of what is asked of the routes is made from the app's own table, and leaves none out."""

from typing import Final

from app.api.app import describe_only
from tests.isolation.kinds import Kind, is_known, kind_of
from tests.isolation.plan import list_routes, plan

ROUTES: Final = list_routes(describe_only())
PROBES: Final = plan(ROUTES)


def test_every_name_in_a_request_is_known_to_say_whose_it_is_or_nothing() -> None:
    named = {(route.template, name) for route in ROUTES for name in route.path_names}
    named |= {(route.template, name) for route in ROUTES for _, name in route.parameters}
    assert sorted(name for name in named if not is_known(*name)) == []


def test_every_route_whose_path_names_something_is_asked_for_each_name() -> None:
    asked = {(probe.route.name, probe.name) for probe in PROBES if probe.place == "path"}
    named = [(route, name) for route in ROUTES for name in route.path_names]
    left_out = {kind_of(route.template, name) for route, name in named if (route.name, name) not in asked}
    assert left_out == {Kind.VERSION}


def test_every_list_that_has_cursors_is_asked_with_anothers() -> None:
    lists = {route.name for route in ROUTES if route.takes("query", "cursor")}
    assert lists == {probe.route.name for probe in PROBES if probe.kind is Kind.CURSOR}


def test_every_route_that_takes_idempotency_keys_is_asked_with_anothers() -> None:
    routes = {route.name for route in ROUTES if route.takes("header", "Idempotency-Key")}
    assert routes == {probe.route.name for probe in PROBES if probe.kind is Kind.IDEMPOTENCY_KEY}


def test_no_two_probes_are_the_same() -> None:
    assert len({probe.label for probe in PROBES}) == len(PROBES)
