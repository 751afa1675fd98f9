"""Snapshots on disk: what comes back is what was written, and nothing else does."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.providers.llama.cache import Cache, Piece
from app.providers.llama.prefixes import Match, PrefixTree, Scope
from app.providers.llama.snapshots import SnapshotFolder, SnapshotOptions, erase_files
from tests.providers.llama.fakes import FakeContext

KEY = b"k" * 32
SCOPE = Scope(owner="tenant", fingerprint="f")
TEXT = tuple(range(1, 101))
OTHER = (*TEXT[:50], *range(500, 540))

Open = Callable[..., SnapshotFolder]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


@pytest.fixture
def opened(folder: Path) -> Iterator[Open]:
    made: list[SnapshotFolder] = []

    def make(*, key: bytes = KEY, dialect: str = "one", budget: int = 10**6) -> SnapshotFolder:
        made.append(SnapshotFolder(SnapshotOptions(folder=folder, key=key, dialect=dialect, budget_bytes=budget)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def store(snapshots: SnapshotFolder, *texts: tuple[int, ...], scope: Scope = SCOPE) -> None:
    """What a process leaves behind that has answered to these texts."""
    context = FakeContext(cells=1000, sequences=2)
    cache = Cache(context, PrefixTree(budget_bytes=10**6), snapshots=snapshots)
    for text in texts:
        match = cache.find(scope, (*text, 0))
        length = cache.bring(0, source=None, length=0, match=match)
        fill(cache, text, length)
        cache.keep(0, scope, text, marks=(30,))
        cache.release(0)
    snapshots.close()


def fill(cache: Cache, text: tuple[int, ...], start: int) -> None:
    if start < len(text):
        cache.decode([Piece(sequence=0, start=start, tokens=text[start:], has_output=False)])


def found(
    snapshots: SnapshotFolder, text: tuple[int, ...], scope: Scope = SCOPE, *, budget: int = 10**6
) -> tuple[int, Cache, FakeContext]:
    """What another process brings back of a text."""
    tree: PrefixTree[bytearray] = PrefixTree(budget_bytes=budget)
    snapshots.fill(tree)
    context = FakeContext(cells=1000, sequences=2)
    cache = Cache(context, tree, snapshots=snapshots)
    length = cache.bring(0, source=None, length=0, match=cache.find(scope, (*text, 0)))
    return length, cache, context


def told(snapshots: SnapshotFolder) -> int:
    """How many stretches another process hears of, before it reads any state."""
    tree: PrefixTree[bytearray] = PrefixTree(budget_bytes=10**6)
    snapshots.fill(tree)
    return len(tree)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.prefix"))


def test_what_was_stored_comes_back_in_another_process(opened: Open) -> None:
    store(opened(), TEXT, OTHER)
    length, _, context = found(opened(), OTHER)

    assert length == len(OTHER)
    assert tuple(token for _, token in context.text(0)) == OTHER


def test_nothing_comes_back_under_another_scope(opened: Open) -> None:
    store(opened(), TEXT)

    assert found(opened(), TEXT, Scope(owner="other", fingerprint="f"))[0] == 0
    assert found(opened(), TEXT, Scope(owner="tenant", fingerprint="g"))[0] == 0


def test_what_is_read_from_disk_is_used_even_where_memory_has_no_room_to_keep_it(opened: Open) -> None:
    store(opened(), TEXT)

    assert found(opened(), TEXT, budget=10)[0] == len(TEXT)


def test_folders_are_for_this_user_only_and_do_not_name_the_tenant(opened: Open, folder: Path) -> None:
    store(opened(), TEXT)
    modes = {oct(path.stat().st_mode & 0o777) for path in [folder, *folder.iterdir()]}

    assert modes == {"0o700"}
    assert {oct(path.stat().st_mode & 0o777) for path in files(folder)} == {"0o600"}
    assert "tenant" not in str(list(folder.iterdir()))


@pytest.mark.parametrize("place", [0, 9, 40, -200, -33, -1])
def test_a_file_in_which_a_bit_was_flipped_is_not_believed(opened: Open, folder: Path, place: int) -> None:
    store(opened(), TEXT)
    path = min(files(folder), key=lambda path: b'"start": 0' not in path.read_bytes())
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)

    assert found(opened(), TEXT)[0] == 0


def test_a_file_of_another_key_is_not_believed(opened: Open, folder: Path) -> None:
    store(opened(key=b"x" * 32), TEXT)
    tenants = list(folder.iterdir())
    ours = opened()
    ours.fill(PrefixTree(budget_bytes=1))

    assert found(ours, TEXT)[0] == 0
    assert files(folder) == []
    assert len(tenants) == 1


def test_a_file_of_another_model_or_version_is_removed(opened: Open, folder: Path) -> None:
    store(opened(dialect="another"), TEXT)

    assert told(opened()) == 0
    assert files(folder) == []


@pytest.mark.parametrize("size", [0, 4, 12, 60, 400])
def test_a_file_that_was_cut_short_is_removed(opened: Open, folder: Path, size: int) -> None:
    store(opened(), TEXT[:30])
    (path,) = files(folder)
    path.write_bytes(path.read_bytes()[:size])

    assert told(opened()) == 0
    assert files(folder) == []


def test_what_hung_on_a_file_that_is_gone_is_removed(opened: Open, folder: Path) -> None:
    store(opened(), TEXT)
    first = next(path for path in files(folder) if b'"start": 0' in path.read_bytes())
    first.unlink()
    before = len(files(folder))
    length = found(opened(), TEXT)[0]

    assert (before, length, files(folder)) == (1, 0, [])


def test_a_file_that_disappears_costs_its_evaluation_and_nothing_else(opened: Open, folder: Path) -> None:
    store(opened(), TEXT)
    tree: PrefixTree[bytearray] = PrefixTree(budget_bytes=10**6)
    snapshots = opened()
    snapshots.fill(tree)
    for path in files(folder):
        path.unlink()
    cache = Cache(FakeContext(cells=1000, sequences=2), tree, snapshots=snapshots)

    assert cache.bring(0, source=None, length=0, match=cache.find(SCOPE, TEXT)) == 0
    assert (len(tree), cache.totals.lost) == (0, 2)


def test_a_file_under_the_name_of_another_is_removed(opened: Open, folder: Path) -> None:
    store(opened(), TEXT[:30])
    (path,) = files(folder)
    path.rename(path.with_name("0" * 40 + ".prefix"))

    assert found(opened(), TEXT)[0] == 0
    assert files(folder) == []


def test_the_disk_holds_no_more_than_its_budget(opened: Open, folder: Path) -> None:
    snapshots = opened(budget=1500)
    store(snapshots, TEXT, tuple(range(1000, 1100)), tuple(range(2000, 2100)))
    restarted = opened(budget=1500)
    _, cache, _ = found(restarted, TEXT[:40])
    fill(cache, TEXT, 40)
    cache.release(0)
    fill(cache, tuple(range(3000, 3050)), 0)
    cache.keep(0, SCOPE, tuple(range(3000, 3050)))
    restarted.close()

    assert sum(path.stat().st_size for path in files(folder)) < 1500 + 4 * 700


def test_where_the_disk_is_too_slow_a_snapshot_is_left_out(
    opened: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = opened()
    monkeypatch.setattr("app.providers.llama.snapshots._MOST_WAITING", 0)
    store(snapshots, TEXT)

    assert files(folder) == []


def test_half_a_file_is_never_seen(opened: Open, folder: Path) -> None:
    store(opened(), TEXT)
    rest = files(folder)[0].with_suffix(".part")
    rest.write_bytes(b"half")
    opened().fill(PrefixTree(budget_bytes=1))

    assert not rest.exists()


def test_a_file_in_the_place_of_another_is_not_believed(opened: Open, folder: Path) -> None:
    """Its MAC is good, and so is its length: only its header says what it is."""
    store(opened(), tuple(range(100, 130)), tuple(range(200, 230)))
    tree: PrefixTree[bytearray] = PrefixTree(budget_bytes=10**6)
    snapshots = opened()
    snapshots.fill(tree)
    one, other = files(folder)
    one.write_bytes(other.read_bytes())
    believed = [snapshots.read(stretch) is not None for stretch in tree]

    assert sorted(believed) == [False, True]


@pytest.mark.parametrize("start", [5, -5])
def test_a_stretch_that_begins_nowhere_is_removed(opened: Open, folder: Path, start: int) -> None:
    tree: PrefixTree[bytearray] = PrefixTree(budget_bytes=10**6)
    snapshots = opened()
    match = tree.add(Match(length=start), SCOPE, (7, 8, 9), bytearray(b"state"), 5)
    snapshots.write(match.path[0])
    snapshots.close()

    assert len(files(folder)) == 1
    assert told(opened()) == 0
    assert files(folder) == []


def test_a_chain_of_more_stretches_than_python_allows_calls_is_written_and_read(opened: Open, folder: Path) -> None:
    tree: PrefixTree[bytearray] = PrefixTree(budget_bytes=10**6)
    snapshots = opened()
    match: Match[bytearray] = Match()
    for token in range(1500):
        match = tree.add(match, SCOPE, (token,), bytearray(b"state"), 5)
    snapshots.write(match.path[-1])
    snapshots.close()

    assert snapshots.read(match.path[-1]) == bytearray(b"state")


def test_a_file_that_could_not_be_written_whole_leaves_no_half_of_it(
    opened: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    snapshots = opened()
    monkeypatch.setattr(Path, "replace", fail)
    store(snapshots, TEXT)

    assert [path for path in folder.glob("*/*") if path.is_file()] == []


def test_without_a_model_files_are_erased_by_what_they_say_of_themselves(opened: Open, folder: Path) -> None:
    tree: PrefixTree[bytearray] = PrefixTree(budget_bytes=10**6)
    snapshots = opened()
    for token, made_at in ((1, 10.0), (2, 20.0)):
        match = tree.add(Match(), SCOPE, (token, 7, 8), bytearray(b"state"), 5, made_at=made_at)
        snapshots.write(match.path[0])
    snapshots.close()
    (files(folder)[0].parent / "unreadable.prefix").write_bytes(b"?")
    erase_files(folder, key=KEY, owner="another", before=None)
    before = len(files(folder))
    erase_files(folder, key=KEY, owner="tenant", before=10.0)

    assert before == 3
    assert [b'"made_at": 20.0' in path.read_bytes() for path in files(folder)] == [True]
    erase_files(folder, key=KEY, owner="tenant", before=None)
    assert files(folder) == []
