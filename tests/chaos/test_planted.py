"""A worker that was stopped behind ``tool_call`` wakes when another one has its run: the fence is what keeps it out."""

import asyncio

import pytest

from tests.chaos.auditor import audit
from tests.chaos.planted import TIMES_WITHOUT_FENCE, Planted, play_planted

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def planted() -> Planted:
    return asyncio.run(play_planted())


def test_with_the_fence_all_is_well(planted: Planted) -> None:
    assert audit(planted.fenced.evidence) == ()
    assert planted.fenced.run.state == "completed"


def test_with_the_fence_the_call_was_made_once_and_its_outcome_is_told_as_unknown(planted: Planted) -> None:
    assert [line.dispatch for line in planted.fenced.evidence.lines] == [1]
    assert planted.fenced.kinds.count("tool_indeterminate") == 1
    assert planted.fenced.kinds.count("tool_result") == 0


@pytest.mark.parametrize("time", range(TIMES_WITHOUT_FENCE))
def test_without_the_fence_the_auditor_finds_the_second_writer_each_time(planted: Planted, time: int) -> None:
    complaints = audit(planted.unfenced[time].evidence)

    assert [complaint for complaint in complaints if complaint.startswith("fences only rise: ")], complaints
