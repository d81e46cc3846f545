"""Simplified Chinese: every text has a translation that fits, and is shown; JSON stays English."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html import unescape
from io import StringIO
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from support import report_samples
from support.diagnosis_samples import SITUATIONS
from tvmscope import messages
from tvmscope.analysis.suite import Move, Moves
from tvmscope.cli.main import main
from tvmscope.compiler.frontends.preflight import Unsupported
from tvmscope.core.session import Session, load, save
from tvmscope.core.suite import Outcome, Speedup, SuiteRow
from tvmscope.core.tuning import Candidate, Choice, origins
from tvmscope.core.vision import Answer
from tvmscope.diagnose.engine import diagnose
from tvmscope.errors import BuildError, one_line
from tvmscope.learn import catalog
from tvmscope.learn.pages import terminal
from tvmscope.messages import msg, msgn, render
from tvmscope.plugins import discover
from tvmscope.report import suite
from tvmscope.report.formats.console import to_text
from tvmscope.report.renderers import renderer
from tvmscope.report.sections import schedule
from tvmscope.report.terminal.answers import without_folders

ROOT = Path(__file__).parents[2]
PO = ROOT / "src" / "tvmscope" / "locale" / "zh" / "LC_MESSAGES" / "tvmscope.po"
pytestmark = pytest.mark.skipif(not (ROOT / "scripts").is_dir(), reason="needs a checkout")


@pytest.fixture(scope="module")
def catalogues() -> Iterator[object]:
    sys.path.insert(0, str(ROOT / "scripts"))
    import catalogues

    yield catalogues
    sys.path.remove(str(ROOT / "scripts"))


@pytest.fixture(scope="module")
def compiled(catalogues, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("locale")
    catalogues.compile_to(PO, folder / "zh" / "LC_MESSAGES" / "tvmscope.mo")
    return folder


@pytest.fixture
def _chinese(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(messages, "LOCALE_FOLDER", compiled)
    messages.catalogue.cache_clear()
    yield
    messages.use_language(None)
    messages.catalogue.cache_clear()


def _fields(text: str) -> set[str]:
    return set(re.findall(r"\{\w+(?::[^}]*)?\}|%\(\w+\)[sd]", text))


def test_no_translation_is_missing_or_stale(catalogues) -> None:
    wanted = {m.id for m in catalogues.texts() if m.id}
    translated = {m.id: m.string for m in catalogues.read(PO) if m.id}
    assert wanted - translated.keys() == set()
    assert translated.keys() - wanted == set()
    empty = [
        i for i, text in translated.items() if not (text if isinstance(text, str) else text[0])
    ]
    assert empty == []


def test_translations_have_the_same_fields(catalogues) -> None:
    for m in catalogues.read(PO):
        if not m.id:
            continue
        ids = m.id if isinstance(m.id, tuple) else (m.id,)
        found = m.string if isinstance(m.string, tuple) else (m.string,)
        assert _fields(found[0]) == set().union(*map(_fields, ids)), m.id


@pytest.mark.usefixtures("_chinese")
def test_lessons_are_told_in_chinese() -> None:
    messages.use_language("zh")
    stream = StringIO()
    console = Console(file=stream, width=60, color_system=None)
    for lesson in catalog.lessons().values():
        for part in (*terminal.opening(lesson), *terminal.question(lesson)):
            console.print(part)
    text = stream.getvalue()
    assert "split：一层循环切成两层" in text
    assert "练习" in text
    assert "Exercise" not in text


@pytest.mark.usefixtures("_chinese")
def test_reasons_are_put_into_chinese_when_they_are_shown() -> None:
    made = msg("Only {now} of {old} threads have work.", now=1, old=2)
    assert made == "Only 1 of 2 threads have work."
    assert render(made, "zh") == "2 个线程中只有 1 个有活干。"
    several = msgn("of {n} core's roof", "of {n} cores' roof", count=2, n=2)
    assert render(several, "zh") == "占 2 核上限"


@pytest.mark.usefixtures("_chinese")
def test_reasons_inside_reasons_are_put_into_chinese_too() -> None:
    refused = one_line(Unsupported(msg("Scan before opset 9")))
    told = msg("{place}: {reason}", place="node_3", reason=refused)
    assert told == "node_3: Scan before opset 9"
    assert render(told, "zh") == "node_3：opset 9 之前的 Scan"
    failed = msg("building: {reason}", reason=one_line(BuildError(msg("no library was written"))))
    assert render(failed, "zh") == "构建：没有写出库文件"
    choice = Choice(candidate=Candidate(), source="shipped", cpu="a CPU", threads=2)
    assert render(origins([choice]), "zh") == "随包附带的记录（a CPU、2 个线程） 1 个"


@pytest.mark.usefixtures("_chinese")
def test_a_picture_without_its_folder_is_still_told_of_in_chinese() -> None:
    failure = msg("there is no image file '{path}'", path="/home/me/cat.png")
    (answer,) = without_folders([Answer(picture="/home/me/cat.png", failure=failure)])
    assert answer.failure == "there is no image file 'cat.png'"
    assert render(answer.failure, "zh") == "没有图片文件 'cat.png'"


@pytest.mark.usefixtures("_chinese")
@pytest.mark.parametrize("words", [["learn", "--lang", "zh"], ["--lang=zh", "learn"]])
def test_the_language_is_chosen_anywhere(words: list[str], capsys) -> None:
    assert main(words) == 0
    assert "什么是调度" in capsys.readouterr().out


@pytest.mark.usefixtures("_chinese")
def test_an_unknown_language_is_refused(capsys) -> None:
    assert main(["learn", "--lang", "tlh"]) == 2
    assert "--lang takes one of en, zh" in capsys.readouterr().err


def _english_left(text: str, catalogues) -> list[str]:
    """Texts of ours, of several words, that stand untranslated in a document."""
    flat = " ".join(text.split())
    ids = [m.id if isinstance(m.id, str) else m.id[0] for m in catalogues.read(PO) if m.id]
    sentences = [i for i in ids if len(i.split()) > 1 and not _fields(i)]
    return [i for i in sentences if re.search(rf"(?<![\w-]){re.escape(i)}(?![\w-])", flat)]


COMMANDS = [
    ["--help"],
    *([name, "--help"] for name in sorted(discover("tvmscope.cli.commands", "COMMAND")[0])),
    ["db", "export", "--help"], ["farm", "server", "--help"],
]  # fmt: skip


@pytest.mark.usefixtures("_chinese")
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_help_is_in_chinese(words: list[str], capsys, catalogues, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*words, "--lang", "zh"]) == 0
    text = capsys.readouterr().out
    assert "用法：tvmscope" in text
    assert "选项" in text
    assert _english_left(text, catalogues) == []
    lines = [line for line in text.splitlines() if line.startswith("│")]
    assert (
        len({cell_len(line) for line in lines}) == 1
    )  # a frame of double-width letters is straight


@pytest.mark.usefixtures("_chinese")
def test_help_can_change_its_language_within_a_process(capsys) -> None:
    main(["db", "list", "--help", "--lang", "zh"])
    messages.use_language(None)
    assert "列出文件、工作负载和目标" in capsys.readouterr().out
    main(["db", "list", "--help"])
    text = capsys.readouterr().out
    assert "Usage: tvmscope db list" in text
    assert not re.search("[\u4e00-\u9fff]", text)


@pytest.mark.usefixtures("_chinese")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compare", "--nope"], "没有选项 --nope"),
        (["compile"], "缺少参数 'MODEL'。（见 tvmscope compile --help）"),
        (["analyz"], "没有命令 'analyz'。你是不是想用 'analyze'？"),
        (["run", "a", "--nms-iou", "3"], "'--nms-iou' 的值无效：应小于或等于 1"),
        (
            ["run", "a", "--fit", "x"],
            "'--fit' 的值无效：'x' 不在 'stretch'、'letterbox'、'crop' 之中",
        ),
        (["tune", "m", "--trials", "x"], "'--trials' 的值无效：应为整数"),
        (["bench", "m", "--duration"], "选项 '--duration' 需要一个值。"),
        (["compile", "resnet50", "more"], "多余的参数（more）"),
    ],
)
def test_errors_are_in_chinese(words: list[str], said: str, capsys) -> None:
    """The command line library's own, too; the exit code stays."""
    assert main([*words, "--lang", "zh"]) == 2
    text = capsys.readouterr().err
    assert text.startswith("错误：")
    assert said in text


