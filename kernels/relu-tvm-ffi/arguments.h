// The checks on relu's arguments. A message names the argument, says what it is and what it
// needs to be.
//
// Only API that tvm-ffi has had since 0.1.0 is used here, so any release's headers will do.
#ifndef RELU_ARGUMENTS_H_
#define RELU_ARGUMENTS_H_

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>

#include <cstdint>
#include <sstream>
#include <string>

#include "relu.h"

namespace relu {

using tvm::ffi::ShapeView;
using tvm::ffi::TensorView;

inline std::string ToString(DLDeviceType type) {
  switch (static_cast<int>(type)) {
    case kDLCPU:
      return "cpu";
    case kDLCUDA:
      return "cuda";
    case kDLROCM:
      return "rocm";
    case kDLOneAPI:
      return "oneapi";
    case kDLMetal:
      return "metal";
    default:
      return "DLPack device type " + std::to_string(static_cast<int>(type));
  }
}

inline std::string ToString(DLDevice device) {
  return ToString(device.device_type) + ":" + std::to_string(device.device_id);
}

/// tvm-ffi has `<<` for data types as well, but it throws on those that it has no name for, such
/// as complex ones: while an error is being written, that ends the process.
inline std::string ToString(DLDataType dtype) {
  // In the order of DLDataTypeCode; the names from float8 on include the width.
  constexpr const char* kNames[] = {
      "int",
      "uint",
      "float",
      "handle",
      "bfloat",
      "complex",
      "bool",
      "float8_e3m4",
      "float8_e4m3",
      "float8_e4m3b11fnuz",
      "float8_e4m3fn",
      "float8_e4m3fnuz",
      "float8_e5m2",
      "float8_e5m2fnuz",
      "float8_e8m0fnu",
      "float6_e2m3fn",
      "float6_e3m2fn",
      "float4_e2m1fn",
  };
  constexpr size_t kFirstWithWidth = 7;
  std::ostringstream text;
  if (dtype.code < sizeof(kNames) / sizeof(*kNames)) {
    text << kNames[dtype.code];
    if (dtype.code < kFirstWithWidth) text << static_cast<int>(dtype.bits);
  } else {
    text << "DLPack type code " << static_cast<int>(dtype.code) << " of "
         << static_cast<int>(dtype.bits) << " bits";
  }
  if (dtype.lanes != 1) text << 'x' << dtype.lanes;
  return text.str();
}

inline std::string ToString(ShapeView values) {
  std::ostringstream text;
  text << '[';
  for (size_t i = 0; i < values.size(); ++i) text << (i == 0 ? "" : ", ") << values[i];
  text << ']';
  return text.str();
}

inline bool Equal(ShapeView a, ShapeView b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

inline void CheckDevice(const char* name, TensorView tensor) {
  const DLDevice got = tensor.device();
  if (got.device_type == kDeviceType) return;
  TVM_FFI_THROW(ValueError) << "relu: `" << name << "` is on " << ToString(got)
                            << "; this build of the kernel needs it on " << ToString(kDeviceType);
}

inline void CheckMemory(const char* name, TensorView tensor) {
  // The strides of an empty tensor say nothing. IsContiguous knows that null strides mean
  // row-major, and that the stride of a dimension of size one does not matter.
  if (tensor.numel() == 0) return;
  if (!tensor.IsContiguous()) {
    TVM_FFI_THROW(ValueError) << "relu: `" << name << "` has shape " << ToString(tensor.shape())
                              << " and strides " << ToString(tensor.strides())
                              << "; it needs to be contiguous (row-major): make it contiguous "
                                 "first";
  }
  if (tensor.data_ptr() == nullptr) {
    TVM_FFI_THROW(ValueError) << "relu: `" << name << "` has shape " << ToString(tensor.shape())
                              << " and a null data pointer; it needs memory for its elements";
  }
}

/// Refuses an `out` that shares only a part of `x`'s memory: elements would be read after they
/// were overwritten. The very same memory is fine.
inline void CheckOverlap(TensorView out, TensorView x) {
#if defined(METAL_KERNEL)
  // The pointers are MTLBuffer objects: how far apart two of them are says nothing.
  if (out.data_ptr() != x.data_ptr()) return;
#endif
  const auto out_begin = reinterpret_cast<uintptr_t>(Data(out));
  const auto x_begin = reinterpret_cast<uintptr_t>(Data(x));
  const uintptr_t distance = out_begin < x_begin ? x_begin - out_begin : out_begin - x_begin;
  const uint64_t bytes = static_cast<uint64_t>(x.numel()) * (x.dtype().bits / 8);
  if (distance == 0 || distance >= bytes) return;
  TVM_FFI_THROW(ValueError) << "relu: `out` overlaps `x` in part; it needs to be apart from `x`, "
                               "or the same memory (in place)";
}

/// Throws a ValueError or TypeError unless relu(out, x) can be computed by this build.
inline void CheckArguments(TensorView out, TensorView x) {
  CheckDevice("x", x);
  CheckDevice("out", out);
  if (out.device().device_id != x.device().device_id) {
    TVM_FFI_THROW(ValueError) << "relu: `out` is on " << ToString(out.device())
                              << "; it needs to be on the device of `x`, " << ToString(x.device());
  }
  if (!VisitDtype(x.dtype(), [](auto) {})) {
    TVM_FFI_THROW(TypeError) << "relu: `x` has dtype " << ToString(x.dtype())
                             << "; it needs to be float16, bfloat16, float32 or float64, with one "
                                "lane";
  }
  if (out.dtype() != x.dtype()) {
    TVM_FFI_THROW(TypeError) << "relu: `out` has dtype " << ToString(out.dtype())
                             << "; it needs to be that of `x`, " << ToString(x.dtype());
  }
  if (!Equal(out.shape(), x.shape())) {
    TVM_FFI_THROW(ValueError) << "relu: `out` has shape " << ToString(out.shape())
                              << "; it needs to be that of `x`, " << ToString(x.shape());
  }
  CheckMemory("x", x);
  CheckMemory("out", out);
  CheckOverlap(out, x);
}

}  // namespace relu

#endif  // RELU_ARGUMENTS_H_
