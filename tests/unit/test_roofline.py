"""Kernels under the roofs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support import profiles, samples
from support.rows import key
from tvmscope.analysis import roofline
from tvmscope.core.profile import KernelTime


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
