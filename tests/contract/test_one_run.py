"""However often a submission is sent under one Idempotency-Key, to whichever process, it is one run; also where the
process dies between the commit and the answer."""

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import cycle, islice
from typing import Any

import httpx
import pytest

from tests.acceptance.client import Caller, at_once, say
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import Service, Stage, until

TIMES = 20


def submission(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"agent": "player", "input": json.dumps(steps), **more}


def post(caller: Caller, body: dict[str, Any], key: str, path: str = "/runs", **headers: str) -> httpx.Response:
    return caller.http.post(path, json=body, headers={"Idempotency-Key": key, **headers})


def post_at_once(callers: list[Caller], body: dict[str, Any], key: str, **more: str) -> list[httpx.Response]:
    """So many times, to each of the processes in turn, all at the same moment."""
    barrier = threading.Barrier(TIMES)

    def send(caller: Caller) -> httpx.Response:
        barrier.wait()
        return post(caller, body, key, **more)

    with ThreadPoolExecutor(TIMES) as pool:
        return list(pool.map(send, islice(cycle(callers), TIMES)))


@pytest.fixture(scope="module")
def callers(deployment: Deployment) -> list[Caller]:
    """One at each of two processes on one database."""
    services = at_once(lambda _: deployment.start(), range(2))
    return [deployment.call(service) for service in services]


@pytest.mark.parametrize("preferred", [{}, {"Prefer": "wait=30"}], ids=["at once", "waits"])
def test_twenty_equal_requests_at_two_processes_are_one_run(
    deployment: Deployment, callers: list[Caller], preferred: dict[str, str]
) -> None:
    before = deployment.ask("SELECT count(*) FROM runs")
    key = f"twenty {preferred}".replace(" ", "-")
    answers = post_at_once(callers, submission(say("Done.")), key, **preferred)
    assert {answer.status_code for answer in answers} == {200 if preferred else 202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert Counter(answer.headers.get("idempotency-replayed") for answer in answers) == {None: 1, "true": TIMES - 1}
    assert deployment.ask("SELECT count(*) FROM runs") == before + 1


def test_of_twenty_with_two_bodies_one_body_is_taken_and_the_other_refused(callers: list[Caller]) -> None:
    bodies = [submission(say(text)) for text in ("One.", "Two.")]
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(post_at_once, callers, body, "two-bodies") for body in bodies]
        one, two = (found.result() for found in both)
    told = {tuple(sorted({answer.status_code for answer in answers})) for answers in (one, two)}
    assert told == {(202,), (422,)}
    refused = [answer.json()["code"] for answer in (*one, *two) if answer.status_code == 422]
    assert set(refused) == {"idempotency_key_reused"}


@pytest.mark.parametrize("path", ["/sessions", "/webhooks"])
def test_twenty_equal_requests_for_another_thing_make_one(callers: list[Caller], path: str) -> None:
    body = (
        {"title": "Kyoto"} if path == "/sessions" else {"url": "https://93.184.216.34/", "events": ["run.terminated"]}
    )
    answers = post_at_once(callers, body, "one-of-each", path=path)
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1


def test_a_run_that_was_committed_before_its_process_died_is_the_answer_to_the_next_request(
    fresh: Deployment, stage: Stage
) -> None:
    service = fresh.start(lease_seconds="2")
    body, key = submission(say("Done.", gate="after-the-crash")), "crash-after-the-commit"
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(_post_in_vain, fresh.call(service), body, key)
        until(lambda: fresh.ask("SELECT count(*) FROM runs") == 1)
        service.kill()
        assert lost.result() is None

    again = fresh.call(fresh.start(lease_seconds="2"))
    stage.open("after-the-crash")
    answer = post(again, body, key, Prefer="wait=60")

    assert (answer.status_code, answer.headers["idempotency-replayed"]) == (200, "true")
    assert (answer.json()["state"], fresh.ask("SELECT count(*) FROM runs")) == ("completed", 1)


def test_a_process_that_dies_at_any_moment_of_a_submission_leaves_one_run_or_none(fresh: Deployment) -> None:
    services = iter([fresh.start() for _ in range(3)])
    body = submission(say("Done."))
    keys = [f"any-moment-{number}" for number in range(40)]
    for_each = [_submit_until_killed(fresh, next(services), keys, body) for _ in range(2)]
    last = fresh.call(next(services))
    ids = [post(last, body, key).json()["id"] for key in keys]
    told = {key: id for answered in for_each for key, id in answered.items()}
    assert {key: id for key, id in zip(keys, ids, strict=True) if key in told} == told
    assert fresh.ask("SELECT count(*) FROM runs") == len(keys) == len(set(ids))


def _post_in_vain(caller: Caller, body: dict[str, Any], key: str) -> httpx.Response | None:
    """None where no answer came."""
    with suppress(httpx.TransportError):
        return post(caller, body, key, Prefer="wait=60")
    return None


def _submit_until_killed(
    deployment: Deployment, service: Service, keys: list[str], body: dict[str, Any]
) -> dict[str, str]:
    """Sends one after the other and kills the process while they come in. The runs that it told of, by key."""
    told: dict[str, str] = {}
    caller = deployment.call(service)

    def send() -> None:
        with suppress(httpx.TransportError):
            told.update((key, str(post(caller, body, key).json()["id"])) for key in keys)

    sending = threading.Thread(target=send)
    sending.start()
    until(lambda: len(told) > 5)
    service.kill()
    sending.join()
    return told
