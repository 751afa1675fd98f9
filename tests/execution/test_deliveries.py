"""Notices are carried from the real outbox to real servers."""

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from app.errors import StoreUnavailable
from app.execution.deliveries import DeliveryOutcome, DeliveryParts, DeliveryRules, deliver
from app.execution.system import SystemClock
from app.ids import TenantId
from app.ports.webhooks import DeliveryStatus, DueDelivery, Webhook
from app.service.signing import WebhookSigner
from app.store.database import Database
from app.store.webhooks import PostgresOutbox
from app.tools.outgoing import OutgoingClient
from tests.api.harness import eventually
from tests.conftest import DatabaseUrls
from tests.store.outbox import add_webhook, deliveries_of, end_run, let_time_pass, read_webhook, send_test, send_tests
from tests.store.support import new_run, query
from tests.tools.receivers import Receiver, receive, say, say_nothing

SIGNER = WebhookSigner(b"a secret of the tests, 32 bytes..")
LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
QUICK = DeliveryRules(
    poll_seconds=0.02, gather_seconds=0.001, timeout_seconds=2.0, hold_seconds=30.0, grace_seconds=0.0
)
FAILING = say(b"HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n")


@dataclass
class Told:
    """What a process hears of its deliveries."""

    outcomes: list[DeliveryOutcome] = field(default_factory=list)
    away: list[str] = field(default_factory=list)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def parts(empty_database: Database, told: Told) -> DeliveryParts:
    return DeliveryParts(
        outbox=PostgresOutbox(empty_database),
        carrier=OutgoingClient(LOOPBACK),
        sign=SIGNER.sign,
        clock=SystemClock(),
        draw=lambda: 0.5,
        rules=QUICK,
        told=told.outcomes.append,
        store_away=told.away.append,
    )


@contextlib.asynccontextmanager
async def carrying(parts: DeliveryParts) -> AsyncIterator[None]:
    """The job, as the supervisor runs it."""
    job = asyncio.create_task(deliver(parts))
    try:
        yield
    finally:
        job.cancel()
        await asyncio.wait({job})
    assert job.cancelled()


async def carry_until(parts: DeliveryParts, holds: Callable[[], bool]) -> None:
    async with carrying(parts):
        await eventually(holds)


async def webhook_to(database: Database, receiver: Receiver, tenant_id: TenantId) -> Webhook:
    return await add_webhook(database, tenant_id, url=receiver.url("127.0.0.1"))


async def test_a_notice_arrives_with_a_signature_that_a_stranger_accepts(
    empty_database: Database, tenant_id: TenantId, parts: DeliveryParts, told: Told
) -> None:
    async with receive() as receiver:
        webhook = await webhook_to(empty_database, receiver, tenant_id)
        run_id = await end_run(empty_database, new_run(tenant_id, user="Ada 🙂 é"))
        await carry_until(parts, lambda: bool(told.outcomes))
    headers = {name: receiver.header(name) for name in ("webhook-id", "webhook-timestamp", "webhook-signature")}
    verifier = Verifier(SIGNER.reveal_secret(tenant_id, webhook.webhook_id))
    said = verifier.verify(receiver.bodies[0], headers)
    assert (said["type"], said["data"]["run_id"], said["data"]["user"]) == ("run.terminated", run_id, "Ada 🙂 é")
    assert receiver.header("content-type") == "application/json"
    assert told.outcomes == [DeliveryOutcome.DELIVERED]


async def test_a_delivered_notice_is_marked_and_not_sent_again(
    empty_urls: DatabaseUrls, empty_database: Database, tenant_id: TenantId, parts: DeliveryParts, told: Told
) -> None:
    async with receive() as receiver:
        webhook = await webhook_to(empty_database, receiver, tenant_id)
        await send_test(empty_database, webhook)
        await carry_until(parts, lambda: bool(told.outcomes))
        await let_time_pass(empty_urls.superuser_url)
        await send_test(empty_database, webhook)
        await carry_until(parts, lambda: len(told.outcomes) == 2)
    assert len(receiver.heads) == 2
    delivered = [(one.status, one.last_status, one.attempts) for one in await deliveries_of(empty_database, webhook)]
    assert delivered == [(DeliveryStatus.DELIVERED, 200, 1)] * 2


