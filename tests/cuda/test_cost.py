"""The space offers what the GPU can run; the model ranks what was measured to be best high."""

from __future__ import annotations

from dataclasses import replace

import draws
import pytest

from tvmscope.cuda.binding import bind
from tvmscope.cuda.config import Config
from tvmscope.cuda.cost import estimate, estimates
from tvmscope.cuda.gpus import GPUS, gpu_of, gpu_with
from tvmscope.cuda.shortlist import best
from tvmscope.cuda.space import configs, why_illegal
from tvmscope.cuda.units import Conv2d, Epilogue, Matmul, Unit
from tvmscope.errors import UsageError

H200 = gpu_of("sm_90")
# ResNet-50 in float16 at batch 1 on an H200: image, channels, window, stride, residual, measured
# us, and the fastest of about 110 configurations: tile, split-K, stages (4 warps throughout)
MEASURED = [
    (224, 8, 64, 7, 2, False, 5.97, (64, 64, 64), 1, 3),
    (56, 64, 64, 1, 1, False, 1.99, (32, 64, 64), 1, 5),
    (56, 64, 64, 3, 1, False, 3.79, (64, 32, 64), 1, 5),
    (56, 64, 256, 1, 1, False, 2.53, (64, 64, 64), 1, 3),
    (56, 64, 256, 1, 1, True, 2.79, (64, 32, 64), 1, 3),
    (56, 256, 64, 1, 1, False, 2.72, (64, 32, 64), 1, 3),
    (56, 256, 128, 1, 1, False, 2.94, (64, 64, 64), 1, 3),
    (56, 128, 128, 3, 2, False, 4.70, (64, 32, 128), 1, 3),
    (56, 256, 512, 1, 2, False, 2.88, (64, 64, 64), 1, 3),
    (28, 128, 512, 1, 1, True, 2.74, (64, 64, 128), 1, 5),
    (28, 512, 128, 1, 1, False, 3.05, (64, 32, 64), 1, 5),
    (28, 128, 128, 3, 1, False, 4.68, (64, 32, 128), 1, 3),
    (28, 512, 256, 1, 1, False, 3.08, (64, 32, 64), 1, 5),
    (28, 256, 256, 3, 2, False, 5.87, (64, 32, 64), 4, 3),
    (28, 512, 1024, 1, 2, False, 3.19, (64, 32, 64), 1, 5),
    (14, 256, 1024, 1, 1, True, 2.83, (64, 32, 64), 1, 3),
    (14, 1024, 256, 1, 1, False, 4.00, (16, 32, 128), 1, 3),
    (14, 256, 256, 3, 1, False, 5.75, (64, 32, 64), 4, 3),
    (14, 1024, 512, 1, 1, False, 4.64, (64, 32, 128), 2, 3),
    (14, 512, 512, 3, 2, False, 6.07, (64, 32, 64), 8, 3),
    (14, 1024, 2048, 1, 2, False, 3.97, (64, 32, 128), 1, 3),
    (7, 512, 2048, 1, 1, True, 3.08, (64, 32, 128), 1, 3),
    (7, 2048, 512, 1, 1, False, 4.50, (16, 64, 64), 4, 5),
    (7, 512, 512, 3, 1, False, 6.07, (64, 32, 64), 8, 5),
]


def measured() -> list[tuple[Conv2d, Config, float]]:
    out = []
    for h, c, oc, r, stride, residual, us, (m, n, k), split, stages in MEASURED:
        pad = r // 2
        epilogue = Epilogue(bias=True, activation="relu", residual="before" if residual else "none")
        unit = Conv2d(
            dtype="float16", n=1, h=h, w=h, c=c, oc=oc, r=r, s=r, stride=(stride, stride),
            padding=(pad, pad, pad, pad), epilogue=epilogue,
        )  # fmt: skip
        config = Config(template="conv2d", m=m, n=n, k=k, split=split, stages=stages)
        out.append((unit, config, us))
    return out


def test_measured_winners_rank_in_the_first_quarter() -> None:
    for unit, winner, _ in measured():
        ranked = estimates(unit, H200)
        us = estimate(unit, winner, H200).us
        better = sum(e.us < us for e in ranked)
        assert better <= len(ranked) / 4, f"{unit.label}: {better} of {len(ranked)} rank higher"


def test_estimates_are_near_what_was_measured() -> None:
    ratios = [estimate(unit, config, H200).us / us for unit, config, us in measured()]
    assert all(0.75 < ratio < 1.35 for ratio in ratios), ratios
    assert sum(abs(ratio - 1) < 0.15 for ratio in ratios) >= 0.75 * len(ratios)


def test_measured_winners_tiles_are_among_the_candidates_for_most_shapes() -> None:
    hits = 0
    for unit, winner, _ in measured():
        tiles = [(e.config.m, e.config.n, e.config.split) for e in best(unit, H200, 25)]
        hits += (winner.m, winner.n, winner.split) in tiles
    assert hits >= 0.6 * len(MEASURED)


def units() -> list[Unit]:
    makers = (
        draws.conv2d, draws.matmul, draws.matvec, draws.depthwise, draws.pool, draws.attention,
        draws.norm, draws.softmax, draws.group_norm,
    )  # fmt: skip
    return [make(seed)[0] for make in makers for seed in range(4)]


@pytest.mark.parametrize("arch", list(GPUS))
def test_space_offers_only_what_the_gpu_can_run(arch: str) -> None:
    gpu = gpu_of(arch)
    for unit in units():
        offered = list(configs(unit, gpu))
        assert offered, unit.label
        for config in offered:
            binding = bind(unit, config)
            assert all(size > 0 for size in binding.grid)
            assert binding.grid[1] <= 65535
            assert binding.grid[2] <= 65535
            assert config.warps * 32 <= 1024
            assert config.pdl == 0 or gpu.has_dependent_launch


