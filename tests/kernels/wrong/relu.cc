// relu with one fault a function. On the CPU as C++; the faults of accelerators on the
// stand-in, or compiled by nvcc (CUDA_KERNEL) for a real one.
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

#include <cstdint>

#if defined(CUDA_KERNEL)
#include <cuda_runtime.h>
constexpr DLDeviceType kAccelerator = kDLCUDA;
#else
#include "stand_in.h"
constexpr DLDeviceType kAccelerator = kDLExtDev;
#define __global__
#endif

namespace wrong {

using tvm::ffi::TensorView;

enum class Fault {
  kNone,
  kIntSizes,
  kNanLost,
  kTail,
  kMisaligned,
  kNonContiguous,
  kWrongDtype,
  // From here on for accelerators.
  kNoneThere,
  kDefaultStream,
  kNoGuard,
  kZeroSize,
};

constexpr bool OnAccelerator(Fault fault) { return fault >= Fault::kNoneThere; }

char* Data(TensorView tensor) {
  return static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset();
}

void Require(bool holds, const char* what) {
  if (!holds) TVM_FFI_THROW(ValueError) << "out and x have to " << what;
}

void CheckArguments(Fault fault, TensorView out, TensorView x) {
  const DLDeviceType device = OnAccelerator(fault) ? kAccelerator : kDLCPU;
  Require(x.device().device_type == device && out.device().device_type == device &&
              x.device().device_id == out.device().device_id,
          "be on one device of this build");
  const DLDataType dtype = x.dtype();
  const bool is_float = dtype.code == kDLFloat && (dtype.bits == 16 || dtype.bits == 32);
  const bool fits = fault == Fault::kWrongDtype ? dtype.bits == 16 || dtype.bits == 32 : is_float;
  Require(fits && dtype.lanes == 1 && out.dtype() == dtype, "be float16 or float32");
  Require(x.ndim() == out.ndim(), "have one shape");
  for (int i = 0; i < x.ndim(); ++i) Require(x.size(i) == out.size(i), "have one shape");
  if (x.numel() == 0) return;
  Require(fault == Fault::kNonContiguous || (x.IsContiguous() && out.IsContiguous()),
          "be contiguous");
  Require(x.data_ptr() != nullptr && out.data_ptr() != nullptr, "have memory");
  const auto distance = reinterpret_cast<intptr_t>(Data(out)) - reinterpret_cast<intptr_t>(Data(x));
  const int64_t bytes = x.numel() * dtype.bits / 8;
  Require(distance == 0 || distance >= bytes || -distance >= bytes, "not overlap");
}

template <typename Bits>
constexpr Bits kNegativeInfinity = sizeof(Bits) == 2 ? static_cast<Bits>(0xfc00)
                                                     : static_cast<Bits>(0xff800000);

// --- On the CPU ---

template <Fault kFault, typename Bits>
void OnCpu(TensorView out, TensorView x) {
  typedef Bits Element __attribute__((may_alias, aligned(1)));
  auto* to = reinterpret_cast<Element*>(Data(out));
  auto* from = reinterpret_cast<const Element*>(Data(x));
  // Every number above -infinity as an integer is a positive one, a zero or a NaN.
  constexpr Bits kBound = kFault == Fault::kNanLost ? Bits{0} : kNegativeInfinity<Bits>;
  using Size = std::conditional_t<kFault == Fault::kIntSizes, int, int64_t>;
  Size size = static_cast<Size>(x.numel());
  Size i = 0;
  if constexpr (kFault == Fault::kMisaligned) {
    typedef Bits Vector __attribute__((vector_size(16), may_alias));  // Aligned to 16 bytes.
    constexpr int kWidth = 16 / sizeof(Bits);
    for (; i + kWidth <= size; i += kWidth) {
      const Vector bits = *reinterpret_cast<const Vector*>(from + i);
      *reinterpret_cast<Vector*>(to + i) = bits & (bits > kBound);
    }
  }
  if constexpr (kFault == Fault::kTail) size -= size % 8;
  for (; i < size; ++i) to[i] = from[i] > kBound ? Bits{from[i]} : Bits{0};
}

// --- On an accelerator ---

constexpr int64_t kThreads = 256;

template <typename Bits>
#if defined(CUDA_KERNEL)
__global__ void Kernel(Bits* to, const Bits* from, int64_t size) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
#else
void Kernel(Bits* to, const Bits* from, int64_t size, int64_t first, int64_t step) {
#endif
  constexpr Bits kBound = sizeof(Bits) == 2 ? static_cast<Bits>(0xfc00)
                                            : static_cast<Bits>(0xff800000);
  for (int64_t i = first; i < size; i += step) to[i] = from[i] > kBound ? from[i] : Bits{0};
}

#if defined(CUDA_KERNEL)
int CurrentDevice() {
  int device = 0;
  cudaGetDevice(&device);
  return device;
}
void SetDevice(int device) { cudaSetDevice(device); }
#else
int CurrentDevice() { return stand_in::TheState().current; }
void SetDevice(int device) { stand_in::TheState().current = device; }
#endif

template <Fault kFault, typename Bits>
void OnDevice(TensorView out, TensorView x) {
  auto* to = reinterpret_cast<Bits*>(Data(out));
  auto* from = reinterpret_cast<const Bits*>(Data(x));
  const int64_t size = x.numel();
  const DLDevice device = x.device();
  const int former = CurrentDevice();
  if (kFault != Fault::kNoGuard) SetDevice(device.device_id);
  void* stream = kFault == Fault::kDefaultStream
                     ? nullptr
                     : TVMFFIEnvGetStream(device.device_type, device.device_id);
  const int64_t blocks = std::min<int64_t>((size + kThreads - 1) / kThreads, 4096);
  if (blocks > 0 || kFault == Fault::kZeroSize) {
#if defined(CUDA_KERNEL)
    Kernel<Bits><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(to, from, size);
#else
    stand_in::Launch(blocks, stream, to, from, [=](int64_t block, int64_t count) {
      Kernel(to, from, size, block, count);
    });
#endif
  }
  if (kFault != Fault::kNoGuard) SetDevice(former);
}

template <Fault kFault>
void Relu(TensorView out, TensorView x) {
  CheckArguments(kFault, out, x);
  if constexpr (OnAccelerator(kFault)) {
    x.dtype().bits == 16 ? OnDevice<kFault, int16_t>(out, x) : OnDevice<kFault, int32_t>(out, x);
  } else {
    x.dtype().bits == 16 ? OnCpu<kFault, int16_t>(out, x) : OnCpu<kFault, int32_t>(out, x);
  }
}

}  // namespace wrong

#pragma GCC diagnostic ignored "-Wunused-parameter"
#if !defined(CUDA_KERNEL)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(none, wrong::Relu<wrong::Fault::kNone>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(int_sizes, wrong::Relu<wrong::Fault::kIntSizes>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(nan_lost, wrong::Relu<wrong::Fault::kNanLost>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(tail, wrong::Relu<wrong::Fault::kTail>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(misaligned, wrong::Relu<wrong::Fault::kMisaligned>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(non_contiguous, wrong::Relu<wrong::Fault::kNonContiguous>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(wrong_dtype, wrong::Relu<wrong::Fault::kWrongDtype>);
#endif
TVM_FFI_DLL_EXPORT_TYPED_FUNC(none_there, wrong::Relu<wrong::Fault::kNoneThere>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(default_stream, wrong::Relu<wrong::Fault::kDefaultStream>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(no_guard, wrong::Relu<wrong::Fault::kNoGuard>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(zero_size, wrong::Relu<wrong::Fault::kZeroSize>);