@pytest.mark.usefixtures("_chinese")
def test_our_own_errors_are_in_chinese(capsys) -> None:
    assert main(["report", "/no/such", "--lang", "zh"]) == 1
    assert "/no/such 处没有会话" in capsys.readouterr().err


@pytest.mark.usefixtures("_chinese")
@pytest.mark.parametrize("form", ["console", "markdown", "html", "svg"])
@pytest.mark.parametrize("sample", ["complete", "profiled", "several_targets", "wrong_result"])
def test_reports_are_in_chinese(form: str, sample: str, catalogues) -> None:
    session = report_samples.ALL[sample]()
    messages.use_language("zh")
    text = renderer(form).render([session])
    if form == "html":
        assert '<html lang="zh"' in text
        text = re.sub(r"<script.*?</script>|<style.*?</style>", " ", text, flags=re.DOTALL)
        text = unescape(re.sub(r"<[^>]+>", "\n", text))
    assert re.search("[\u4e00-\u9fff]", text)
    foreign = {str(text) for text in _texts(session) if not isinstance(text, messages.Message)}
    assert set(_english_left(text, catalogues)) <= foreign


def _texts(session: Session) -> Iterator[messages.Text]:
    """What a sample says itself: plain texts stay as they are."""
    for finding in session.findings:
        yield from (finding.title, finding.evidence, finding.advice)
    for fix in session.fixes:
        yield from (fix.title, fix.reason or "")
    yield from (profile.how for profile in session.profiles)
    yield from (roof.how for roof in session.roofs)


