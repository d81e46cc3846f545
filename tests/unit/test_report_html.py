"""The page: complete, self-contained, and proof against names from a model."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from functools import cache
from html.parser import HTMLParser
from importlib import resources

import pytest

from support import report_samples, samples
from support.profiles import kernel, profile
from support.rows import key
from tvmscope.analysis.waterfall import Bar, Waterfall
from tvmscope.core.profile import KernelIR, MachineCode, Resources
from tvmscope.core.session import from_json, to_json
from tvmscope.report.formats import html
from tvmscope.report.sections import verdict
from tvmscope.report.sections.page import Part

SECTIONS = (
    "verdict", "backends", "gap", "findings", "kernels", "roofline", "operators", "accuracy",
    "warnings", "environment", "raw",
)  # fmt: skip


class Page(HTMLParser):
    """What a browser would make of the document, as far as these tests ask."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.document = document
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.text = ""
        self._script: str | None = None
        self._style = False
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append((tag, values))
        self._script = (values.get("id") or "code") if tag == "script" else None
        self._style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._script, self._style = None, False

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data
        elif not self._style:
            self.text += f" {data}"

    def section(self, name: str) -> str:
        """The words of one section."""
        start = self.document.index(f'data-section="{name}"')
        return " ".join(
            re.sub(r"<[^>]*>", " ", self.document[start : self.document.index("</section>", start)])
            .replace("&#39;", "'")
            .split()
        )


@cache
def page(name: str) -> Page:
    return Page(html.render([report_samples.ALL[name]()]))


@pytest.mark.parametrize("name", report_samples.ALL)
def test_every_session_has_every_section(name: str) -> None:
    found = page(name)
    sections = [t[1]["data-section"] for t in found.tags if "data-section" in t[1]]
    assert [s for s in sections if s != "tuning"] == list(SECTIONS)
    assert ("tuning" in sections) == (name == "tuned")


@pytest.mark.parametrize("name", report_samples.ALL)
def test_nothing_is_loaded_from_elsewhere(name: str) -> None:
    for _tag, values in page(name).tags:
        assert "src" not in values
        assert (values.get("href") or "#").startswith("#")
        assert not any(key.startswith("on") for key in values)


def test_verdict_says_who_is_faster_by_how_much_and_why() -> None:
    said = page("profiled").section("verdict")
    assert "Yes, TVM is faster: tvmscope runs resnet50 1.09 times as fast as onnxruntime" in said
    assert "(44.0 ms against 48.1 ms)" in said
    assert "layer4.1.conv + 2 (−1.37 ms)" in said
    assert "The largest saving left, about 3.10 ms: Three kernels" in said


def test_no_two_of_many_like_parts_are_called_most_of_the_difference() -> None:
    bars = [Bar(label="profiler overhead", kind="overhead", delta_s=-3e-3)]
    bars += [Bar(label=f"conv{n}", kind="operator", delta_s=-1e-3 - n * 1e-6) for n in range(9)]
    gap = Waterfall(ours=key("a"), theirs=key("b"), ours_s=0.01, theirs_s=0.022, bars=tuple(bars))
    said = verdict._parts(gap)
    assert said.startswith("Of 9 parts of the difference of −12.0 ms to b, the largest are conv8 (")
    heavy = samples.replace(bars[-1], delta_s=-7e-3)
    gap = samples.replace(gap, bars=(*bars, heavy))
    assert "most of the difference of −12.0 ms is conv8 (−7.00 ms) and" in verdict._parts(gap)


def test_a_profile_from_a_disturbed_run_explains_nothing() -> None:
    session = report_samples.profiled()
    slow = samples.replace(session.profiles[0], end_to_end_s=0.5)
    found = Page(html.render([samples.replace(session, profiles=(slow, session.profiles[1]))]))
    said = found.section("verdict")
    assert "The profiles do not explain it. tvmscope took 500 ms while it was profiled" in said
    assert "of the difference of" not in said
    assert "Profile again on a quiet machine" in found.section("gap")


def test_calls_of_one_kernel_for_several_operators_keep_their_own_points() -> None:
    session = report_samples.profiled()
    same = [samples.replace(k, name="fused") for k in session.profiles[0].kernels]
    first = samples.replace(session.profiles[0], kernels=tuple(same))
    said = Page(html.render([samples.replace(session, profiles=(first,))])).section("kernels")
    assert "60 GFLOP/s 30% neither" in said
    assert "140 GFLOP/s 70% arithmetic" in said