async def test_a_notice_that_failed_comes_again_the_same(
    empty_urls: DatabaseUrls, empty_database: Database, tenant_id: TenantId, parts: DeliveryParts, told: Told
) -> None:
    async with receive(FAILING) as receiver:
        webhook = await webhook_to(empty_database, receiver, tenant_id)
        sent = await send_test(empty_database, webhook)
        await carry_until(parts, lambda: bool(told.outcomes))
        [failed] = await deliveries_of(empty_database, webhook)
        await let_time_pass(empty_urls.superuser_url)
        await carry_until(parts, lambda: len(told.outcomes) == 2)
    assert (failed.status, failed.last_status, failed.last_error) == (DeliveryStatus.PENDING, 503, "http_5xx")
    assert receiver.bodies[0] == receiver.bodies[1]
    assert [head.count(sent.delivery_id) for head in receiver.heads] == [1, 1]
    assert told.outcomes == [DeliveryOutcome.RETRIED] * 2


async def test_the_first_failure_is_followed_by_a_short_wait(
    empty_database: Database, tenant_id: TenantId, parts: DeliveryParts, told: Told
) -> None:
    async with receive(FAILING) as receiver:
        webhook = await webhook_to(empty_database, receiver, tenant_id)
        await send_test(empty_database, webhook)
        await carry_until(replace(parts, draw=lambda: 1.0), lambda: bool(told.outcomes))
    [failed] = await deliveries_of(empty_database, webhook)
    assert failed.next_attempt_at == pytest.approx(failed.created_at + 5, abs=3)


async def test_a_receiver_that_is_gone_ends_its_webhook(
    empty_database: Database, tenant_id: TenantId, parts: DeliveryParts, told: Told
) -> None:
    async with receive(say(b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n")) as receiver:
        webhook = await webhook_to(empty_database, receiver, tenant_id)
        await send_test(empty_database, webhook)
        await carry_until(parts, lambda: bool(told.outcomes))
    [refused] = await deliveries_of(empty_database, webhook)
    assert (refused.status, refused.last_status, refused.last_error) == (DeliveryStatus.FAILED, 410, "gone")
    assert (await read_webhook(empty_database, webhook)).disabled_at is not None
    assert told.outcomes == [DeliveryOutcome.REFUSED]


@pytest.mark.parametrize(("status", "error"), [(302, "http_3xx"), (404, "http_4xx"), (500, "http_5xx")])
async def test_an_answer_that_is_no_success_is_kept_as_a_class(
    empty_database: Database, tenant_id: TenantId, parts: DeliveryParts, told: Told, status: int, error: str
) -> None:
    async with receive(say(b"HTTP/1.1 %d secret\r\ncontent-length: 6\r\n\r\nsecret" % status)) as receiver:
        webhook = await webhook_to(empty_database, receiver, tenant_id)
        await send_test(empty_database, webhook)
        await carry_until(parts, lambda: bool(told.outcomes))
    [failed] = await deliveries_of(empty_database, webhook)
    assert (failed.status, failed.last_status, failed.last_error) == (DeliveryStatus.PENDING, status, error)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("https://10.0.0.1/", "private_address"),
        ("http://93.184.216.34/", "invalid_url"),
        ("http://127.0.0.1:9/", "connect_failed"),
    ],
)
async def test_what_could_not_be_sent_says_why_and_comes_again(
    empty_database: Database, tenant_id: TenantId, parts: DeliveryParts, told: Told, url: str, error: str
) -> None:
    webhook = await add_webhook(empty_database, tenant_id, url=url)
    await send_test(empty_database, webhook)
    await carry_until(parts, lambda: bool(told.outcomes))
    [failed] = await deliveries_of(empty_database, webhook)
    assert (failed.status, failed.last_status, failed.last_error) == (DeliveryStatus.PENDING, None, error)


async def test_a_notice_that_is_too_old_is_given_up(
    empty_urls: DatabaseUrls, empty_database: Database, tenant_id: TenantId, parts: DeliveryParts, told: Told
) -> None:
    async with receive(FAILING) as receiver:
        webhook = await webhook_to(empty_database, receiver, tenant_id)
        await send_test(empty_database, webhook)
        aged = "UPDATE webhook_deliveries SET created_at = created_at - interval '3 days'"
        await query(empty_urls.superuser_url, aged)
        await carry_until(parts, lambda: bool(told.outcomes))
    [failed] = await deliveries_of(empty_database, webhook)
    assert (failed.status, failed.last_error) == (DeliveryStatus.FAILED, "http_5xx")
    assert told.outcomes == [DeliveryOutcome.GIVEN_UP]


