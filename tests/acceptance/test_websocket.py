"""A run over a WebSocket, as a page reads it: with a ticket, through cuts, from any process, until the server goes."""

import json
import random
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlencode

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from tests.acceptance.client import Caller, call, say
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import PATIENCE_SECONDS, Service, Stage, until

PAGE = "https://dashboard.example"
STEPS = [{**call("look", id=str(number)), "delay_seconds": 0.05} for number in range(8)]


@pytest.fixture(scope="module")
def services(deployment: Deployment) -> list[Service]:
    return [deployment.start(allowed_origins=PAGE), deployment.start(allowed_origins=PAGE)]


@pytest.fixture(scope="module")
def callers(deployment: Deployment, services: Sequence[Service]) -> list[Caller]:
    return [deployment.call(service) for service in services]


def get_ticket(caller: Caller, run_id: str) -> str:
    response = caller.http.post("/stream-tickets", json={"resource": f"/runs/{run_id}/ws"})
    assert response.status_code == 201, response.text
    return str(response.json()["ticket"])


@contextmanager
def opened(service: Service, run_id: str, **query: str) -> Iterator[ClientConnection]:
    address, text = service.address.replace("http", "ws", 1), urlencode(query)
    origin = Origin(PAGE)
    with connect(f"{address}/runs/{run_id}/ws?{text}", origin=origin, compression=None) as connection:
        yield connection


def cut(connection: ClientConnection) -> None:
    """As a network does, without a farewell."""
    with suppress(OSError):
        connection.socket.shutdown(socket.SHUT_RDWR)


def messages(connection: ClientConnection, *, seconds: float = PATIENCE_SECONDS) -> Iterator[dict[str, Any]]:
    """As they come, until the connection ends or the time is over."""
    give_up_at = time.monotonic() + seconds
    try:
        while True:
            yield json.loads(connection.recv(timeout=max(0.0, give_up_at - time.monotonic())))
    except (ConnectionClosed, TimeoutError):
        return


def stored(seen: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    return [message for message in seen if "id" in message]


def read(service: Service, run_id: str, **query: str) -> tuple[list[dict[str, Any]], int | None]:
    """The stored events up to the end, and the code with which the server closes."""
    with opened(service, run_id, **query) as connection:
        return stored(messages(connection)), connection.close_code


def read_through_cuts(
    services: Sequence[Service], run_id: str, ticket: str, *, cuts: int, seed: int
) -> list[dict[str, Any]]:
    """The same, with as many connections that end at a random moment first, at one process after the other."""
    chance = random.Random(seed)
    seen: list[dict[str, Any]] = []
    for number in range(cuts):
        query = {"after": seen[-1]["id"]} if seen else {}
        with opened(services[number % len(services)], run_id, ticket=ticket, **query) as connection:
            seen += stored(messages(connection, seconds=chance.uniform(0, 0.1)))
            cut(connection)
    return seen + read(services[0], run_id, ticket=ticket, **({"after": seen[-1]["id"]} if seen else {}))[0]


def as_messages(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"id": str(event["seq"]), "event": event["kind"], "data": event} for event in events]


@pytest.mark.parametrize("seed", [1, 2])
def test_twenty_cuts_at_random_give_what_one_reader_gets(
    callers: Sequence[Caller], services: Sequence[Service], seed: int
) -> None:
    run_id = callers[0].play(*STEPS, say("Done.", delta_chars=1, delta_seconds=0.02))
    ticket = get_ticket(callers[1], run_id)

    pieces = read_through_cuts(services, run_id, ticket, cuts=20, seed=seed)

    assert pieces == as_messages(callers[0].events(run_id))
    assert [message["event"] for message in pieces].count("terminated") == 1
    assert read(services[1], run_id, ticket=ticket) == (pieces, 1000)
    assert read(services[1], run_id, ticket=ticket, after=pieces[-1]["id"]) == ([], 1000)


def test_no_ticket_stands_in_any_line_of_the_log(callers: Sequence[Caller], services: Sequence[Service]) -> None:
    run_id = callers[0].play(say("Done."))
    ticket = get_ticket(callers[0], run_id)
    read(services[0], run_id, ticket=ticket)
    with pytest.raises(InvalidStatus), opened(services[0], run_id, ticket=f"{ticket}x"):
        pass
    lines = services[0].err + services[0].out
    assert [line for line in lines if "tkt_" in line or "ticket=" in line] == []


def test_a_server_that_is_told_to_stop_says_farewell_and_the_reader_goes_on_elsewhere(
    deployment: Deployment, callers: Sequence[Caller], services: Sequence[Service], stage: Stage
) -> None:
    leaving = deployment.start(allowed_origins=PAGE, role="api")
    run_id = callers[0].play(say("Done.", gate="farewell"))
    callers[0].wait_for(run_id, "model_call")
    ticket = get_ticket(callers[0], run_id)
    with opened(leaving, run_id, ticket=ticket) as connection:
        seen = [json.loads(connection.recv(timeout=PATIENCE_SECONDS))]
        leaving.terminate()
        seen += stored(messages(connection))
        assert (connection.close_code, connection.close_reason) == (1001, "server going away, reconnect")
    assert leaving.wait() == 0
    stage.open("farewell")
    rest, code = read(services[0], run_id, ticket=ticket, after=seen[-1]["id"])
    assert (seen + rest, code) == (as_messages(callers[0].events(run_id)), 1000)


def test_open_sockets_are_counted(callers: Sequence[Caller], services: Sequence[Service], stage: Stage) -> None:
    run_id = callers[0].play(say("Done.", gate="counted"))
    ticket = get_ticket(callers[0], run_id)
    with opened(services[0], run_id, ticket=ticket):
        until(lambda: callers[0].metric("runwright_open_streams") == 1)
    until(lambda: callers[0].metric("runwright_open_streams") == 0)
    stage.open("counted")
    callers[0].end_of(run_id)
