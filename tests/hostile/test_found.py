"""What attacks have found, each by itself."""

import pytest

from tests.hostile.targets import Target


def test_an_agent_below_another_may_be_granted_nothing_in_particular(target: Target) -> None:
    body = {"instructions": "Lead.", "tools": ["look"], "sub_agents": [{"agent": "player", "tools": None}]}
    answer = target.send("PUT", "/agents/leader", key=target.keys.service, json=body)
    assert answer.status == 201, answer.told


@pytest.mark.parametrize("after", ["", "x", "-1", "%00"])
def test_a_place_in_a_stream_that_is_none_is_refused_also_where_a_header_names_one(target: Target, after: str) -> None:
    path = f"/runs/{target.ids['run_id']}/events?after={after}"
    answer = target.send("GET", path, key=target.keys.service, headers={"Last-Event-ID": "0"})
    assert (answer.status, answer.code) == (400, "unknown_event_id"), answer.told