async def test_a_carrier_that_dies_leaves_its_notice_to_another(
    empty_urls: DatabaseUrls, empty_database: Database, tenant_id: TenantId, parts: DeliveryParts, told: Told
) -> None:
    async with receive(say_nothing) as deaf, receive() as receiver:
        webhook = await webhook_to(empty_database, deaf, tenant_id)
        await send_test(empty_database, webhook)
        await carry_until(parts, lambda: bool(deaf.heads))
        moved = "UPDATE webhooks SET url = $1"
        await query(empty_urls.superuser_url, moved, receiver.url("127.0.0.1"))
        await let_time_pass(empty_urls.superuser_url)
        await carry_until(parts, lambda: bool(told.outcomes))
    assert receiver.bodies == deaf.bodies
    assert told.outcomes == [DeliveryOutcome.DELIVERED]


async def test_two_carriers_share_and_nothing_is_sent_twice(
    empty_database: Database, tenant_id: TenantId, parts: DeliveryParts, told: Told
) -> None:
    async with receive() as receiver:
        webhook = await webhook_to(empty_database, receiver, tenant_id)
        sent = await send_tests(empty_database, webhook, 40)
        async with carrying(parts), carrying(parts):
            await eventually(lambda: len(told.outcomes) == 40)
    told_ids = [line for head in receiver.heads for line in head.split("\r\n") if line.startswith("webhook-id")]
    assert sorted(told_ids) == sorted(f"webhook-id: {one.delivery_id}" for one in sent)


async def test_a_receiver_that_never_answers_holds_up_no_other(
    empty_database: Database, tenant_id: TenantId, parts: DeliveryParts, told: Told
) -> None:
    few = replace(parts, rules=replace(QUICK, slots=10))
    async with receive(say_nothing) as deaf, receive() as receiver:
        await send_tests(empty_database, await webhook_to(empty_database, deaf, tenant_id), 30)
        async with carrying(few):
            await eventually(lambda: len(deaf.heads) == 8)
            await send_test(empty_database, await webhook_to(empty_database, receiver, TenantId("ten_other")))
            await eventually(lambda: bool(receiver.heads), seconds=1.5)


async def test_no_more_requests_are_under_way_than_there_are_slots(
    empty_database: Database, tenant_id: TenantId, parts: DeliveryParts
) -> None:
    begun: list[int] = []
    async with receive(say_nothing) as deaf:
        few = replace(
            parts,
            rules=replace(QUICK, slots=3, timeout_seconds=0.5),
            told=lambda outcome: begun.append(len(deaf.heads)),
        )
        await send_tests(empty_database, await webhook_to(empty_database, deaf, tenant_id), 5)
        await carry_until(few, lambda: len(begun) == 5)
    assert begun[0] == 3


async def test_a_request_that_is_under_way_at_the_end_gets_a_moment(
    empty_database: Database, tenant_id: TenantId, parts: DeliveryParts, told: Told
) -> None:
    answering = asyncio.Event()

    async def answer(writer: asyncio.StreamWriter) -> None:
        await answering.wait()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()

    async with receive(answer) as receiver:
        await send_test(empty_database, await webhook_to(empty_database, receiver, tenant_id))
        job = asyncio.create_task(deliver(replace(parts, rules=replace(QUICK, grace_seconds=5.0))))
        await eventually(lambda: bool(receiver.heads))
        job.cancel()
        answering.set()
        await asyncio.wait({job})
    assert told.outcomes == [DeliveryOutcome.DELIVERED]


@dataclass
class FaultyOutbox:
    """The outbox of a database that is away for as long as a call is listed."""

    inner: PostgresOutbox
    away: list[str]

    async def take_due(self, *, limit: int, hold_seconds: float) -> Sequence[DueDelivery]:
        self._falter("take")
        return await self.inner.take_due(limit=limit, hold_seconds=hold_seconds)

    async def delivered(self, due: DueDelivery, *, status: int) -> None:
        self._falter("mark")
        await self.inner.delivered(due, status=status)

    async def failed(
        self, due: DueDelivery, *, status: int | None, error: str, retry_in_seconds: float | None, disable: bool = False
    ) -> None:
        self._falter("mark")
        await self.inner.failed(due, status=status, error=error, retry_in_seconds=retry_in_seconds, disable=disable)

    def _falter(self, call: str) -> None:
        if call in self.away:
            self.away.remove(call)
            raise StoreUnavailable("away")


