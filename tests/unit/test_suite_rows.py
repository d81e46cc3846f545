"""A suite without its measuring: problems, keys, rows on disk, summaries and documents."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from support.suite_rows import ROWS, row
from tvmscope.analysis.suite import moves, summarize
from tvmscope.errors import SchemaError, UsageError
from tvmscope.messages import Message, msg
from tvmscope.parsing import parse_bytes
from tvmscope.report import suite as documents
from tvmscope.stages.options import Options
from tvmscope.workflow.suiting.keys import key_of
from tvmscope.workflow.suiting.options import Shard
from tvmscope.workflow.suiting.problems import Problem, find
from tvmscope.workflow.suiting.store import Store, opened, read, read_all

# ---- problems ----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "problems"
    for name in ("b.py", "nets/a.onnx", "nets/deep/c.pt2", "d.cfg", "notes.txt", "_own.py",
                 ".git/x.py", "__pycache__/y.py"):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    return root


def names(problems: list[Problem]) -> list[str]:
    return [problem.name for problem in problems]


def test_model_files_are_found_recursively(folder: Path) -> None:
    assert names(find([str(folder)])) == ["b.py", "d.cfg", "nets/a.onnx", "nets/deep/c.pt2"]


def test_patterns_choose_problems(folder: Path) -> None:
    assert names(find([str(folder)], include=("nets/*",))) == ["nets/a.onnx", "nets/deep/c.pt2"]
    assert names(find([str(folder)], exclude=("nets/*", "*.cfg"))) == ["b.py"]
    with pytest.raises(UsageError, match="no problem is left of 4"):
        find([str(folder)], include=("nothing",))


def test_a_list_names_files_functions_and_models(folder: Path) -> None:
    listed = folder / "all.list"
    listed.write_text("# ours\nb.py\nnets/a.onnx  # exported\nb.py:make\n\nresnet18\n")
    found = find([str(listed)])
    assert names(found) == ["b.py", "nets/a.onnx", "b.py:make", "resnet18"]
    assert [p.anywhere for p in found] == [
        str(folder / "b.py"), str(folder / "nets/a.onnx"), f"{folder / 'b.py'}:make", "resnet18",
    ]  # fmt: skip


def test_equal_names_of_two_folders_stay_two_problems(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more/b.py").write_text("")
    found = find([str(folder), str(tmp_path / "more")], include=("*b.py",))
    assert names(found) == ["b.py", str(tmp_path / "more/b.py")]


def test_a_key_changes_with_file_options_and_limits(folder: Path) -> None:
    (problem,) = find([str(folder)], include=("b.py",))
    first = key_of(problem, Options(), {"timeout_s": 1.0})
    assert key_of(problem, Options(output=Path("x"), command="other"), {"timeout_s": 1.0}) == first
    others = {
        key_of(problem, Options(tolerance=1e-2), {"timeout_s": 1.0}),
        key_of(problem, Options(threads=1), {"timeout_s": 1.0}),
        key_of(problem, Options(), {"timeout_s": 2.0}),
    }
    (folder / "b.py").write_text("x = 1")
    others.add(key_of(problem, Options(), {"timeout_s": 1.0}))
    assert len(others - {first}) == 4


# ---- rows on disk ------------------------------------------------------------------------------


def test_rows_are_read_again_and_the_latest_counts(tmp_path: Path) -> None:
    kept = row("a", torch=1.5, fallbacks=("aten.x",), operators=4, noise=1e-3)
    with opened(tmp_path) as store:
        store.append(row("a", "wrong", reason="off"))
        store.append(row("b", "timed out"))
        store.append(kept)
    assert read(tmp_path) == [kept, row("b", "timed out")]
    assert kept.fallback_share == 0.25


def test_reasons_can_still_be_translated_when_they_are_read_again(tmp_path: Path) -> None:
    reason = msg("did not answer for {timeout:g} s", timeout=3)
    with opened(tmp_path) as store:
        store.append(row("a", "timed out", reason=reason, others={"torch": reason}))
    (found,) = read(tmp_path)
    for text in (found.reason, found.others["torch"]):
        assert isinstance(text, Message)
        assert (text, text.id) == (reason, reason.id)


def test_a_line_that_was_being_written_is_dropped(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append(row("a"))
    file = tmp_path / "results.jsonl"
    whole = file.read_bytes()
    for cut in (1, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole + whole[:cut])
        with opened(tmp_path) as store:
            assert list(store.rows) == ["a"]
            store.append(row("b"))
        assert [r.problem for r in read(tmp_path)] == ["a", "b"]
        file.write_bytes(whole)


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text('{"problem": "a"}\n')
    with pytest.raises(SchemaError, match="line 1"):
        read(tmp_path)


def test_one_folder_has_one_suite_at_a_time(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(UsageError, match="another suite"), opened(tmp_path):
        pass
    with opened(tmp_path):
        pass


def test_sessions_of_any_name_stay_inside_the_folder(tmp_path: Path) -> None:
    store = Store(tmp_path)
    given = ["a.py", "../../etc/passwd", "/abs/a.py", "a b.py", "a_b.py", "x" * 300, "hf:a/m", "."]
    folders = [store.session_folder(name) for name in given]
    assert len(set(folders)) == len(given)
    for place in folders:
        assert place.resolve().is_relative_to(tmp_path / "sessions")


def test_shards_share_all_problems() -> None:
    all_ = list(range(10))
    parts = [all_[s.number - 1 :: s.count] for s in (Shard.parse(f"{i}/3") for i in (1, 2, 3))]
    assert sorted(n for part in parts for n in part) == all_
    for text in ("0/3", "4/3", "3", "a/b", "1/0"):
        with pytest.raises(UsageError, match="--shard"):
            Shard.parse(text)


def test_shards_merge(tmp_path: Path) -> None:
    for part, host in (("one", "a"), ("two", "b")):
        with opened(tmp_path / part) as store:
            store.append(row(part, host=host, torch=2.0))
    assert summarize(read_all([tmp_path / "one", tmp_path / "two"])).hosts == ("a", "b")
    with pytest.raises(UsageError, match="no rows"):
        read_all([tmp_path / "three"])


def test_sizes() -> None:
    assert [parse_bytes(t) for t in ("8G", "500m", "1.5GiB", "10")] == [
        8 << 30, 500 << 20, 3 << 29, 10,
    ]  # fmt: skip
    for text in ("", "G", "8X", "-1", "0"):
        with pytest.raises(UsageError, match="is not a size"):
            parse_bytes(text)


# ---- summaries ---------------------------------------------------------------------------------


def test_shares_are_of_all_problems() -> None:
    whole = summarize(ROWS)
    (torch,) = whole.against
    assert (whole.problems, whole.right, whole.with_fallback) == (10, 5, 1)
    assert torch.problems == 4
    assert torch.over == {1.0: 0.3, 1.5: 0.2, 2.0: 0.1}
    assert torch.mean == pytest.approx((3.0 * 1.6 * 0.5 * 1.2) ** 0.25)
    assert sum(torch.bins) == 4
    assert [r.problem for r in whole.slowest] == ["c"]


def test_moves_name_outcomes_and_speeds_but_never_mix_hosts() -> None:
    old = [row("a", torch=1.0), row("b", torch=1.0), row("c", torch=1.0), row("d"), row("gone")]
    new = [row("a", torch=1.5), row("b", torch=1.05), row("c", torch=3.0, host="there"),
           row("d", "wrong"), row("new")]  # fmt: skip
    found = moves(old, new)
    said = {(m.problem, m.kind) for m in found.moves}
    assert said == {("a", "faster"), ("d", "outcome"), ("new", "new"), ("gone", "gone")}
    assert (found.compared, found.other_hosts) == (2, 1)


EVIL = "x</script><script>alert(1)</script>|`*.py"


def test_documents_hold_every_problem_and_escape_names(tmp_path: Path) -> None:
    rows = [*ROWS, row(EVIL, "failed", reason="\x1b[31m=cmd|<img src=x>"), row("=1+1", "failed")]
    documents.write(rows, tmp_path, old=ROWS[:3])
    html = (tmp_path / "index.html").read_text()
    assert "<script>alert" not in html
    assert "<img" not in html
    assert "\x1b" not in html
    assert html.count("<script") == 1
    assert "http" not in html.replace("http-equiv", "")
    for r in rows[:-2]:
        assert f"<td>{r.problem}</td>" in html
    markdown = (tmp_path / "summary.md").read_text()
    assert "<script>" not in markdown
    assert "| a |" not in markdown.split("## Not right")[1]
    assert "| 25% | 17% | 8% |" in markdown
    table = list(csv.DictReader(io.StringIO((tmp_path / "summary.csv").read_text())))
    assert len(table) == len(rows)
    assert next(t for t in table if t["problem"] == "a")["speedup over torch"] == "3"
    assert not any(value.startswith("=") for line in table for value in line.values())


def test_documents_of_no_times_are_written_too(tmp_path: Path) -> None:
    documents.write([row("a", "crashed")], tmp_path)
    assert "crashed" in (tmp_path / "summary.md").read_text()


def test_a_row_is_one_json_line(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append(row(EVIL, reason="two\nlines"))
    (line,) = (tmp_path / "results.jsonl").read_text().splitlines()
    assert json.loads(line)["problem"] == EVIL


def test_doubtful_times_are_said(tmp_path: Path) -> None:
    busy = row("a", torch=900.0, warnings=("other processes used 85% of the CPU",))
    documents.write([busy, row("b", torch=1.0)], tmp_path)
    for name in ("summary.md", "index.html"):
        assert "1 problems have warnings about their times" in (tmp_path / name).read_text()
