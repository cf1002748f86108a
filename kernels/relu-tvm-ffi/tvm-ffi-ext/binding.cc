// The one function that this kernel exports, under the same name on every backend.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include "../arguments.h"
#include "../relu.h"

namespace relu {

void Relu(tvm::ffi::TensorView out, tvm::ffi::TensorView x) {
  CheckArguments(out, x);
  if (x.numel() == 0) return;
  Run(out, x);
}

}  // namespace relu

// The macro defines a function with a parameter that it does not use.
#pragma GCC diagnostic ignored "-Wunused-parameter"
TVM_FFI_DLL_EXPORT_TYPED_FUNC(relu, relu::Relu);
