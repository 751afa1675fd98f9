"""A caller of the service: plain HTTP, and event streams read frame by frame as they arrive."""

import json
import re
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Self, TypeVar

import httpx

from tests.acceptance.service import PATIENCE_SECONDS, until

AS_STREAM: Final = {"Accept": "text/event-stream"}
TOOLS: Final = ("mark", "mark_again", "look", "sleep_tool", "repeat")
_THREADS: Final = 12

Query = Mapping[str, str] | None
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Frame:
    """One frame of a stream. ``raw`` is its text without the empty line that ends it."""

    raw: str
    id: str | None = None
    event: str | None = None
    data: str | None = None
    comment: str | None = None

    @classmethod
    def parse(cls, raw: str) -> Self:
        fields = {name or "comment": value for name, _, value in (line.partition(": ") for line in raw.split("\n"))}
        return cls(raw, **{name: fields.get(name) for name in ("id", "event", "data", "comment")})

    @property
    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.data or "null"))


class Caller:
    """The service at an address, with one key. ``close`` it."""

    def __init__(self, address: str, key: str) -> None:
        self.address = address
        self.http = httpx.Client(
            base_url=address,
            headers={"Authorization": f"Bearer {key}"},
            timeout=PATIENCE_SECONDS,
            limits=httpx.Limits(max_connections=None),
        )
        self.key = key

    def close(self) -> None:
        self.http.close()

    # --- agents and runs ---

    def put_agent(self, name: str, **definition: Any) -> None:
        response = self.http.put(f"/agents/{name}", json={"instructions": "Do as you are told.", **definition})
        assert response.status_code in (200, 201), response.text

    def submit(self, agent: str, input: str, **body: Any) -> str:
        """A new run's id."""
        response = self.http.post("/runs", json={"agent": agent, "input": input, **body})
        assert response.status_code == 202, response.text
        return str(response.json()["id"])

    def play(self, *steps: dict[str, Any], agent: str = "player", **body: Any) -> str:
        """A run whose model gives these answers, by an agent that has every tool of the plugin."""
        return self.submit(agent, json.dumps(steps), **body)

    def create_session(self, **body: Any) -> dict[str, Any]:
        response = self.http.post("/sessions", json=body)
        assert response.status_code == 201, response.text
        return dict(response.json())

    def session(self, session_id: str) -> dict[str, Any]:
        response = self.http.get(f"/sessions/{session_id}")
        assert response.status_code == 200, response.text
        return dict(response.json())

    def messages(self, session_id: str) -> list[dict[str, Any]]:
        """The history of a session that fits into one page."""
        response = self.http.get(f"/sessions/{session_id}/messages", params={"limit": 200})
        assert response.status_code == 200, response.text
        assert response.json()["next_cursor"] is None
        return list(response.json()["items"])

    def get(self, run_id: str) -> dict[str, Any]:
        response = self.http.get(f"/runs/{run_id}")
        assert response.status_code == 200, response.text
        return dict(response.json())

    def cancel(self, run_id: str, **body: Any) -> httpx.Response:
        return self.http.post(f"/runs/{run_id}/cancel", json=body or None)

    def end_of(self, run_id: str, *, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """The run, once it has ended."""

        def look() -> dict[str, Any] | None:
            response = self.http.get(f"/runs/{run_id}", headers={"Prefer": "wait=5"})
            assert response.status_code in (200, 202), response.text
            return dict(response.json()) if response.status_code == 200 else None

        return until(look, seconds=seconds, told=lambda: self.get(run_id)) or {}

    def ends_of(self, run_ids: Iterable[str]) -> list[dict[str, Any]]:
        return [self.end_of(run_id) for run_id in run_ids]

    def events(self, run_id: str) -> list[dict[str, Any]]:
        """Every stored event."""
        response = self.http.get(f"/runs/{run_id}/events", params={"limit": 200})
        assert response.status_code == 200, response.text
        return list(response.json()["items"])

    def kinds(self, run_id: str) -> list[str]:
        return [event["kind"] for event in self.events(run_id)]

    def event(self, run_id: str, kind: str) -> dict[str, Any]:
        """The one event of its kind."""
        (found,) = (event for event in self.events(run_id) if event["kind"] == kind)
        return found

    def wait_for(self, run_id: str, kind: str, count: int = 1) -> None:
        """Returns when so many events of a kind are stored."""
        until(lambda: self.kinds(run_id).count(kind) >= count, told=lambda: self.kinds(run_id))

    # --- approvals ---

    def approvals(self, **filters: str) -> list[dict[str, Any]]:
        """One page of them, newest first."""
        response = self.http.get("/approvals", params=filters)
        assert response.status_code == 200, response.text
        return list(response.json()["items"])

    def asked(self, run_id: str, *, count: int = 1) -> list[dict[str, Any]]:
        """The open questions of a run, once there are so many, the oldest first."""

        def look() -> list[dict[str, Any]] | None:
            found = self.approvals(run_id=run_id, status="pending")
            return found if len(found) == count else None

        found = until(look, told=lambda: self.approvals(run_id=run_id)) or []
        return found[::-1]

    def decide(self, approval: Mapping[str, Any], decision: str, **more: Any) -> httpx.Response:
        body = {"decision": decision, "arguments_digest": approval["arguments_digest"], **more}
        return self.http.post(f"/approvals/{approval['id']}/decision", json=body)

    # --- streams ---

    @contextmanager
    def stream(self, run_id: str, after: str | None = None, query: Query = None) -> Iterator[Iterator[Frame]]:
        """The run's frames as they come, but for the one that only says ``retry``. Leaving the block hangs up."""
        headers = AS_STREAM if after is None else {**AS_STREAM, "Last-Event-ID": after}
        with self.http.stream("GET", f"/runs/{run_id}/events", headers=headers, params=query) as response:
            assert response.status_code == 200, response.read()
            yield _frames(response)

    def read(
        self,
        run_id: str,
        after: str | None = None,
        *,
        stop: Callable[[Frame], bool] | None = None,
        query: Query = None,
    ) -> list[Frame]:
        """The frames up to the first at which to ``stop``, or to the stream's own end."""
        with self.stream(run_id, after, query) as frames:
            return take(frames, stop)

    def read_in_pieces(self, run_id: str, sizes: Iterable[int], query: Query = None) -> list[Frame]:
        """The stored frames, with a connection for each so many of them, and one more for the rest."""
        seen: list[Frame] = []
        for size in sizes:
            with self.stream(run_id, seen[-1].id if seen else None, query) as frames:
                seen += islice(stored(frames), size)
        return seen + list(stored(self.read(run_id, seen[-1].id, query=query)))

    # --- the process ---

    def metric(self, name: str) -> float:
        """The sum over a metric's series; its labels may be part of the name."""
        text = self.http.get("/metrics").text
        values = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        assert values, f"no {name} in {text}"
        return sum(map(float, values))

    def readiness(self) -> tuple[int, dict[str, str]]:
        """The status and the code of each check."""
        response = self.http.get("/readyz")
        return response.status_code, dict(response.json()["checks"])

    def hang_up_at_once(self, path: str, times: int) -> None:
        """Asks for a stream and cuts the connection with a TCP reset, without waiting for a byte."""
        url = httpx.URL(self.address)
        head = (
            f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.key}\r\nAccept: text/event-stream\r\n\r\n"
        )
        for _ in range(times):
            with socket.create_connection((url.host, url.port or 80)) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.sendall(head.encode())