def test_the_table_of_a_gpus_kernels_says_what_they_take() -> None:
    session = report_samples.profiled()
    assert "registers" not in Page(html.render([session])).section("kernels")
    first, *others = session.profiles[0].kernels
    first = samples.replace(first, symbol="ampere_fp16_s16816gemm_fp16_64x64_tn")
    taken = Resources(
        blocks=98, threads=128, registers=96, shared_bytes=49152, spilled_bytes=16, occupancy=0.25
    )
    kernels = (samples.replace(first, resources=taken), *others)
    one = samples.replace(session.profiles[0], kernels=kernels)
    session = samples.replace(session, profiles=(one,))
    said = Page(html.render([session])).section("kernels")
    assert "blocks x threads registers shared memory occupancy matrix instruction" in said
    assert "98 x 128 96, 16 B spilled 48 KiB 25% mma m16n8k16" in said
    assert from_json(json.loads(json.dumps(to_json(session)))).profiles == (one,)


def test_a_gpus_kernel_without_tensor_cores_says_why() -> None:
    session, target = report_samples.profiled(), "cuda:sm_90"
    code = MachineCode(
        symbol="s", template="depthwise", threads=64, blocks=7, registers=40, shared_bytes=0,
        spilled_bytes=0,
    )  # fmt: skip
    one = profile("tvmscope", kernel("conv", 1e-3), target=target)
    described = (KernelIR(name="conv", tree=(), code=code),)
    found = Page(html.render([samples.replace(session, profiles=(one,), kernel_ir=described)]))
    assert "7 x 64 40 0 B - none: each channel is convolved on its own" in found.section("kernels")


def test_an_explanation_never_contradicts_the_verdict() -> None:
    session = report_samples.profiled()
    ours, theirs = (samples.replace(p, end_to_end_s=p.end_to_end_s * f)
                    for p, f in zip(session.profiles, (1.12, 0.95), strict=True))  # fmt: skip
    said = Page(html.render([samples.replace(session, profiles=(ours, theirs))])).section("verdict")
    assert "Yes, TVM is faster" in said
    assert "While they were profiled, it was the other way round" in said
    assert "of the difference of" not in said


def test_no_cause_is_named_for_a_difference_that_cannot_be_told() -> None:
    said = samples.replace(report_samples.profiled(), comparisons=())
    close = [samples.result("onnxruntime", 0.0441), said.results[0]]
    session = samples.replace(said, results=tuple(close), comparisons=samples.compared(close))
    text = Page(html.render([session])).section("verdict")
    assert "There is no significant difference" in text
    assert "would have been seen" in text
    assert "of the difference of" not in text


def test_whiskers_are_never_cut() -> None:
    rows = [samples.result("tvmscope", 0.1), samples.result("torch", 0.12)]
    wide = samples.replace(rows[1], measurement=samples.measurement(0.12, spread=0.9))
    part = Part(samples.session(rows[0], wide), "m1")
    bars = [part.bar(row) for row in part.rows]
    assert bars[1]["length"] < bars[1]["high"] == 100
    assert bars[0]["length"] / bars[1]["length"] == pytest.approx(0.1 / 0.12, rel=0.02)


def test_a_row_that_dwarfs_the_others_is_off_the_scale() -> None:
    part = Part(samples.complete(), "m1")
    bars = {row.name: part.bar(row)["length"] for row in part.rows}
    assert [row.name for row in part.rows if part.is_off(row)] == ["tvm"]
    assert bars["tvmscope"] / bars["torch"] == pytest.approx(0.0482 / 0.094, rel=0.02)
    assert "A hatched bar goes far beyond the scale" in page("complete").section("backends")


def test_verdict_of_a_slower_an_equal_and_a_wrong_result() -> None:
    slower = samples.session(samples.result("torch", 0.05), samples.result("tvmscope", 0.1))
    said = Page(html.render([slower])).section("verdict")
    assert "No, TVM is slower: tvmscope takes 2.00 times as long for resnet50 as torch" in said
    assert "The reason is unknown" in said
    assert "There is no significant difference" in page("complete").section("verdict")
    assert "no valid result of TVM: tvmscope is wrong" in page("wrong_result").section("verdict")
    assert "no importer for 'aten::amax'" in page("failed_model").section("verdict")


def test_sections_without_data_name_the_command_that_fills_them() -> None:
    found = page("failed_backend")
    for name in ("gap", "findings", "kernels", "roofline", "operators"):
        assert re.search(r"This fills it: tvmscope \w+ torchvision:resnet50", found.section(name))


def test_command_quotes_a_name_with_a_blank() -> None:
    model = samples.replace(samples.MODEL, source="my model.onnx")
    found = Page(html.render([samples.session(samples.result("tvmscope", 0.1), model=model)]))
    assert "tvmscope profile 'my model.onnx'" in found.section("kernels")


def test_no_findings_is_said() -> None:
    assert "No rule found anything to improve" in page("no_findings").section("findings")


def test_findings_show_predicted_and_achieved_saving() -> None:
    said = page("profiled").section("findings")
    assert "predicted saving 3.10 ms achieved not tried" in said
    assert "predicted saving 400 us achieved +350 us" in said
    assert "tvmscope analyze torchvision:resnet50 --fix" in said


