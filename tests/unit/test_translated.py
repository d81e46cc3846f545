"""Every sentence for people goes through translation, and none is translated too early."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tvmscope

ROOT = Path(tvmscope.__file__).parent
MAKERS = {"_": 1, "plural": 2, "msg": 1, "msgn": 2, "marked": 1, "word": 1}
"""Whose first arguments extractors read."""
SILENT = (
    "compiler/describe/machine_code.py", "compiler/describe/pass_dump.py", "compiler/manifest",
    "compiler/bisect/reproducers", "cuda/space.py", "cuda/library/cublaslt.py",
    "cuda/library/cudnn.py",
    "runtime/load_model.py", "runtime/tvm_compat.py", "report/formats/trace.py",
    "report/formats/google_benchmark.py",
)  # fmt: skip
"""Lines of loop trees, differences and scripts, which are code; what authors of plug-ins read; why
a configuration is left out, which nobody reads; what an artifact carries, which runs without this
package; formats that programs read."""
FOREIGN = frozenset(
    {"ValueError", "TypeError", "AssertionError", "OSError", "KeyError", "AttributeError"}
)
"""Errors of programmers, and those that are told inside a message of ours."""
_WORDS = re.compile(r"[A-Za-z]{2,}[,;:]? [a-z]{2,}|^[A-Z]?[a-z]+: ")
_CODE = re.compile(
    r"^(pip install|tvmscope (\w+ )?\w+|from [\w.]+ import|bold \w+|--\w+|text/html)"
    r"|\w\(|\\[wsdS(]|[{}];|<\w+>"
)
"""Commands, styles, calls and patterns."""
KNOWN = frozenset(
    {
        # vocabularies whose words are marked beside them, and names that programs read
        "with nothing", "no effect", "one sample", "not measured", "its own first run",
        "diagnosis rule", "row sums", "padded transpose", "conv2d in blocks",
        "tvm cuda", "an unknown distribution", "a server with key {}", "Usage: ",
        "timed out", "disk full", "speedup over {}", "schedule rule",
        "kernel compiler", "farm client",
        # what older scripts print, and what other programs say
        "avg latency (ms): {}\n", "model name", "out of memory", "can't allocate memory",
        "cannot allocate memory", "Fatal Python error", "Error message:", "Definition of a {}:",
        "Error caught from RPC call:", "unknown activation",
        # the layout of pictures and terminals
        "offset points", "lower right", "bold underline", "Glyph .* missing from font",
        "#left { width: 60%; } #loops { height: auto; } #said { height: auto; color: $warning; }",
        # documentation, made by a script
        "| then | what it was | today |",
        # of other libraries: an operator's declaration, the rest of an error
        "{}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        "\\nThe pattern attempting to be matched:",
        "{}, alone or with one of /{}",
        # what the profiler's trace calls a kernel's resources
        "registers per thread", "shared memory", "est. achieved occupancy %",
    }
)  # fmt: skip
"""Texts with words in them that nobody translates."""


def files() -> list[Path]:
    every = sorted(ROOT.rglob("*.py"))
    return [f for f in every if not str(f.relative_to(ROOT)).startswith(SILENT)]


def name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def excused(tree: ast.AST) -> set[int]:
    """Docstrings, texts that are given to a maker, parts of f-strings, errors of programmers."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            found.update(id(part) for part in node.values)
        elif isinstance(node, ast.Assert) and node.msg is not None:
            found.add(id(node.msg))
        elif isinstance(node, ast.Call):
            most = len(node.args) if name(node.func) in FOREIGN else MAKERS.get(name(node.func), 0)
            for argument in node.args[:most]:
                found.update(id(part) for part in ast.walk(argument))
    return found


def untranslated(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Sentences that no translator would see."""
    left_out = excused(tree)
    for node in ast.walk(tree):
        text = ""
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(str(v.value) if isinstance(v, ast.Constant) else "{}"
                           for v in node.values)  # fmt: skip
        if _WORDS.search(text) and not _CODE.search(text) and text not in KNOWN:
            yield node.lineno, text


def test_every_sentence_can_be_translated() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {text!r}"
        for file in files()
        for line, text in untranslated(ast.parse(file.read_text(encoding="utf-8")))
        if not (file.name == "minilm.py" and len(text) > 400)  # the model's input
    ]
    assert found == [], "say it with msg('... {name} ...', name=...), or _ where it is shown"


def early(tree: ast.AST) -> Iterator[int]:
    """Lines that translate while a module is imported: the language is not chosen yet."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue  # its annotations are evaluated when the command line is built
        if isinstance(child, ast.Call) and name(child.func) in ("_", "plural"):
            yield child.lineno
        yield from early(child)


def test_nothing_is_translated_while_modules_are_imported() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in sorted(ROOT.rglob("*.py"))
        for line in early(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert found == [], "write msg(...) or marked(...), and render it where it is shown"


def untold(tree: ast.AST) -> Iterator[int]:
    """Lines that report progress in plain texts, single words included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            if node.func.attr in ("stage", "step", "note") and owner.endswith("progress"):
                texts = (a for a in node.args if isinstance(a, ast.Constant | ast.JoinedStr))
                yield from (t.lineno for t in texts if re.search("[a-z]{2}", ast.unparse(t)))


def test_progress_is_reported_in_messages() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in sorted(ROOT.rglob("*.py"))
        for line in untold(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert found == [], "write progress.stage(msg('compile'), ...)"


def test_plain_progress_is_seen() -> None:
    assert list(untold(ast.parse("progress.stage('compile', name)")))
    assert list(untold(ast.parse("run.job.progress.step(1, 2, f'{n} sizes')")))
    assert not list(untold(ast.parse("progress.stage(msg('compile'), f'{a} {b}')")))


@pytest.mark.parametrize(
    "code",
    ["show.text('nothing was found')", "print(f'{n} kernels are slow')",
     "line = 'session: ' + name", "Text('no loop here')", "table.add_column('source operators')",
     "msg('{x} it is', x='a long way')", "_('{a}').format(a='some more words')"],
)  # fmt: skip
def test_plain_sentences_are_seen(code: str) -> None:
    assert list(untranslated(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    ["show.text(_('nothing was found'))", "print(f'{n}: {a}')", "'''A module's own words.'''",
     "raise ValueError('no such name here')", "plural('{n} kernel call', '{n} kernel calls', n)",
     "fix = 'pip install cuda-bindings'"],
)  # fmt: skip
def test_translated_sentences_and_code_are_let_through(code: str) -> None:
    assert not list(untranslated(ast.parse(code)))


def test_early_translations_are_seen() -> None:
    assert list(early(ast.parse("TITLE = _('Output')\nFLAG = Annotated[int, option(help=_('x'))]")))
    assert not list(early(ast.parse("def f(a: Annotated[int, option(_('x'))]): return _('x')")))
