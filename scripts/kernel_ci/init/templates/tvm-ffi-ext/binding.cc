// The function that @NAME@ exports, with the checks on its arguments.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include "../scale.h"

namespace @PYTHON@ {

using tvm::ffi::TensorView;

void Check(const char* name, TensorView tensor) {
  const DLDataType dtype = tensor.dtype();
  if (dtype.code != kDLFloat || dtype.bits != 32 || dtype.lanes != 1) {
    TVM_FFI_THROW(TypeError) << "scale: `" << name << "` must be float32";
  }
  if (tensor.device().device_type != kDLCPU) {
    TVM_FFI_THROW(ValueError) << "scale: `" << name << "` must be on the CPU";
  }
  if (!tensor.IsContiguous()) {
    TVM_FFI_THROW(ValueError) << "scale: `" << name << "` must be contiguous";
  }
}

float* Data(TensorView tensor) {
  return reinterpret_cast<float*>(static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset());
}

void Scale(TensorView out, TensorView x, double factor) {
  Check("out", out);
  Check("x", x);
  bool same = out.ndim() == x.ndim();
  for (int i = 0; same && i < x.ndim(); ++i) same = out.size(i) == x.size(i);
  if (!same) TVM_FFI_THROW(ValueError) << "scale: `out` must have the shape of `x`";
  if (x.numel() > 0) Run(Data(out), Data(x), x.numel(), static_cast<float>(factor));
}

}  // namespace @PYTHON@

TVM_FFI_DLL_EXPORT_TYPED_FUNC(scale, @PYTHON@::Scale);
