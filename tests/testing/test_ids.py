"""Sequential ids have the shape of real ones."""

from app.ids import is_id
from app.testing import SequentialIds


def test_ids_are_the_same_each_time_and_sort_in_their_order() -> None:
    first, second = SequentialIds(), SequentialIds()
    made = [first.new("run") for _ in range(40)]
    assert made == [second.new("run") for _ in range(40)]
    assert made == sorted(set(made))


def test_an_id_passes_for_a_real_one() -> None:
    assert is_id("evt", SequentialIds().new("evt"))
