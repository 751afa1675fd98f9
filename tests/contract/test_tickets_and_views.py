"""What pages in a browser live on, over two real processes: tickets in place of keys, one stream of all runs, and a run
over a WebSocket."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.acceptance.client import Caller, Frame, say
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import Service, Stage


@pytest.fixture(scope="module")
def api(deployment: Deployment) -> Service:
    """A process that answers; another one drives the runs."""
    deployment.start(role="worker")
    return deployment.start(role="api")


@pytest.fixture(scope="module")
def caller(deployment: Deployment, api: Service) -> Caller:
    return deployment.call(api)


def ticket_for(caller: Caller, resource: str) -> str:
    response = caller.http.post("/stream-tickets", json={"resource": resource})
    assert response.status_code == 201, response.text
    return str(response.json()["ticket"])


@contextmanager
def opened(caller: Caller, path: str, **query: str) -> Iterator[Iterator[Frame]]:
    """A stream as a page opens it: with nothing but its address."""
    with (
        httpx.Client(base_url=caller.address, timeout=30) as page,
        page.stream("GET", path, params=query, headers={"Accept": "text/event-stream"}) as response,
    ):
        assert response.status_code == 200, response.read()
        yield _frames(response)


def _frames(response: httpx.Response) -> Iterator[Frame]:
    waiting = ""
    for chunk in response.iter_text():
        *whole, waiting = (waiting + chunk).split("\n\n")
        yield from filter(lambda frame: frame.event is not None, map(Frame.parse, whole))


def up_to(frames: Iterator[Frame], number: int, is_wanted: Callable[[Frame], bool]) -> list[Frame]:
    """All frames up to so many that are wanted."""
    seen: list[Frame] = []
    while sum(map(is_wanted, seen)) < number:
        seen.append(next(frames))
    return seen


def is_end(frame: Frame) -> bool:
    return frame.event == "terminated"


def place_of(frame: Frame) -> tuple[str, int]:
    return frame.json["run_id"], frame.json["seq"]


def test_one_stream_tells_of_every_run_once_and_goes_on_where_it_was_left(caller: Caller) -> None:
    ticket = ticket_for(caller, "/events")
    with opened(caller, "/events", ticket=ticket) as frames:
        runs = [caller.play(say(f"{number}.")) for number in range(3)]
        whole = up_to(frames, 3, is_end)
    middle = len(whole) // 2
    with opened(caller, "/events", ticket=ticket, after=str(whole[middle].id)) as frames:
        rest = up_to(frames, sum(map(is_end, whole[middle + 1 :])), is_end)
    logs = [(run_id, event["seq"]) for run_id in runs for event in caller.events(run_id)]
    assert sorted(map(place_of, whole)) == sorted(logs)
    assert [frame.raw for frame in rest] == [frame.raw for frame in whole[middle + 1 :]]


def test_only_what_is_asked_for_is_told(caller: Caller) -> None:
    caller.put_agent("other")
    ticket = ticket_for(caller, "/events")
    with opened(caller, "/events", ticket=ticket, agent="other", kind="terminated") as frames:
        caller.end_of(caller.play(say("Not me.")))
        wanted = caller.submit("other", json.dumps([say("Me.")]))
        found = up_to(frames, 1, is_end)
    assert [(frame.event, frame.json["run_id"]) for frame in found] == [("terminated", wanted)]


def test_a_ticket_opens_its_stream_and_nothing_else(caller: Caller) -> None:
    run_id = caller.play(say("Done."))
    caller.end_of(run_id)
    ticket = ticket_for(caller, f"/runs/{run_id}/events")
    with opened(caller, f"/runs/{run_id}/events", ticket=ticket) as frames:
        assert list(frames)[-1].event == "terminated"
    others = [f"/runs/{run_id}", "/events", "/approvals/events", f"/runs/{run_id}/messages", "/me"]
    headers = {"Accept": "text/event-stream"}
    answers = [httpx.get(f"{caller.address}{path}", params={"ticket": ticket}, headers=headers) for path in others]
    assert {answer.status_code for answer in answers} == {401}


def test_a_ticket_is_in_no_line_of_the_log(caller: Caller, api: Service) -> None:
    ticket = ticket_for(caller, "/events")
    with opened(caller, "/events", ticket=ticket) as frames:
        caller.play(say("Done."))
        up_to(frames, 1, is_end)
    assert [line for line in [*api.out, *api.err] if ticket in line] == []


@pytest.mark.parametrize("asked", ["/runs", "/runs/run_0123456789abcdefghjkmnpqrs", "/nothing", "events", ""])
def test_what_is_no_stream_gets_no_ticket(caller: Caller, asked: str) -> None:
    response = caller.http.post("/stream-tickets", json={"resource": asked})
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/resource")


def test_a_websocket_has_the_events_of_the_stream_while_the_run_goes_on(caller: Caller, stage: Stage) -> None:
    run_id = caller.play(say("Done.", gate="socket"))
    address = f"{caller.address.replace('http', 'ws', 1)}/runs/{run_id}/ws"
    with connect(f"{address}?ticket={ticket_for(caller, f'/runs/{run_id}/ws')}") as socket:
        messages = map(json.loads, socket)
        before = list(takewhile(lambda message: message["event"] != "model_call", messages))
        stage.open("socket")
        after = list(messages)
    stored: list[dict[str, Any]] = [message["data"] for message in [*before, *after] if "id" in message]
    called = [event for event in caller.events(run_id) if event["kind"] == "model_call"]
    assert sorted([*stored, *called], key=lambda event: event["seq"]) == caller.events(run_id)
    assert (after[-1]["event"], socket.close_code) == ("terminated", 1000)
