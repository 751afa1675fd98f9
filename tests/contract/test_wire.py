"""What the contract says of HTTP itself, as the real server speaks it."""

import httpx
import pytest

from tests.acceptance.client import Caller, say
from tests.acceptance.deployments import Deployment


@pytest.fixture(scope="module")
def caller(deployment: Deployment) -> Caller:
    return deployment.call(deployment.start())


@pytest.fixture(scope="module")
def run_id(caller: Caller) -> str:
    run_id = caller.play(say("Done."))
    caller.end_of(run_id)
    return run_id


def code_of(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/problem+json"
    return response.status_code, str(response.json()["code"])


@pytest.mark.parametrize("path", ["/runs", "/runs/{run}", "/runs/{run}/events", "/me", "/livez", "/docs", "/metrics"])
def test_head_is_get_without_the_content(caller: Caller, run_id: str, path: str) -> None:
    get, head = (caller.http.request(method, path.format(run=run_id)) for method in ("GET", "HEAD"))
    assert (head.status_code, head.content, head.headers["content-type"]) == (200, b"", get.headers["content-type"])


def test_head_of_what_is_not_there_says_so(caller: Caller) -> None:
    head = caller.http.head("/runs/run_0123456789abcdefghjkmnpqrs")
    assert (head.status_code, head.content) == (404, b"")


@pytest.mark.parametrize("accepted", ["*/*", "application/*", "text/html", "application/xml", "", "text/*"])
def test_json_is_answered_where_no_stream_is_named(caller: Caller, run_id: str, accepted: str) -> None:
    response = caller.http.get(f"/runs/{run_id}/events", headers={"Accept": accepted})
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")


@pytest.mark.parametrize(
    ("accepted", "media_type"),
    [
        ("text/event-stream", "text/event-stream"),
        ("text/event-stream, */*;q=0.1", "text/event-stream"),
        ("application/json, text/event-stream;q=0.5", "application/json"),
    ],
)
def test_a_stream_is_answered_where_it_is_named_and_liked_best(
    caller: Caller, run_id: str, accepted: str, media_type: str
) -> None:
    response = caller.http.get(f"/runs/{run_id}/events", headers={"Accept": accepted})
    assert response.headers["content-type"].partition(";")[0] == media_type


@pytest.mark.parametrize(
    "media_type",
    ["application/json", "application/json; charset=utf-8", "Application/JSON", 'application/json;charset="UTF-8"'],
)
def test_json_in_utf_8_is_read_however_it_is_called(caller: Caller, media_type: str) -> None:
    body = '{"agent": "player", "input": "[]", "metadata": {"k": "é"}}'.encode()
    response = caller.http.post("/runs", content=body, headers={"Content-Type": media_type})
    assert (response.status_code, response.json()["metadata"]) == (202, {"k": "é"})


@pytest.mark.parametrize(
    "media_type", ["application/json; charset=latin-1", "text/plain", "application/x-www-form-urlencoded", "json"]
)
def test_anything_else_is_no_body(caller: Caller, media_type: str) -> None:
    response = caller.http.post("/runs", content=b"{}", headers={"Content-Type": media_type})
    assert code_of(response) == (415, "unsupported_media_type")


def test_a_body_in_pieces_is_a_body(caller: Caller) -> None:
    pieces = (piece for piece in (b'{"agent": "pla', b'yer", "input":', b' "[]"}'))
    response = caller.http.post("/runs", content=pieces, headers={"Content-Type": "application/json"})
    assert response.status_code == 202


def test_one_connection_serves_one_request_after_the_other(caller: Caller) -> None:
    streams = [caller.http.get("/me").extensions["network_stream"] for _ in range(3)]
    ports = {stream.get_extra_info("client_addr") for stream in streams}
    assert len(ports) == 1


def test_a_run_that_is_submitted_as_a_stream_says_where_it_is(caller: Caller) -> None:
    body = {"agent": "player", "input": '[{"text": "Done."}]'}
    with caller.http.stream("POST", "/runs", json=body, headers={"Accept": "text/event-stream"}) as response:
        text = "".join(response.iter_text())
    location = response.headers["location"]
    assert (response.status_code, response.headers["content-location"]) == (200, f"{location}/events")
    assert caller.http.get(location).json()["state"] == "completed"
    assert text.count("event: terminated") == 1


def test_a_stream_has_the_headers_that_keep_it_a_stream(caller: Caller, run_id: str) -> None:
    response = caller.http.get(f"/runs/{run_id}/events", headers={"Accept": "text/event-stream"})
    named = ("content-type", "cache-control", "x-accel-buffering")
    assert [response.headers[name] for name in named] == ["text/event-stream; charset=utf-8", "no-store", "no"]
    assert response.text.startswith("retry: 3000\n")
    assert response.text.count("retry:") == 1


def test_reading_on_behind_the_end_is_told_to_stay_away(caller: Caller, run_id: str) -> None:
    last = caller.get(run_id)["last_seq"]
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(last)}
    response = caller.http.get(f"/runs/{run_id}/events", headers=headers)
    assert (response.status_code, response.content) == (204, b"")


@pytest.mark.parametrize("place", ["99", "-1", "x", "1.5"])
def test_a_place_that_never_was_is_refused(caller: Caller, run_id: str, place: str) -> None:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": place}
    assert code_of(caller.http.get(f"/runs/{run_id}/events", headers=headers)) == (400, "unknown_event_id")


def test_every_answer_tells_its_time_and_no_server(caller: Caller) -> None:
    headers = caller.http.get("/livez").headers
    assert ("date" in headers, "server" in headers) == (True, False)
