"""What durability promises of the settings of a deployment, seen from outside."""

from datetime import datetime

from tests.acceptance.client import call, say
from tests.acceptance.deployments import Deployment


def test_a_question_stands_for_as_long_as_the_deployment_says_where_its_agent_says_nothing(
    fresh: Deployment,
) -> None:
    service = fresh.start(approval_ttl_seconds="120")
    caller, approver = fresh.call(service), fresh.approve(service)
    caller.put_agent("payer", tools=["mark"], approval_required_tools=["mark"])
    caller.put_agent("patient", tools=["mark"], approval_required_tools=["mark"], approval_ttl_seconds=600)
    asked = [
        approver.asked(caller.play(call("mark", id="x"), say("Done."), agent=agent))[0]
        for agent in ("payer", "patient")
    ]
    stands = [seconds_between(approval["requested_at"], approval["expires_at"]) for approval in asked]
    assert [round(seconds) for seconds in stands] == [120, 600]


def seconds_between(first: str, last: str) -> float:
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