def test_kernels_have_sources_share_speed_and_roof() -> None:
    said = page("profiled").section("kernels")
    assert "fused_conv2d40_add_relu layer4.0.conv, layer4.0.bn, layer4.0.relu" in said
    assert "5.00 ms 11% 60 GFLOP/s 30% neither" in said
    assert "outside kernels, measured in the profiled run 1.29 ms" in said
    assert "loops, by schedule rule conv2d for i0 in 28 parallel for i1 in 64 serial" in said


def test_operators_show_each_backend_and_what_was_lost_or_won() -> None:
    said = page("profiled").section("operators")
    assert "layer4.1.conv, layer4.1.bn, layer4.1.relu 4.57 ms 5.93 ms −1.37 ms" in said


def test_a_kernel_above_its_roof_is_called_our_error() -> None:
    session = report_samples.profiled()
    fast = [samples.replace(k, flops=k.flops and k.flops * 9) for k in session.profiles[0].kernels]
    first = samples.replace(session.profiles[0], kernels=tuple(fast))
    found = Page(html.render([samples.replace(session, profiles=(first,))]))
    assert "a count of ours is wrong for fused_conv2d40" in found.section("roofline")


@pytest.mark.parametrize("name", report_samples.ALL)
def test_embedded_data_are_the_session(name: str) -> None:
    session = report_samples.ALL[name]()
    assert json.loads(page(name).scripts["m1-session"]) == json.loads(json.dumps(to_json(session)))


@pytest.mark.parametrize("name", ["profiled", "evil", "complete"])
def test_the_policy_allows_exactly_the_scripts_of_the_page(name: str) -> None:
    found = page(name)
    policy = next(v["content"] for t, v in found.tags if "http-equiv" in v) or ""
    allowed = re.findall(r"'(sha256-[^']+)'", policy)
    expected = [found.scripts["code"].encode()]
    if "plotly" in found.scripts:
        expected.append(gzip.decompress(base64.b64decode(found.scripts["plotly"])))
    hashes = [base64.b64encode(hashlib.sha256(text).digest()).decode() for text in expected]
    assert allowed == [f"sha256-{h}" for h in hashes]
    assert "unsafe-inline" not in policy.partition("script-src")[2]


def test_the_drawing_library_is_embedded_only_where_there_is_a_figure() -> None:
    shipped = resources.files("plotly").joinpath("package_data/plotly.min.js").read_bytes()
    packed = page("profiled").scripts["plotly"]
    assert gzip.decompress(base64.b64decode(packed)) == shipped
    assert len(packed) < len(shipped) / 2
    assert "plotly" not in page("complete").scripts


def test_templates_take_no_text_of_a_session_for_a_message() -> None:
    """`_(value)` would mark a foreign text as trusted HTML."""
    for file in resources.files("tvmscope.report").joinpath("templates").iterdir():
        assert not re.search(r"\b_\((?![\"'])", file.read_text()), file.name


@pytest.mark.parametrize("name", ["evil", "hostile_names"])
def test_hostile_names_add_no_element(name: str) -> None:
    plain, hostile = page("profiled"), page(name)
    kinds = {tag for tag, _values in plain.tags}
    assert {tag for tag, _values in hostile.tags} <= kinds
    scripts = [tag for tag, _values in hostile.tags].count("script")
    assert scripts == 3 + ("plotly" in hostile.scripts)
    assert "\x1b" not in hostile.text
    assert "\u202e" not in hostile.text
    assert "49" not in hostile.section("verdict")  # {{ 7*7 }} is text


def test_a_name_of_ten_thousand_characters_is_cut() -> None:
    assert max(len(word) for word in page("long").text.split()) <= 700


def test_several_models_share_a_page_with_a_summary_first() -> None:
    sessions = [report_samples.profiled(), samples.several_targets(), samples.failed_model()]
    found = Page(html.render(sessions))
    ids = [values["id"] for _tag, values in found.tags if values.get("id")]
    assert len(ids) == len(set(ids))
    assert found.text.index("geometric mean over 2 models") < found.text.index("Yes, TVM is faster")
    anchors = {v["href"] for t, v in found.tags if t == "a" and v.get("href")}
    assert anchors <= {f"#{name}" for name in ids}


def test_tables_and_figures_are_accessible() -> None:
    found = page("profiled")
    assert all(v.get("scope") for t, v in found.tags if t == "th")
    plots = [v for t, v in found.tags if "plot" in (v.get("class") or "").split()]
    assert len(plots) == 2
    assert all(v["role"] == "img" and v["aria-label"] for v in plots)


def test_fixes_stand_in_a_table_with_their_outcome() -> None:
    found = page("profiled").section("findings")
    assert "Fixes that were tried" in found
    assert "disabled_passes = none 400 us 350 us 300-400 us kept" in found
    assert "exec_mode = compiled 200 us −100 us −300 us to 100 us reverted not faster" in found
    assert "of 2 fixes tried, 1 were predicted within 35%" in found
