"""The key that a tool hands to whatever it writes to: one for each call, for as long as anybody may make it again."""

import asyncio
from typing import Any

from app import ConcurrencyConfig, RetryConfig
from app.ids import CallId, RunId, TenantId
from app.policy import Effect, Indeterminate, Outcome, idempotency_key
from app.testing import FakeClock
from tests.execution.answering import RUN_ID, Lossy, asker, lose, lose_once_more, tells
from tests.execution.crew import Crew, chief, child_ids, member, to_pay
from tests.execution.desk import Desk, Office, Stores, pays
from tests.execution.fakes import Recorder, call, say
from tests.execution.reopening import PAID, Counter
from tests.execution.stage import cut_off
from tests.execution.support import clerk

PAYS = clerk(tools=("pay",))


def keys(tool: Recorder) -> list[str]:
    return [context.idempotency_key for context in tool.contexts]


async def test_the_key_is_made_of_tenant_run_and_call() -> None:
    office = Office(pays(3), say("Well."))
    run = await office.run(PAYS)
    expected = idempotency_key(tenant_id=TenantId("acme"), first_run_id=run.run_id, call_id=PAID)
    assert keys(office.pay) == [expected]


async def test_two_calls_with_the_same_arguments_have_two_keys() -> None:
    office = Office(pays(3, 3), pays(3), say("Well."))
    await office.run(PAYS)
    assert len(set(keys(office.pay))) == 3


async def test_two_runs_have_different_keys() -> None:
    office = Office(pays(3), say("Well."))
    await asyncio.gather(office.run(PAYS), office.run(PAYS))
    assert len(set(keys(office.pay))) == 2


async def test_two_tenants_have_different_keys() -> None:
    office = Office(pays(3), say("Well."))
    await office.runner.run(PAYS, "Pay.", tenant="acme", run_id=RUN_ID)
    await office.runner.run(PAYS, "Pay.", tenant="other", run_id=f"{RUN_ID[:-1]}2")
    assert len(set(keys(office.pay))) == 2


class Flaky(Recorder):
    """Fails the first time."""

    async def __call__(self, arguments: dict[str, Any], context: Any) -> str:
        await super().__call__(arguments, context)
        if len(self.calls) == 1:
            raise ConnectionError("no answer")
        return "receipt"


async def test_every_try_of_a_call_has_its_key() -> None:
    pay = Flaky()
    office = Office(pays(3), say("Well."), pay=pay, clock=FakeClock(), retry=RetryConfig(max_attempts=2))
    await office.run(clerk(tools=("pay",), idempotent_tools=("pay",)))
    assert keys(pay) == [keys(pay)[0]] * 2


async def test_a_call_that_goes_out_again_after_a_crash_has_its_key() -> None:
    tool = Lossy()
    office = Stores().office(pays(3), say("Well."), pay=tool, pay_fields={"effect": Effect.IDEMPOTENT})
    await lose(office, tool, PAYS)
    await lose_once_more(lambda: office.runner.resume(RUN_ID), tool)
    await office.runner.resume(RUN_ID)
    assert (tool.dispatches, set(tool.keys)) == ([1, 2, 3], {tool.keys[0]})


async def test_a_call_that_a_person_has_made_again_has_its_key() -> None:
    tool = Lossy()
    office = Stores().office(pays(3), say("Well."), gate=Desk(tells(Outcome.RETRY)), pay=tool)
    await lose(office, tool, asker())
    await office.runner.resume(RUN_ID)
    assert (tool.dispatches, set(tool.keys)) == ([1, 2], {tool.keys[0]})


async def test_calls_that_are_out_together_keep_their_own_keys_over_a_crash() -> None:
    tool = Lossy(times=2)
    fields = {"effect": Effect.IDEMPOTENT, "parallel_safe": True}
    office = Stores().office(pays(3, 4), say("Well."), pay=tool, pay_fields=fields)
    await lose(office, tool, clerk(tools=("pay",), concurrency=ConcurrencyConfig(max_concurrent_tools=2)))
    await office.runner.resume(RUN_ID)
    pairs = {(key, made["amount"]) for key, made in zip(tool.keys, tool.calls, strict=True)}
    assert len(pairs) == len(set(tool.keys)) == 2


# --- over runs that go on from each other ----------------------------------------------------------------------------


async def test_a_call_keeps_its_key_over_a_chain_of_runs() -> None:
    counter = Counter()
    first = await counter.fail()
    again = await counter.reopen(first, {PAID: Outcome.RETRY})
    counter.pay.lose_again()
    await counter.lose(again)
    second = await counter.go_on(again)
    await counter.resume(second, {PAID: Outcome.RETRY})
    expected = idempotency_key(tenant_id=TenantId("acme"), first_run_id=first.record.run_id, call_id=PAID)
    assert counter.pay.keys == [expected] * 3


async def test_a_later_call_of_the_chain_has_a_key_of_the_first_run() -> None:
    counter = Counter(pays(3), pays(4), say("Well."))
    first = await counter.fail()
    await counter.resume(first, {PAID: Outcome.SUCCEEDED})
    later = idempotency_key(tenant_id=TenantId("acme"), first_run_id=first.record.run_id, call_id=CallId("call_2_1"))
    assert counter.pay.keys[1:] == [later]


async def test_a_run_that_begins_anew_has_new_keys() -> None:
    counter = Counter()
    await counter.fail()
    again = await counter.bench.submit(counter.agent())
    await counter.go_on(again)
    assert len(set(counter.pay.keys)) == 2


# --- below -----------------------------------------------------------------------------------------------------------


async def test_a_call_of_a_run_below_keeps_its_key_when_its_root_is_lost() -> None:
    tool = Lossy()
    payer = member("payer", tools=("pay",), idempotent_tools=("pay",))
    crew = Crew({"chief": [to_pay("Pay."), say("Done.")], "payer": [call("pay"), say("Paid.")]}, {"pay": tool})
    running = asyncio.create_task(crew.run(chief(payer), run_id="run_root"))
    await cut_off(running, tool)
    run = await crew.runner.resume("run_root")
    below = RunId(child_ids(run)[0])
    expected = idempotency_key(tenant_id=TenantId("acme"), first_run_id=below, call_id=PAID)
    assert (run.output, tool.keys) == ("Done.", [expected] * 2)


async def test_two_runs_below_have_different_keys() -> None:
    pay = Recorder()
    payer = member("payer", tools=("pay",), on_indeterminate=Indeterminate.SURFACE)
    scripts = {
        "chief": [to_pay("One.", "Two."), say("Done.")],
        "payer": [call("pay"), say("Paid."), call("pay"), say("Paid.")],
    }
    await Crew(scripts, {"pay": pay}).run(chief(payer))
    assert len(set(keys(pay))) == 2
