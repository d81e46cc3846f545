"""What the symbols of libraries' kernels tell."""

from __future__ import annotations

import pytest

from tvmscope.cuda.library.symbols import ORDINARY, instruction


@pytest.mark.parametrize(
    ("symbol", "found"),
    [
        (
            "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_bias_relu"
            "_execute_segment_k_off_kernel__5x_cublas",
            "wgmma",
        ),
        (
            "void cutlass::device_kernel<cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_void"
            "_f16_128x128x64_2x1x1_0_tnn_align8_warpspecialized>(Params)",
            "wgmma m64n128k16",
        ),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64", "wgmma"),
        ("nvjet_hsh_128x64_64x8_2x1_v_bz_TNT", "wgmma"),
        ("nvjet_sm100_tst_128x64_64x8_2x1_v_bz_TNT", "tcgen05"),
        ("ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_tn", "mma m16n8k16"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4>(Params)",
         "mma m16n8k8"),
        ("volta_fp16_s884cudnn_fp16_128x128_ldg8_relu_exp_interior_nhwc_tn_v1", "mma m8n8k4"),
        (
            "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc"
            "_tilesize128x64x32_stage3_warpsize2x2x1_g1_tensor16x8x8_execute_kernel__5x_cudnn",
            "mma m16n8k8",
        ),
        ("turing_int8_i8816cudnn_int8_128x128_ldg16_relu", "mma m8n8k16"),
        ("cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_64x1_nn_align8", "mma m16n16k16"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4"
         "_alignc4_execute_kernel__5x_cublas", ORDINARY),
        ("ampere_sgemm_32x128_tn", ORDINARY),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(Params)", ORDINARY),
        ("void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, true>", ORDINARY),
        ("ampere_scudnn_128x64_relu_interior_nn_v1", ORDINARY),
    ],
)  # fmt: skip
def test_a_symbol_tells_the_instruction(symbol: str, found: str) -> None:
    assert instruction(symbol) == found


@pytest.mark.parametrize(
    "symbol",
    [
        "void gemvNSP_kernel<__half, __half, __half, float, 1, 32, 4, 1024>(cublasGemvParamsEx)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __half>(cublasSplitKParams)",
        "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>(Params)",
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(Params)",
        "void at::native::vectorized_elementwise_kernel<8, at::native::relu>",
        "triton_poi_fused_convolution_relu_0",
        "cudnn::winograd_nonfused::winogradForwardData4x4",
        "conv2d_ab12_m64",
        "",
    ],
)
def test_what_the_symbol_does_not_tell_is_unknown(symbol: str) -> None:
    assert instruction(symbol) is None
