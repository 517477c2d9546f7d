"""The change log of an archive, and data derived from the log."""

import json

import numpy as np
import pytest

import memes
from memes import UsageError
from memes.archive import Changes
from memes.store import changes as store


def drawn(n, cells, generations, k=2, seed=0):
    """Return random changes without duplicates."""
    random = np.random.default_rng(seed)
    pairs = np.unique(random.integers(0, (generations, cells), (n, 2)), axis=0)
    fitness = random.normal(size=len(pairs)).astype(np.float32)
    feature = random.uniform(size=(len(pairs), k)).astype(np.float32)
    lane = random.integers(0, 8, len(pairs))
    return Changes(*pairs.T.astype(np.int32), lane.astype(np.int32), fitness, feature)


def assert_same(one, other):
    for name, a, b in zip(Changes._fields, one, other, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)


def by_hand(rows, generations, width):
    """Return the indices of the last change of each cell in each span of `width` generations."""
    last = {
        (c, g // width): i for i, (g, c) in enumerate(zip(*rows[:2], strict=True)) if g < generations
    }
    return sorted(last.values())


def test_written_and_appended_rows_are_read_and_an_incomplete_row_is_ignored(tmp_path):
    rows = drawn(50, 10, 20)
    size = store.save_changes(tmp_path, store.up_to_generation(rows, 7))
    rest = store.select(rows, rows.generation >= 7)
    assert_same(store.load_changes(tmp_path), store.up_to_generation(rows, 7))
    with (tmp_path / store.NAME).open("ab") as file:
        file.write(b"half a row")
    assert_same(store.load_changes(tmp_path), store.up_to_generation(rows, 7))
    assert store.append_changes(tmp_path, rest, size) == (tmp_path / store.NAME).stat().st_size
    assert_same(memes.load_changes(tmp_path), rows)


@pytest.mark.parametrize("generations", [0, 1, 9, 100])
def test_last_per_cell_gives_the_archive_after_some_generations(generations):
    rows = drawn(300, 20, 50)
    expected = store.select(rows, by_hand(rows, generations, 10**6))
    assert_same(store.last_per_cell(rows, generations), expected)


@pytest.mark.parametrize("most", [1, 20, 100, 10**6])
def test_thinning_keeps_the_last_change_of_each_cell_per_span(most):
    rows = drawn(300, 20, 50)
    thin = store.thinned(rows, store.width_for(rows, most))
    widths = [1, 2, 4, 8, 16, 32, 64]
    spans = [by_hand(rows, 50, width) for width in widths]
    expected = next((kept for kept in spans if len(kept) <= most), spans[-1])
    assert_same(thin, store.select(rows, expected))
    assert_same(store.last_per_cell(thin, 50), store.last_per_cell(rows, 50))


def header(**about):
    return json.dumps({"format_version": 1, "features": 2} | about).encode() + b"\n"


def table(**columns):
    rows = drawn(5, 3, 4)._replace(**columns)
    return header() + store._bytes(rows)


FORGED = {
    "no header": b"",
    "not JSON": b"\x93NUMPY\n",
    "a long header": b" " * 10**6,
    "no table": b"[]\n",
    "no features": header(features=0),
    "many features": header(features=10**9),
    "newer": header(format_version=2),
    "thinned to width zero": header(thinned=[3, 0]),
    "thinned at an absurd generation": header(thinned=[2**40, 2]),
    "thinned of a wrong type": header(thinned={"at": 3}),
    "not a number": table(fitness=np.full(len(drawn(5, 3, 4).cell), np.nan)),
    "absurd": table(feature=np.full((len(drawn(5, 3, 4).cell), 2), 1e30)),
    "a cell before the first": table(cell=np.full(len(drawn(5, 3, 4).cell), -1)),
    "a generation before the first": table(generation=np.full(len(drawn(5, 3, 4).cell), -1)),
    "out of order": table(generation=np.arange(len(drawn(5, 3, 4).cell))[::-1]),
}


@pytest.mark.parametrize("content", FORGED.values(), ids=FORGED)
def test_files_with_other_content_are_refused(content, tmp_path):
    (tmp_path / store.NAME).write_bytes(content)
    with pytest.raises(UsageError, match=r"damaged or has the wrong format|too new for this version"):
        store.load_changes(tmp_path)


def test_links_and_missing_files_are_refused(tmp_path):
    with pytest.raises(UsageError, match="there is no file"):
        store.load_changes(tmp_path)
    (tmp_path / "other").write_bytes(table())
    (tmp_path / store.NAME).symlink_to(tmp_path / "other")
    with pytest.raises(UsageError, match="is a link"):
        store.load_changes(tmp_path)