def test_what_a_gpu_cannot_run_is_named() -> None:
    unit = Matmul(dtype="float16", m=512, n=512, k=512)
    tile = Config(template="matmul", m=128, n=128, k=64)
    assert why_illegal(unit, tile, H200) is None
    for changes, gpu, reason in (
        ({"m": 48}, H200, "not a power of two"),
        ({"m": 256, "n": 256}, H200, "accumulators"),
        ({"stages": 6, "k": 128}, H200, "shared memory"),
        ({"split": 7}, H200, "empty"),
        ({"pdl": 1}, gpu_of("sm_80"), "dependent launch"),
        ({"template": "conv2d"}, H200, "does not compute matmul"),
        ({"template": "attention"}, H200, "does not compute matmul"),
    ):
        found = why_illegal(unit, replace(tile, **changes), gpu)  # type: ignore[arg-type]
        assert found is not None, changes
        assert reason in found


def test_best_is_sorted_distinct_and_the_same_every_time() -> None:
    unit, _, _ = measured()[2]
    found = best(unit, H200, 25)
    assert found == best(unit, H200, 25)
    assert len({e.config for e in found}) == len(found) == 25
    ranked = [e for e in found if e.config.layout == "kn" and e.config.pdl == 2]
    assert [e.us for e in ranked] == sorted(e.us for e in ranked)
    assert {e.config.pdl for e in found} == {0, 1, 2}
    assert {e.config.layout for e in found} == {"kn", "nk"}


def test_large_products_take_large_tiles_and_small_ones_enough_blocks() -> None:
    large = best(Matmul(dtype="float16", m=4096, n=4096, k=4096), H200, 1)[0]
    assert large.config.m * large.config.n >= 128 * 256
    small = best(Matmul(dtype="float16", m=197, n=768, k=768), H200, 1)[0]
    assert small.blocks >= 80


def test_unknown_architectures_are_refused() -> None:
    with pytest.raises(UsageError, match="known architectures are sm_80"):
        gpu_of("sm_35")


def test_channels_that_are_no_whole_loads_cost_more_than_padded_ones() -> None:
    def us(channels: int) -> float:
        unit = Conv2d(
            dtype="float16", n=1, h=40, w=40, c=channels, oc=64, r=3, s=3, padding=(1, 1, 1, 1)
        )
        return best(unit, H200, 1)[0].us

    assert us(32) < us(28) < us(27)


@pytest.mark.parametrize(
    ("arch", "like", "block_kib"),
    [
        ("sm_87", "RTX 3090", 99), ("sm_103", "B200", 227), ("sm_121", "RTX 5090", 99),
        ("sm_130", "RTX 5090", 99), ("sm_90", "H200", 227),
    ],
)  # fmt: skip
def test_an_architecture_that_is_not_in_the_table_is_like_an_older_one(
    arch: str, like: str, block_kib: int
) -> None:
    gpu = gpu_of(arch)
    assert (gpu.arch, gpu.name, gpu.block_shared_bytes) == (arch, like, block_kib << 10)
    assert gpu.capability == int(arch[3:])


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a", "znver4"])
def test_older_ones_and_other_words_are_none(arch: str) -> None:
    with pytest.raises(UsageError, match="known architectures are"):
        gpu_of(arch)


def test_the_template_for_sm_90_is_left_to_it() -> None:
    unit = Matmul(dtype="float16", m=4096, n=4096, k=4096)
    tile = Config(template="persistent", m=128, n=128, k=64)
    assert why_illegal(unit, tile, H200) is None
    assert why_illegal(unit, tile, gpu_of("sm_100")) == "persistent is not for sm_100"
    assert not any(c.template == "persistent" for c in configs(unit, gpu_of("sm_120")))


RTX_3060 = {
    "multiprocessors": 28, "l2_cache_size_bytes": 3 << 20,
    "max_shared_memory_per_block_optin": 99 << 10,
}  # fmt: skip


def test_a_smaller_gpu_of_an_architecture_is_modelled_as_such() -> None:
    table, small = gpu_of("sm_86"), gpu_with("sm_86", RTX_3060)
    assert (small.sms, small.l2_bytes) == (28, 3 << 20)
    assert small.half_flops_per_us / small.sms == table.half_flops_per_us / table.sms
    assert small.sm_bytes_per_us == table.sm_bytes_per_us
    large = Matmul(dtype="float16", m=2048, n=2048, k=2048)
    config = best(large, table, 1)[0].config
    assert 2.5 < estimate(large, config, small).us / estimate(large, config, table).us < 3.5
    short = Matmul(dtype="float16", m=128, n=768, k=768)  # 24 tiles, which fill the smaller one
    assert best(short, small, 1)[0].blocks <= 28 < best(short, table, 1)[0].blocks <= 82


def test_a_target_that_names_only_an_architecture_takes_the_table() -> None:
    cross = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152}
    for arch, gpu in GPUS.items():
        assert gpu_with(arch, cross) == gpu
    described = {
        "multiprocessors": 132, "l2_cache_size_bytes": 60 << 20,
        "max_shared_memory_per_block_optin": 227 << 10,
    }  # fmt: skip
    assert gpu_with("sm_90", described) == H200  # what an H200's driver says
    assert gpu_with("sm_86", described).block_shared_bytes == 99 << 10  # never more than compiles