@pytest.mark.usefixtures("_chinese")
@pytest.mark.parametrize("rule", SITUATIONS)
def test_findings_of_an_english_session_are_read_in_chinese(rule: str, tmp_path: Path) -> None:
    found = diagnose(SITUATIONS[rule][0])
    session = load(save(found, tmp_path))
    for finding in session.findings:
        for text in (finding.title, finding.evidence, finding.advice):
            assert re.search("[\u4e00-\u9fff]", render(text, "zh")), text
            assert not re.search("[\u4e00-\u9fff]", str(text))


@pytest.mark.usefixtures("_chinese")
@pytest.mark.parametrize("form", ["json", "csv", "google-benchmark", "trace", "model-explorer"])
def test_programs_read_english(form: str) -> None:
    session = report_samples.ALL["profiled"]()
    english = renderer(form).render([session])
    messages.use_language("zh")
    assert renderer(form).render([session]) == english


@pytest.mark.usefixtures("_chinese")
def test_columns_of_double_width_letters_are_aligned() -> None:
    messages.use_language("zh")
    lines = to_text([report_samples.ALL["complete"]()]).splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("后端"))
    end = cell_len(lines[head][: lines[head].index("中位数") + 3])
    rows = [line for line in lines[head + 1 :] if re.match(r"\S+ .*\d (ms|s|us)\b", line)][:3]
    assert len(rows) > 1
    for row in rows:
        value = re.search(r"\d (?:ms|s|us)\b", row)
        assert value is not None
        assert cell_len(row[: value.end()]) == end


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "结果"), ({"LC_ALL": "zh_CN.UTF-8", "LANG": "C"}, "结果"),
        ({"LANGUAGE": "zh_CN:en"}, "结果"), ({"LANGUAGE": "en:zh_CN"}, "Results"),
        ({"LANG": "C.UTF-8"}, "Results"), ({"LANG": "de_DE.UTF-8"}, "Results"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("_chinese")
def test_the_locale_chooses_the_language(variables, wanted: str, monkeypatch) -> None:
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    messages.catalogue.cache_clear()
    assert messages._("Results") == wanted


def test_the_command_line_librarys_words_are_as_expected() -> None:
    """Where a version of it has others, they stay English: look at `cli/library_words.py`."""
    from typer import rich_utils

    from tvmscope.cli import library_words

    messages.use_language("en")
    library_words.SpeakingCommand("x").get_help  # noqa: B018  # the class can be made
    for name in library_words.defaults():
        assert hasattr(rich_utils, name)


@pytest.mark.usefixtures("_chinese")
def test_a_suites_documents_are_in_chinese_and_its_table_for_programs_is_not(catalogues) -> None:
    outcomes: tuple[Outcome, ...] = ("correct", "wrong")
    rows = [
        SuiteRow(
            problem="nets/a.py", key="1", host="h", cpu="c", outcome=outcome, took_s=1.0,
            finished="2026-11-16T10:00:00+00:00", medians_s={"tvmscope": 0.001, "torch": 0.002},
            speedups={"torch": Speedup(value=2.0)},
        )
        for outcome in outcomes
    ]  # fmt: skip
    english = suite.as_csv(rows)
    messages.use_language("zh")
    assert suite.as_csv(rows) == english
    page = suite.as_html(rows, None)
    assert '<html lang="zh">' in page
    text = unescape(re.sub(r"<script.*?</script>|<style.*?</style>", " ", page, flags=re.DOTALL))
    assert _english_left(re.sub(r"<[^>]+>", "\n", text), catalogues) == []
    moved = Moves(
        moves=(Move(problem="nets/a.py", kind="outcome", before="wrong", after="correct"),),
        compared=1, other_hosts=0,
    )  # fmt: skip
    text = suite.as_markdown(rows, moved)
    assert _english_left(text, catalogues) == []
    said = {cell.strip() for cell in text.split("|")}
    assert {"正确", "错误", "结果状态"} <= said
    assert not {"correct", "wrong", "outcome"} & said


def _skeleton(readme: str) -> dict[str, list[str]]:
    """What both languages have in common: levels of titles, commands, first cells, links."""
    text = (ROOT / readme).read_text(encoding="utf-8")
    blocks = [b for i, b in enumerate(text.split("```")) if i % 2]
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    lines = [re.split(r"\s+#|^#", line)[0].rstrip() for b in blocks for line in b.splitlines()]
    links = {x for x in re.findall(r"(?:\]\(|src=\")([^)\"]+)", prose) if "README" not in x}
    return {
        "titles": re.findall(r"^#+(?= )", prose, flags=re.MULTILINE),
        "commands": [line for line in lines if line and not line.startswith(")")],
        "rows": re.findall(r"^\|.*?`([^`]+)`", prose, flags=re.MULTILINE),
        "points": re.findall(r"^- ", prose, flags=re.MULTILINE),
        "links": sorted(x.replace("report-zh.png", "report.png") for x in links),
    }


def test_the_chinese_readme_says_what_the_english_one_says() -> None:
    english, chinese = _skeleton("README.md"), _skeleton("README.zh-CN.md")
    links = [set(found.pop("links")) for found in (english, chinese)]
    assert links[1] - {"docs/old-calls.md"} == links[0]
    assert chinese == english


def test_a_catalogue_keeps_every_line_of_its_texts(catalogues, tmp_path: Path) -> None:
    """Only the header's lines about dates and tools are left out."""
    long = "Generated code, Report-Msgid-Bugs-To: and Last-Translator: are words, too. "
    texts = [f"{first} {long * 2}" for first in ("Generated", "Report", "Last", "PO-Revision")]
    catalogue = catalogues.Catalog(charset="utf-8", locale="zh")
    for text in texts:
        catalogue.add(text, string=text)
    catalogues.write(tmp_path / "a.po", catalogue)
    assert [m.id for m in catalogues.read(tmp_path / "a.po") if m.id] == texts
    head = (tmp_path / "a.po").read_text().partition("\n\n")[0]
    assert "Language: zh" in head
    assert not re.search("Generated-By|Creation-Date|Revision-Date", head)


def test_texts_inside_other_texts_and_calls_are_extracted(catalogues) -> None:
    code = "f'{_(\"Not right\")}'; _(WORDS.get(x, marked('left out'))); plural('a', 'b', n)"
    found = {ids for _line, ids in catalogues._called(catalogues.ast.parse(code))}
    assert found == {"Not right", "left out", ("a", "b")}


@pytest.mark.usefixtures("_chinese")
def test_loops_of_a_neighbouring_stage_have_short_labels() -> None:
    trace = [
        'b0 = sch.get_sblock(name="C", func_name="main")',
        "b1, = sch.get_producers(block=b0)",
        "l2, l3 = sch.get_loops(block=b1)",
        "sch.parallel(loop=l2)",
    ]
    assert "input-of-C.1" in " ".join(schedule.in_words(trace))
    messages.use_language("zh")
    assert "C的输入.1" in " ".join(schedule.in_words(trace))
