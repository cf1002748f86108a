// relu on CUDA and ROCm: one kernel, which moves 16 bytes at a time where it can.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <algorithm>
#include <cstdint>

#include "../relu.h"
#include "runtime.h"

namespace relu {
namespace {

constexpr unsigned kThreads = 256;
// Enough for every GPU to be busy. Larger tensors are done in strides, so the number of elements
// has no limit.
constexpr int64_t kMaxBlocks = 4096;
constexpr int64_t kVectorBytes = 16;

template <typename Bits>
constexpr int64_t kPerVector = kVectorBytes / sizeof(Bits);

template <typename Bits>
struct alignas(kVectorBytes) Vector {
  Bits element[kPerVector<Bits>];
};

/// `neg_inf` are the bits of -infinity (see relu.h).
template <typename Bits>
__device__ Bits Relu(Bits bits, Bits neg_inf) {
  return bits > neg_inf ? bits : Bits{0};
}

/// One element at an address that may be no multiple of its size: that needs access by bytes.
template <typename Bits>
__device__ void ReluUnaligned(char* out, const char* x, Bits neg_inf) {
  Bits bits;
  for (size_t i = 0; i < sizeof(Bits); ++i) reinterpret_cast<char*>(&bits)[i] = x[i];
  bits = Relu(bits, neg_inf);
  for (size_t i = 0; i < sizeof(Bits); ++i) out[i] = reinterpret_cast<const char*>(&bits)[i];
}

/// How the elements are split: `head` single ones, `vectors` of 16 bytes, then single ones again.
struct Split {
  int64_t head;
  int64_t vectors;
  int64_t numel;
};

// `out` and `x` may be the same memory: each element is read and written by one thread.
template <typename Bits, bool kAligned>
__global__ void Kernel(char* out, const char* x, Split split, Bits neg_inf) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  if (kAligned) {
    auto* out_vectors = reinterpret_cast<Vector<Bits>*>(out + split.head * sizeof(Bits));
    auto* x_vectors = reinterpret_cast<const Vector<Bits>*>(x + split.head * sizeof(Bits));
    for (int64_t i = first; i < split.vectors; i += step) {
      Vector<Bits> vector = x_vectors[i];
#pragma unroll
      for (int64_t j = 0; j < kPerVector<Bits>; ++j) {
        vector.element[j] = Relu(vector.element[j], neg_inf);
      }
      out_vectors[i] = vector;
    }
  }
  const int64_t in_vectors = split.vectors * kPerVector<Bits>;
  for (int64_t i = first; i < split.numel - in_vectors; i += step) {
    const int64_t at = i < split.head ? i : i + in_vectors;
    if (kAligned) {
      reinterpret_cast<Bits*>(out)[at] = Relu(reinterpret_cast<const Bits*>(x)[at], neg_inf);
    } else {
      ReluUnaligned(out + at * sizeof(Bits), x + at * sizeof(Bits), neg_inf);
    }
  }
}

/// Vectors need both addresses to be multiples of 16 after the same number of elements.
template <typename Bits>
Split SplitElements(const char* out, const char* x, int64_t numel) {
  const auto misaligned = reinterpret_cast<uintptr_t>(out) % kVectorBytes;
  if (misaligned != reinterpret_cast<uintptr_t>(x) % kVectorBytes || misaligned % sizeof(Bits)) {
    return {0, 0, numel};
  }
  const int64_t before = (kVectorBytes - misaligned) % kVectorBytes / sizeof(Bits);
  const int64_t head = std::min(before, numel);
  return {head, (numel - head) / kPerVector<Bits>, numel};
}

template <typename Bits>
void Launch(char* out, const char* x, int64_t numel, Bits neg_inf, GPU(Stream_t) stream) {
  Split split = SplitElements<Bits>(out, x, numel);
  const int64_t single = numel - split.vectors * kPerVector<Bits>;
  const int64_t blocks = (std::max(split.vectors, single) + kThreads - 1) / kThreads;
  const bool aligned = (reinterpret_cast<uintptr_t>(out) | reinterpret_cast<uintptr_t>(x)) %
                           sizeof(Bits) == 0;
  auto* kernel = aligned ? Kernel<Bits, true> : Kernel<Bits, false>;
  void* arguments[] = {&out, &x, &split, &neg_inf};
  // Unlike <<<>>>, this returns the error of this launch.
  Check(GPU(LaunchKernel)(reinterpret_cast<const void*>(kernel),
                          dim3(static_cast<unsigned>(std::min(blocks, kMaxBlocks))), dim3(kThreads),
                          arguments, 0, stream),
        "launching the kernel");
}

}  // namespace

void Run(tvm::ffi::TensorView out, tvm::ffi::TensorView x) {
  const DLDevice device = x.device();
  const DeviceGuard guard(device.device_id);
  // The stream that the framework works on now. Another one would race with it.
  auto* stream =
      static_cast<GPU(Stream_t)>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  VisitDtype(x.dtype(), [&](auto neg_inf) {
    Launch(Data(out), Data(x), x.numel(), neg_inf, stream);
  });
}

}  // namespace relu