def take(frames: Iterator[Frame], stop: Callable[[Frame], bool] | None = None) -> list[Frame]:
    seen: list[Frame] = []
    for frame in frames:
        seen.append(frame)
        if stop is not None and stop(frame):
            break
    return seen


def stored(frames: Iterable[Frame]) -> Iterator[Frame]:
    """Those that are events of the log: only they have an id."""
    return (frame for frame in frames if frame.id is not None)


def is_text(frame: Frame) -> bool:
    """Whether it is text as it is generated; a reader that joins late gets what there is as a snapshot."""
    return frame.event in ("answer_delta", "answer_snapshot")


def text_of(frames: Iterable[Frame]) -> str:
    """A reader's view of an answer: a snapshot is the text so far, a delta goes where it says."""
    text = ""
    for frame in filter(is_text, frames):
        text = text[: frame.json.get("offset", 0)] + frame.json["text"]
    return text


def at_once(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The work on each of the items, several at a time, in their order."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(work, items))


def say(text: str, **more: Any) -> dict[str, Any]:
    """A step that answers with a text."""
    return {"text": text, **more}


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    """A step that calls one tool."""
    return {"calls": [{"name": tool, "arguments": arguments}]}


def numbers(frames: Sequence[Frame]) -> list[int]:
    return [int(frame.id or 0) for frame in stored(frames)]


def _frames(response: httpx.Response) -> Iterator[Frame]:
    waiting = ""
    for chunk in response.iter_text():
        *whole, waiting = (waiting + chunk).split("\n\n")
        yield from (Frame.parse(raw) for raw in whole if not raw.startswith("retry:"))
    assert not waiting, f"a frame was cut off: {waiting}"
