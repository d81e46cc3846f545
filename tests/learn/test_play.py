"""The interactive page: from plain loops to a legal schedule, an illegal move, undo, the board."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tvmscope.compiler import targets
from tvmscope.errors import BackendUnavailable, RunError
from tvmscope.learn.lessons import search
from tvmscope.learn.play import rivals
from tvmscope.learn.play.app import PlayApp
from tvmscope.learn.play.game import Entry, Game, Position
from tvmscope.learn.play.moves import Move
from tvmscope.learn.step_builder import Request, StepBuilder
from tvmscope.machine import caches
from tvmscope.measure.worker import run_isolated
from tvmscope.stages.places import cache_folder

SIZE = 64


class _Here:
    """A builder in this process."""

    def __init__(self, builder: StepBuilder) -> None:
        self.builder = builder

    def build(self, moves: Sequence[Move]) -> Position:
        return self.builder.play(moves)

    def time(self, number: int, values: int) -> list[float]:
        self.builder.select(number)
        found = []
        for _ in range(values):
            start = time.perf_counter()
            self.builder.run()
            found.append(time.perf_counter() - start)
        return found


@pytest.fixture(scope="module")
def builder() -> StepBuilder:
    host = targets.host_target(cores=1, cache=cache_folder())
    known = caches.data_caches()
    return StepBuilder(Request(lesson="matmul", size=SIZE, threads=1, target=host, caches=known))


@pytest.fixture
def game(builder: StepBuilder) -> Game:
    game = Game(_Here(builder))
    game.start(
        [
            ("plain", lambda: Entry(name="plain", seconds=1.0, gflops=0.5)),
            ("BLAS", lambda: Entry(name="BLAS", seconds=1e-9, gflops=5e5)),
        ]
    )
    return game


def test_a_game_from_plain_loops_to_the_board(game: Game) -> None:
    async def play() -> None:
        app = PlayApp(game, 16)
        async with app.run_test() as pilot:
            shown = [b.binding.description for b in app.screen.active_bindings.values()]
            assert shown.count("loop") == 2, "the arrows are not the board's"
            await pilot.press("down", "s")  # i, j_0, j_1, k
            assert game.position is not None
            assert game.position.loops == ("i x 64", "j_0 x 4", "j_1 x 16", "k x 64")
            await pilot.press("down", "down", "p")  # k cannot be parallel
            assert [m.primitive for m in game.moves] == ["split"]
            assert "parallel is not legal here" in game.said
            await pilot.press("up", "i", "down", "v")  # j_1 inside k, then a vector
            assert [m.primitive for m in game.moves] == ["split", "inward", "vectorize"]
            assert game.position.loops == ("i x 64", "j_0 x 4", "k x 64", "j_1 x 16")
            await pilot.press("backspace")
            assert "is taken back" in game.said
            assert len(game.moves) == 2
            await pilot.press("v", "m")
            assert [str(e.name) for e in game.board] == ["BLAS", "you, 3 moves", "plain"]
            assert "place 2 of 3" in game.said
            await pilot.press("plus", "minus", "minus")
            assert app.number == 8

    with ThreadPoolExecutor(1) as thread:  # a browser's driver may hold this one's event loop
        thread.submit(asyncio.run, play()).result()


def test_moves_that_nothing_allows_are_said(game: Game) -> None:
    assert not game.make(Move("inward", 2))
    assert "cannot go further in" in game.said
    assert not game.make(Move("fuse", 2))
    assert not game.make(Move("split", 9, 4))
    assert "there is no loop 9" in game.said
    assert not game.undo()
    assert game.moves == []


def test_sums_in_registers_and_zeros_in_front(game: Game) -> None:
    for move in (
        Move("split", 1, 16),
        Move("inward", 2),
        Move("vectorize", 3),
        Move("registers", 1),
        Move("parallel", 0),
        Move("zeros", 2),
    ):
        assert game.make(move), game.said
    assert game.position is not None
    assert game.position.built.right


def test_numpy_is_timed_for_the_same(builder: StepBuilder) -> None:
    builder.play(())
    assert len(builder.blas(3)) == 3


def test_our_rule_plays_and_its_result_is_checked(
    builder: StepBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder.play(())
    assert len(rivals.ours(builder, 2)) == 2
    monkeypatch.setattr(rivals, "relative_error", lambda *_: 1.0)
    with pytest.raises(RunError, match="its result is wrong"):
        rivals.ours(builder, 2)


def test_metaschedule_plays_within_its_budget(
    builder: StepBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder.play(())
    monkeypatch.setattr(search, "evolved", lambda *_: iter([0.0, 2.0, 1.0]))
    assert rivals.searched(builder, 60.0) == (2.0 * SIZE**3 / 2e9, 3)
    monkeypatch.setattr(search, "evolved", lambda *_: iter([0.0, 2.0]))
    with pytest.raises(RunError, match="1 tried"):
        rivals.searched(builder, 0.0)


def test_pytorch_plays_where_it_is_installed() -> None:
    pytest.importorskip("torch")
    library, times = run_isolated(rivals.PYTORCH, SIZE, 1, 3)
    assert library in ("MKL", "BLAS")
    assert len(times) == 3


def test_a_rival_that_cannot_play_is_missing_with_its_reason(builder: StepBuilder) -> None:
    def absent() -> Entry:
        raise BackendUnavailable("torch is not installed")

    game = Game(_Here(builder))
    game.start([("PyTorch", absent)])
    assert game.entries == []
    assert game.said == "PyTorch is missing: torch is not installed"
