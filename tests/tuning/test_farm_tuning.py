"""A model tuned on a farm that loses a server on the way: it comes to the same as on one machine.

The first candidates of each task are the rule's own first ones, whatever was measured, so that two
runs that end there must have tried the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from support import farm_kernels
from support.farm_kernels import Farm, eventually, kill_group, session_of
from tvmscope.core.session import load
from tvmscope.core.tuning import Candidate, Trial
from tvmscope.stages.options import Options
from tvmscope.tuning import plan
from tvmscope.tuning.job.tune import tune
from tvmscope.tuning.proof import validate
from tvmscope.tuning.records.database import Database
from tvmscope.tuning.search.state import State

NET = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 32, 3, padding=1)
        self.narrow = torch.nn.Conv2d(32, 64, 1)
        self.wide = torch.nn.Conv2d(64, 64, 3, padding=1, stride=2)

    def forward(self, x):
        return torch.relu(self.wide(torch.relu(self.narrow(torch.relu(self.stem(x))))))

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(1, 3, 40, 40)]
"""
pytestmark = pytest.mark.slow
THREADS = 1
FIRST_BATCH = 1 + 4 * THREADS
"""The untuned kernel and one batch: later batches follow what was fast."""
TUNE = {
    "target": "cpu", "threads": THREADS, "seed": 3, "metaschedule": False, "ops": ("conv2d",),
    "max_trials_per_task": FIRST_BATCH, "iterations": 2, "warmup": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def started() -> Iterator[Farm]:
    """A tracker and three servers that are on their way."""
    with TemporaryDirectory() as folder, farm_kernels.farm(Path(folder)) as made:
        for _ in range(3):
            made.start_server()
        yield made


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("net") / "net.py"
    file.write_text(NET)
    return file


@pytest.fixture(scope="module", autouse=True)
def all_tasks_are_planned() -> Iterator[None]:
    """Whatever the profile says: both runs must be about the same tasks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "SMALL", 0.0)
        patch.setattr(plan, "AT_ROOF", float("inf"))
        yield


@pytest.fixture(scope="module")
def here(net: Path, started: Farm) -> list[Trial]:
    """What a run on this machine tries (timed as briefly as can be, while the servers start)."""
    db, output = net.parent / "here.jsonl", net.parent / "here"
    brief = {"repeat": 1, "min_repeat_ms": 0.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(State, "fastest", lambda *_: [])  # what follows the search is not compared
        tune(str(net), Options.of(db=str(db), output=output, **brief, **TUNE))
    return _searched(db)


@pytest.fixture(scope="module")
def farm(started: Farm) -> Farm:
    eventually(lambda: started.count("board") == 3)
    return started


@pytest.fixture(scope="module")
def there(net: Path, here: list[Trial], farm: Farm) -> list[Trial]:
    """What a run on the farm tries while one of its servers is killed and comes back.

    Candidates are used whatever they gain, so that there is a tuned model to verify.
    """
    db, output = net.parent / "there.jsonl", net.parent / "there"
    farmed = {"tracker": f"127.0.0.1:{farm.port}", "key": "board", "min_repeat_ms": 250.0}
    with ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(State, "fastest", _some)
        patch.setattr(validate, "WORTH", 0.0)
        killed = pool.submit(_kill_one, farm, db)
        tune(str(net), Options.of(db=str(db), output=output, **farmed, **TUNE))
    assert killed.result() < len(here)
    return _searched(db)


def _some(state: State, count: int) -> list[Candidate]:
    return [c for c in state.candidates.values() if c != Candidate()][:count]


def _kill_one(farm: Farm, db: Path) -> int:
    """kill -9 of a server that is measuring, once trials are recorded; how many there were."""
    eventually(lambda: db.exists() and _searched(db), patience_s=300)
    before = len(_searched(db))
    servers = farm.processes[1:]
    kill_group(eventually(lambda: next(filter(None, map(session_of, servers)), None)))
    return before


def _searched(db: Path) -> list[Trial]:
    return [trial for trial in Database(db).trials() if trial.stage == "search"]


def test_the_same_candidates_are_tried_as_on_one_machine(
    here: list[Trial], there: list[Trial]
) -> None:
    def tried(trials: list[Trial]) -> list[tuple[str, str]]:
        return sorted((t.workload, t.candidate.id) for t in trials)

    assert tried(there) == tried(here)
    assert len(set(tried(there))) == len(there) == 3 * FIRST_BATCH


def test_no_candidate_is_lost_with_the_server(there: list[Trial]) -> None:
    assert [(t.status, t.reason) for t in there] == [("ok", None)] * len(there)


def test_the_killed_server_is_back(farm: Farm, there: list[Trial]) -> None:
    assert there
    assert farm.said().count("starting it again") == 1
    eventually(lambda: farm.count("board") == 3)


def test_the_tuned_model_is_verified(net: Path, there: list[Trial]) -> None:
    session = load(net.parent / "there")
    assert session.complete
    assert there
    untuned, tuned = session.results
    for row in (untuned, tuned):
        assert row.status == "ok", row.reason
        assert row.accuracy is not None
        assert row.accuracy.passed
    assert (tuned.settings or {})["tuned_kernels"].startswith("3 from ")
