// What relu is, and what a backend has to provide.
//
// relu(x) is x where x > 0 or x is NaN, and +0 elsewhere. So -0.0 becomes +0.0, and a
// NaN keeps all its bits, sign and payload included.
//
// Read as a signed integer of its size, an IEEE 754 number that is to become zero lies
// between the integer's minimum (-0.0) and the bits of -infinity. Everything above is
// kept: zero and the positive numbers are >= 0, and the negative NaNs come right after
// -infinity. That makes relu one integer comparison, the same for every type, and leaves
// it untouched by the floating-point environment (subnormals flushed to zero, quieted NaNs).
#ifndef RELU_RELU_H_
#define RELU_RELU_H_

#include <tvm/ffi/container/tensor.h>

#include <cstdint>

namespace relu {

#if defined(CPU_KERNEL)
constexpr DLDeviceType kDeviceType = kDLCPU;
#elif defined(CUDA_KERNEL)
constexpr DLDeviceType kDeviceType = kDLCUDA;
#elif defined(ROCM_KERNEL)
constexpr DLDeviceType kDeviceType = kDLROCM;
#elif defined(XPU_KERNEL)
constexpr DLDeviceType kDeviceType = kDLOneAPI;
#elif defined(METAL_KERNEL)
constexpr DLDeviceType kDeviceType = kDLMetal;
#else
#error "relu.h: name the DLPack device type of this backend"
#endif

/// The address of a tensor's first element; `data_ptr` alone leaves the byte offset out. On Metal
/// `data_ptr` is an MTLBuffer object, so this is only good for comparing.
inline char* Data(tvm::ffi::TensorView tensor) {
  return static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset();
}

/// Calls `visit(neg_inf)` with the bits of -infinity in `dtype`, as the signed integer of
/// that type's size.
///
/// @return Whether `dtype` is one that relu is defined for.
template <typename Visitor>
bool VisitDtype(DLDataType dtype, Visitor&& visit) {
  if (dtype.lanes != 1) return false;
  if (dtype.code == kDLBfloat && dtype.bits == 16) {
    visit(static_cast<int16_t>(0xff80));
  } else if (dtype.code == kDLFloat && dtype.bits == 16) {
    visit(static_cast<int16_t>(0xfc00));
  } else if (dtype.code == kDLFloat && dtype.bits == 32) {
    visit(static_cast<int32_t>(0xff800000));
  } else if (dtype.code == kDLFloat && dtype.bits == 64) {
    visit(static_cast<int64_t>(0xfff0000000000000));
  } else {
    return false;
  }
  return true;
}

/// Writes relu(x) to out: the part that each backend implements.
///
/// The arguments have passed `CheckArguments` and hold at least one element. `out` is
/// either apart from `x` or the same memory.
void Run(tvm::ffi::TensorView out, tvm::ffi::TensorView x);

}  // namespace relu

#endif  // RELU_RELU_H_
