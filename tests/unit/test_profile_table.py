"""The table of kernels: its numbers are there however narrow the terminal is."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from support.profiles import kernel, profile, session
from tvmscope.core.profile import KernelIR, MachineCode, Resources
from tvmscope.core.session import Session
from tvmscope.report.terminal import profile_table


@pytest.mark.parametrize("columns", [80, 100, 160])
def test_long_names_give_way_to_the_times(columns: int) -> None:
    long = kernel("fused_conv2d_add_relu" * 4, 2.05e-3, "blocks.1.conv/conv2d", "blocks.1.norm")
    out = io.StringIO()
    console = Console(file=out, width=columns)
    console.print(profile_table.render(session(profile("tvmscope", long)), 5))
    assert "2.05 ms" in out.getvalue()
    assert "GFLOP/s" in out.getvalue()


def test_a_name_is_folded_not_cut_and_the_share_of_the_roof_is_shown() -> None:
    name = "fused_winograd_conv2d_add_relu_add1"
    long = kernel(name, 2e-3, "blocks.1.conv/conv2d", flops=1e8, bytes=1e6)
    out = io.StringIO()
    Console(file=out, width=80).print(profile_table.render(session(profile("tvmscope", long)), 5))
    lines = out.getvalue().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("fused_"))
    assert "".join(line[:16].strip() for line in lines[first : first + 3]) == name
    assert lines[first].endswith("25%")  # 1e8 flops at 200 GFLOP/s take 0.5 ms of 2 ms


def test_a_profiler_that_seems_to_cost_less_than_nothing_costs_less_than_the_noise() -> None:
    seen = profile("tvmscope", kernel("k", 1e-3))
    out = io.StringIO()
    quick = replace(seen, end_to_end_s=2 * seen.profiled_s)
    Console(file=out, width=200).print(profile_table.render(session(quick), 5))
    assert "it costs less than the noise" in out.getvalue()


def on_gpu() -> Session:
    taken = Resources(
        blocks=98, threads=128, registers=96, shared_bytes=49152, spilled_bytes=16, occupancy=0.25
    )
    kernels = (
        kernel("sm90_xmma_fprop_implicit_gemm", 2e-3, resources=taken),
        kernel("Memcpy DtoD", 1e-3),
    )
    return session(profile("torch-compile", *kernels, target="cuda:sm_90"))


def shown(found: Session, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(profile_table.render(found, 5))
    return out.getvalue()


def test_a_wide_table_shows_what_a_gpus_kernels_take() -> None:
    lines = shown(on_gpu(), 160).splitlines()
    head = next(line for line in lines if "registers" in line)
    row = next(line for line in lines if "98 x 128" in line)
    assert head.split()[-6:] == ["x", "threads", "registers", "shared", "memory", "occupancy"]
    assert " ".join(row.split()).endswith("98 x 128 96, 16 B spilled 48 KiB 25%")
    copy = next(line for line in lines if line.startswith("Memcpy"))
    assert copy.split()[-4:] == ["-"] * 4


def test_a_narrow_table_and_one_of_a_cpu_do_not() -> None:
    assert "registers" not in shown(on_gpu(), 100)
    assert "registers" not in shown(session(profile("tvmscope", kernel("k", 1e-3))), 160)


def test_an_older_profile_takes_it_from_the_kernels_code() -> None:
    code = MachineCode(
        symbol="s", template="conv2d", threads=64, blocks=7, registers=40, shared_bytes=0,
        spilled_bytes=0,
    )  # fmt: skip
    found = session(
        profile("tvmscope", kernel("conv", 1e-3), target="cuda:sm_90"),
        kernel_ir=(KernelIR(name="conv", tree=(), code=code),),
    )
    assert "7 x 64" in shown(found, 160)
