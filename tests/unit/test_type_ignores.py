"""A place where mypy is told to look away says why, and no module is left out without a reason."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
IGNORE = re.compile(r"#\s*type:\s*ignore\[[\w, -]+\](?P<reason>\s+#\s*\S.*)?$")


def test_every_ignore_has_a_code_and_a_reason() -> None:
    """The reason stands behind it, or as a comment in the line before."""
    bare = []
    for file in sorted((ROOT / "src").rglob("*.py")):
        lines = file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            if "type: ignore" not in line:
                continue
            found = IGNORE.search(line)
            before = lines[number - 1].strip() if number else ""
            if found is None or not (found["reason"] or before.startswith("#")):
                bare.append(f"{file.relative_to(ROOT)}:{number + 1}")
    assert bare == []


def test_mypy_checks_the_whole_package_but_embedded_languages() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert settings["strict"] is True
    assert settings["packages"] == ["tvmscope"]
    left_out = [m for o in settings["overrides"] if o.get("ignore_errors") for m in o["module"]]
    ours = [m for o in settings["overrides"] for m in o["module"] if m.startswith("tvmscope")]
    # Triton's language and TVMScript
    assert left_out == ours == [
        "tvmscope.cuda.templates.*", "tvmscope.compiler.schedules.cuda.fragments"
    ]  # fmt: skip
