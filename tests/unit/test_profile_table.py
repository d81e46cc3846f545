"""The table of kernels: its numbers are there however narrow the terminal is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from profiles import kernel, profile, session
from tvmscope.report import profile_table


@pytest.mark.parametrize("columns", [80, 100, 160])
def test_long_names_give_way_to_the_times(columns: int) -> None:
    long = kernel("fused_conv2d_add_relu" * 4, 2.05e-3, "blocks.1.conv/conv2d", "blocks.1.norm")
    out = io.StringIO()
    console = Console(file=out, width=columns)
    console.print(profile_table.render(session(profile("tvmscope", long)), 5))
    assert "2.05 ms" in out.getvalue()
    assert "GFLOP/s" in out.getvalue()