async def test_a_database_that_is_away_is_asked_again(
    empty_database: Database, tenant_id: TenantId, parts: DeliveryParts, told: Told
) -> None:
    outbox = FaultyOutbox(PostgresOutbox(empty_database), ["take", "take"])
    async with receive() as receiver:
        await send_test(empty_database, await webhook_to(empty_database, receiver, tenant_id))
        await carry_until(replace(parts, outbox=outbox), lambda: bool(told.outcomes))
    assert told.away == ["deliveries"] * 2
    assert told.outcomes == [DeliveryOutcome.DELIVERED]


async def test_a_notice_that_could_not_be_marked_comes_again(
    empty_urls: DatabaseUrls, empty_database: Database, tenant_id: TenantId, parts: DeliveryParts, told: Told
) -> None:
    outbox = FaultyOutbox(PostgresOutbox(empty_database), ["mark"])
    async with receive() as receiver:
        await send_test(empty_database, await webhook_to(empty_database, receiver, tenant_id))
        await carry_until(replace(parts, outbox=outbox), lambda: bool(told.outcomes))
        await let_time_pass(empty_urls.superuser_url)
        await carry_until(parts, lambda: len(told.outcomes) == 2)
    assert told.outcomes == [DeliveryOutcome.UNMARKED, DeliveryOutcome.DELIVERED]
    assert receiver.bodies[0] == receiver.bodies[1]


@dataclass
class BrokenCarrier:
    """One with a defect that a certain address brings out."""

    inner: OutgoingClient
    broken_url: str

    async def check_url(self, url: str) -> str | None:
        return await self.inner.check_url(url)

    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes, timeout_seconds: float) -> int:
        if url == self.broken_url:
            raise RuntimeError(body.decode())
        return await self.inner.post(url, headers=headers, body=body, timeout_seconds=timeout_seconds)


async def test_a_defect_that_one_receiver_brings_out_stops_no_other_notice(
    empty_database: Database, tenant_id: TenantId, parts: DeliveryParts, told: Told
) -> None:
    async with receive() as receiver:
        broken = await add_webhook(empty_database, tenant_id, url="https://broken.test/")
        await send_test(empty_database, broken)
        await send_test(empty_database, await webhook_to(empty_database, receiver, tenant_id))
        carrier = BrokenCarrier(OutgoingClient(LOOPBACK), broken.url)
        await carry_until(replace(parts, carrier=carrier), lambda: len(told.outcomes) == 2)
    [failed] = await deliveries_of(empty_database, broken)
    assert failed.last_error == "internal_error"
    assert len(receiver.heads) == 1


@pytest.mark.parametrize(
    ("attempts", "draw", "seconds"),
    [
        (1, 1.0, 5.0), (2, 1.0, 10.0), (3, 1.0, 20.0), (4, 1.0, 40.0), (10, 1.0, 2560.0), (11, 1.0, 3600.0),
        (5000, 1.0, 3600.0), (1, 0.0, 2.5), (2, 0.5, 7.5), (5000, 0.0, 1800.0),
    ],
)  # fmt: skip
def test_each_failure_doubles_the_wait_up_to_an_hour(attempts: int, draw: float, seconds: float) -> None:
    assert DeliveryRules().next_wait(attempts, age_seconds=0, draw=draw) == seconds


def test_a_notice_is_tried_for_three_days() -> None:
    rules, three_days = DeliveryRules(), 3 * 86_400.0
    assert rules.next_wait(1, age_seconds=three_days - 5, draw=1.0) == 5.0
    assert rules.next_wait(1, age_seconds=three_days - 4.9, draw=1.0) is None


def test_a_notice_can_not_be_held_for_less_time_than_it_takes_to_send() -> None:
    with pytest.raises(ValueError, match="held"):
        DeliveryRules(hold_seconds=10.0, timeout_seconds=10.0)
