"""Metrics of two real processes: each tells of itself, and together they tell the truth."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import httpx
import pytest

from tests.acceptance.client import Caller, at_once, call, say
from tests.acceptance.deployments import Deployment
from tests.acceptance.scrapes import Figures, metrics_address, read, scrape
from tests.acceptance.service import Stage, until

OF_DEPLOYMENT = re.compile(
    r"runwright_(runs\{|queue_depth|runs_unclaimable|approvals_pending|webhook_notices_waiting|workers)"
)


def add(figures: Iterable[Figures]) -> Figures:
    total: Counter[str] = Counter()
    for one in figures:
        total.update(one)
    return total


@dataclass(frozen=True)
class Pair:
    """A process that takes and drives runs and one that only drives them, after some runs of each."""

    deployment: Deployment
    caller: Caller
    addresses: tuple[str, str]
    runs: list[dict[str, object]]

    def scrape(self) -> tuple[Figures, Figures]:
        one, other = (read(scrape(address)) for address in self.addresses)
        return one, other

    def ask(self, query: str) -> int:
        return int(self.deployment.ask(query))


@pytest.fixture(scope="module")
def pair(deployment: Deployment, stage: Stage) -> Pair:
    one, other = at_once(lambda role: deployment.start(role=role, slots="1", metrics_port="0"), ("all", "worker"))
    caller = deployment.call(one)
    # Each of the two is held by one of them, since both have a single slot.
    held = [caller.play(call("mark", id=name, gate="go"), say("Done.")) for name in ("x", "y")]
    stage.wait_for_mark(held[0])
    stage.wait_for_mark(held[1])
    stage.open("go")
    others = [caller.play(call("look", id=str(number)), say(f"Answer {number}.")) for number in range(6)]
    failed = [caller.play({"error": {"status": 400, "code": code}}) for code in ("provider_down", "Acme's own")]
    refused = [caller.play(call("look", id="z"), say("Never."), budget={"max_model_calls": 1}) for _ in range(2)]
    pair = Pair(
        deployment=deployment,
        caller=caller,
        addresses=(metrics_address(one), metrics_address(other)),
        runs=caller.ends_of([*held, *others, *failed, *refused]),
    )
    # An end is stored an instant before it is counted, and the process that counts it may not have the CPU then.
    ended = "runwright_run_duration_seconds_count"
    until(lambda: add(pair.scrape())[ended] == len(pair.runs), told=lambda: add(pair.scrape())[ended])
    return pair


@pytest.mark.parametrize(
    ("told", "stored"),
    [
        ("runwright_run_duration_seconds_count", "SELECT count(*) FROM runs"),
        (
            'runwright_runs_ended_total{code=""}{state="completed"}',
            "SELECT count(*) FROM runs WHERE state = 'completed'",
        ),
        (
            'runwright_runs_ended_total{code="provider_down"}{state="failed"}',
            "SELECT count(*) FROM runs WHERE state = 'failed' AND error_code = 'provider_down'",
        ),
        (
            # What is no code is none of the run's either.
            'runwright_runs_ended_total{code="provider_error"}{state="failed"}',
            "SELECT count(*) FROM runs WHERE state = 'failed' AND error_code <> 'provider_down'",
        ),
        (
            'runwright_runs_ended_total{code="budget_exhausted"}{state="budget_exhausted"}',
            "SELECT count(*) FROM runs WHERE state = 'budget_exhausted'",
        ),
        ('runwright_tool_calls_total{outcome="succeeded"}', "SELECT count(*) FROM events WHERE kind = 'tool_result'"),
        (
            'runwright_model_calls_total{outcome="answered"}',
            "SELECT count(*) FROM events WHERE kind = 'model_response'",
        ),
        ('runwright_model_calls_total{outcome="failed"}', "SELECT count(*) FROM events WHERE kind = 'attempt_failed'"),
        (
            'runwright_budget_refusals_total{dimension="max_model_calls"}',
            "SELECT count(*) FROM events WHERE kind = 'budget_refused'",
        ),
        ("runwright_queue_wait_seconds_count", "SELECT count(*) FROM events WHERE kind = 'run_started'"),
        ("runwright_output_tokens_total", "SELECT sum(output_tokens) FROM runs"),
    ],
)
def test_what_the_processes_counted_adds_up_to_what_is_stored(pair: Pair, told: str, stored: str) -> None:
    assert add(pair.scrape())[told] == pair.ask(stored) > 0


def test_each_process_counts_what_it_did_itself(pair: Pair) -> None:
    one, other = pair.scrape()
    assert one["runwright_run_duration_seconds_count"] > 0
    assert other["runwright_run_duration_seconds_count"] > 0


def test_requests_are_counted_where_they_were_answered(pair: Pair) -> None:
    taken = 'runwright_http_requests_total{method="POST"}{route="/runs"}{status="2xx"}'
    one, other = pair.scrape()
    assert (one[taken], other.get(taken)) == (len(pair.runs), None)


def test_the_deployments_figures_are_the_same_from_both(pair: Pair) -> None:
    one, other = ({name: value for name, value in told.items() if OF_DEPLOYMENT.match(name)} for told in pair.scrape())
    assert one == other
    assert one["runwright_workers"] == 2
    assert len(one) == 8


@pytest.mark.parametrize("path", ["/metrics", "/metrics/"])
def test_metrics_with_a_port_of_their_own_are_not_on_the_other(pair: Pair, path: str) -> None:
    assert pair.caller.http.get(path).status_code == 404


@pytest.mark.parametrize("path", ["/livez", "/me", "/runs", "/openapi.json"])
def test_nothing_else_is_on_the_port_of_the_metrics(pair: Pair, path: str) -> None:
    answers = [httpx.get(address.replace("/metrics", path)).status_code for address in pair.addresses]
    assert answers == [404, 404]


def test_no_id_and_no_name_of_anybody_is_in_a_scrape(pair: Pair) -> None:
    told = "".join(scrape(address) for address in pair.addresses)
    ids = [str(run["id"]) for run in pair.runs]
    assert [name for name in [*ids, "player", "Acme", pair.deployment.tenant_id] if name in told] == []


def test_a_process_goes_when_it_is_told_to_whoever_holds_a_connection_for_its_metrics(deployment: Deployment) -> None:
    service = deployment.start(role="api", metrics_port="0", drain_seconds="1")
    with httpx.Client() as client:
        assert client.get(metrics_address(service)).status_code == 200
        assert service.stop(seconds=20) == 0
