"""Kernels under the roofs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support import profiles, samples
from support.rows import key
from tvmscope.analysis import roofline
from tvmscope.core.profile import KernelTime, Roof
from tvmscope.report.sections import charts


def point(kernel: KernelTime, **more) -> roofline.Point:
    (found,) = roofline.points(profiles.session(profiles.profile("tvmscope", kernel), **more))
    return found


def kernel(total_s: float, flops: float, moved: float, calls: int = 1) -> KernelTime:
    return profiles.kernel("k", total_s, flops=flops, bytes=moved, calls=calls)


def test_much_work_per_byte_is_compute_bound() -> None:
    found = point(kernel(0.01, 1.6e9, 1e6))
    assert (found.bound, found.above) == ("compute", False)
    assert found.share == pytest.approx(0.8)
    assert found.intensity == 1600
    assert found.flops_per_s == pytest.approx(160e9)


def test_what_no_cache_holds_is_held_against_dram() -> None:
    found = point(kernel(0.01, 1e8, 360e6))
    assert found.bound == "memory"
    assert found.share == pytest.approx(0.9)


def test_what_fits_the_outermost_cache_is_held_against_that() -> None:
    # 4 MiB at DRAM's 40 GB/s would be 100 us; the cache reads it in 26 us
    found = point(kernel(100e-6, 1e6, 4 << 20))
    assert found.share == pytest.approx((4 << 20) / 160e9 / 100e-6)
    assert found.bound == "neither"


def test_the_working_set_is_that_of_one_call() -> None:
    one, ten = point(kernel(1e-3, 1e6, 4 << 20)), point(kernel(1e-2, 1e7, 40 << 20, calls=10))
    assert ten.share == pytest.approx(one.share)


def test_faster_than_dram_means_that_the_data_was_in_a_cache() -> None:
    # 20 MB are more than the probed 8 MiB, yet 100 GB/s cannot come from DRAM
    found = point(kernel(200e-6, 1e6, 20e6))
    assert not found.above
    assert found.share == pytest.approx(20e6 / 160e9 / 200e-6)


@pytest.mark.parametrize(
    "impossible", [kernel(0.01, 4e9, 1e6), kernel(10e-6, 1e3, 8e6)], ids=["flops", "bytes"]
)
def test_above_every_roof_is_flagged(impossible: KernelTime) -> None:
    assert point(impossible).above


def test_a_few_percent_above_a_roof_are_noise() -> None:
    assert not point(kernel(0.01, 2.06e9, 1e6)).above


def test_far_below_both_roofs_is_bound_by_neither() -> None:
    assert point(kernel(0.01, 0.8e9, 1e6)).bound == "neither"


def test_no_point_without_counts_or_roofs() -> None:
    bare = profiles.profile("tvmscope", profiles.kernel("k", 0.1), kernel(0.1, 1e9, 0))
    assert roofline.points(profiles.session(bare)) == ()
    full = profiles.profile("tvmscope", kernel(0.1, 1e9, 1e6))
    assert roofline.points(profiles.session(full, roofs=())) == ()


def test_the_roof_of_fewer_threads_counts_where_it_is_the_higher_one() -> None:
    one = replace(profiles.ROOFS[0], threads=1, flops_per_s=400e9)
    assert point(kernel(0.01, 2e9, 1e6), roofs=(one, *profiles.ROOFS)).share == pytest.approx(0.5)
    many = replace(profiles.ROOFS[0], threads=64, flops_per_s=9e12)
    assert point(kernel(0.01, 2e9, 1e6), roofs=(many, *profiles.ROOFS)).share == pytest.approx(1)


def test_a_gpu_profile_is_not_held_against_the_cpu() -> None:
    on_gpu = profiles.profile("tvmscope", kernel(0.01, 1e9, 1e6), target="cuda:sm_90")
    assert roofline.points(profiles.session(on_gpu)) == ()
    roofs = tuple(replace(r, device="cuda") for r in profiles.ROOFS)
    assert len(roofline.points(profiles.session(on_gpu, roofs=roofs))) == 1


def test_a_row_that_was_profiled_alone_has_its_precision_in_its_key() -> None:
    half = profiles.profile(key("tvmscope", precision="float16"), kernel(0.01, 1e9, 1e6))
    assert roofline.points(samples.session(profiles=(half,), roofs=profiles.ROOFS)) == ()
    full = profiles.profile("tvmscope", kernel(0.01, 1e9, 1e6))
    assert len(roofline.points(samples.session(profiles=(full,), roofs=profiles.ROOFS))) == 1


def test_a_precision_without_a_roof_has_no_points() -> None:
    half = profiles.profile(key("tvmscope", precision="float16"), kernel(0.01, 1e9, 1e6))
    row = samples.result("tvmscope", 0.01, precision="float16")
    found = roofline.points(samples.session(row, profiles=(half,), roofs=profiles.ROOFS))
    assert found == ()


GPU_ROOFS = (
    Roof(dtype="float32", threads=1, flops_per_s=50e12, bytes_per_s=None, how="fma", device="cuda"),
    Roof(
        dtype="float32", threads=1, flops_per_s=300e12, bytes_per_s=None, how="mma", device="cuda",
        products="tf32",
    ),
    Roof(
        dtype="bfloat16", threads=1, flops_per_s=700e12, bytes_per_s=None, how="mma", device="cuda",
    ),
    Roof(
        dtype="float32", threads=1, flops_per_s=None, bytes_per_s=4e12, how="read", device="cuda",
        level="DRAM",
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("products", "rate"), [(None, 50e12), ("tf32", 300e12), ("tf32x3", 100e12)]
)
def test_a_float32_kernel_is_held_against_the_roof_of_its_products(products, rate: float) -> None:
    one = replace(kernel(1e-3, 40e9, 1e6), products=products)
    on_gpu = profiles.profile("tvmscope", one, target="cuda:sm_90")
    (found,) = roofline.points(profiles.session(on_gpu, roofs=GPU_ROOFS))
    assert found.share == pytest.approx(40e12 / rate)


def test_three_products_are_not_held_against_multiply_adds_if_nothing_else_is_known() -> None:
    one = replace(kernel(1e-3, 90e9, 1e6), products="tf32x3")  # over the roof of multiply-adds
    on_gpu = profiles.profile("tvmscope", one, target="cuda:sm_90")
    old = (GPU_ROOFS[0], GPU_ROOFS[-1])
    assert roofline.points(profiles.session(on_gpu, roofs=old)) == ()
    (found,) = roofline.points(profiles.session(on_gpu, roofs=GPU_ROOFS))
    assert not found.above


def test_bfloat16_has_its_own_roof() -> None:
    half = profiles.profile(
        key("tvmscope", "cuda:sm_90", precision="bfloat16"), kernel(1e-3, 70e9, 1e6)
    )
    (found,) = roofline.points(profiles.session(half, roofs=GPU_ROOFS))
    assert found.share == pytest.approx(0.1)


def test_the_figure_has_a_flat_roof_for_each_way_to_multiply() -> None:
    kernels = [replace(kernel(1e-3, 40e9, 1e6), products=products) for products in (None, "tf32x3")]
    on_gpu = profiles.profile("tvmscope", *kernels, target="cuda:sm_90")
    (figure,) = charts.rooflines(profiles.session(on_gpu, roofs=GPU_ROOFS))
    assert [line.label for line in figure.lines] == [
        "DRAM 4 TB/s", "three TF32 products 100 TFLOP/s", "arithmetic 50 TFLOP/s",
    ]  # fmt: skip
    slope, *flats = figure.lines
    assert slope.end[1] == 100e12  # up to the highest
    assert [(flat.start, flat.end[1]) for flat in flats] == [
        ((25.0, 100e12), 100e12), ((12.5, 50e12), 50e12),
    ]  # fmt: skip
