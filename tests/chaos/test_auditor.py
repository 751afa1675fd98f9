"""The auditor finds what was planted, and nothing where all is well."""

import pytest

from tests.chaos.auditor import RULES, audit
from tests.chaos.breaks import BREAKS, Break
from tests.chaos.sound import SOUND


def test_sound_evidence_gives_no_complaint() -> None:
    assert audit(SOUND) == ()


@pytest.mark.parametrize("planted", BREAKS, ids=lambda planted: f"{planted.rule}: {planted.says}")
def test_a_planted_defect_is_told_by_its_rule(planted: Break) -> None:
    complaints = [complaint for complaint in audit(planted.evidence) if complaint.startswith(f"{planted.rule}: ")]

    assert [complaint for complaint in complaints if planted.says in complaint], audit(planted.evidence)


def test_every_rule_has_a_planted_defect() -> None:
    assert {planted.rule for planted in BREAKS} == RULES.keys()
