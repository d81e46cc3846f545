// Kernels that do nothing but multiply and add, or read: what they reach is the GPU's roof.
// Each function gives a rate per second, or minus a CUDA error code.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

namespace wmma = nvcuda::wmma;

constexpr int kRepeats = 9, kThreads = 256, kChains = 16, kTiles = 8, kSteps = 4096;

__global__ void multiply_add(float* out, float x) {
  float sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = threadIdx.x + i;
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < kChains; ++i) sums[i] = fmaf(sums[i], x, x);
  float total = 0;
  for (int i = 0; i < kChains; ++i) total += sums[i];
  if (total == 42.5f) out[0] = total;  // never: keeps the work from being removed
}

// What a tensor core multiplies: the type, the sum's length of one product, and how a value is made.
struct Float16 {
  using type = half;
  static constexpr int k = 16;
  __device__ static half of(float x) { return __float2half(x); }
};
#ifdef NEWER_TYPES  // sm_80 and newer
struct Bfloat16 {
  using type = __nv_bfloat16;
  static constexpr int k = 16;
  __device__ static __nv_bfloat16 of(float x) { return __float2bfloat16(x); }
};
struct Tf32 {
  using type = wmma::precision::tf32;
  static constexpr int k = 8;
  __device__ static float of(float x) { return wmma::__float_to_tf32(x); }
};
#endif

template <typename Kind>
__global__ void tensor_cores(float* out, float x) {
  using T = typename Kind::type;
  wmma::fragment<wmma::matrix_a, 16, 16, Kind::k, T, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, Kind::k, T, wmma::col_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, Kind::k, float> sums[kTiles];
  wmma::fill_fragment(a, Kind::of(x));
  wmma::fill_fragment(b, Kind::of(x));
  for (int i = 0; i < kTiles; ++i) wmma::fill_fragment(sums[i], (float)i);  // equal ones would be one
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < kTiles; ++i) wmma::mma_sync(sums[i], a, b, sums[i]);
  float total = 0;
  for (int i = 0; i < kTiles; ++i)
    for (int k = 0; k < sums[i].num_elements; ++k) total += sums[i].x[k];
  if (total == 42.5f) out[0] = total;
}

__global__ void read_all(const float4* data, size_t count, int passes, float* out) {
  float total = 0;
  size_t step = (size_t)gridDim.x * blockDim.x;
  for (int pass = 0; pass < passes; ++pass)
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
      float4 v = __ldcg(&data[i]);  // not from the L1 caches, which together hold 33 MiB
      total += v.x + v.y + v.z + v.w;
    }
  if (total == 42.5f) out[0] = total;
}

// The shortest of several launches in seconds, by events; the first one only warms up.
template <typename Launch>
static double best_s(Launch launch) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  float best = 1e30f;
  for (int i = 0; i <= kRepeats; ++i) {
    cudaEventRecord(begin);
    launch();
    cudaEventRecord(end);
    cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (i > 0 && ms < best) best = ms;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return best * 1e-3;
}

static int blocks() {
  cudaDeviceProp device;
  return cudaGetDeviceProperties(&device, 0) ? 1 : device.multiProcessorCount * 8;
}

static double rate(double work, double seconds) {
  cudaError_t error = cudaGetLastError();
  return error ? -(double)error : work / seconds;
}

extern "C" double fma_float32() {
  float* out = nullptr;
  cudaMalloc(&out, 4);
  int n = blocks();
  double seconds = best_s([&] { multiply_add<<<n, kThreads>>>(out, 0.5f); });
  cudaFree(out);
  return rate(2.0 * kChains * kSteps * kThreads * n, seconds);
}

template <typename Kind>
static double mma() {
  float* out = nullptr;
  cudaMalloc(&out, 4);
  int n = blocks();
  double seconds = best_s([&] { tensor_cores<Kind><<<n, kThreads>>>(out, 0.5f); });
  cudaFree(out);
  return rate(2.0 * 16 * 16 * Kind::k * kTiles * kSteps * (kThreads / 32) * n, seconds);
}

extern "C" double mma_float16() { return mma<Float16>(); }
#ifdef NEWER_TYPES
extern "C" double mma_bfloat16() { return mma<Bfloat16>(); }
extern "C" double mma_tf32() { return mma<Tf32>(); }
#endif

extern "C" double read_bytes(long long size, int passes) {
  float4* data = nullptr;
  float* out = nullptr;
  cudaMalloc(&data, size);
  cudaMalloc(&out, 4);
  cudaMemset(data, 0, size);
  int n = blocks();
  double seconds =
      best_s([&] { read_all<<<n, kThreads>>>(data, size / sizeof(float4), passes, out); });
  cudaFree(data);
  cudaFree(out);
  return rate((double)size * passes, seconds);
}
