// The runtimes of CUDA and HIP under one name: GPU(Malloc) is cudaMalloc or hipMalloc.
#ifndef RELU_GPU_RUNTIME_H_
#define RELU_GPU_RUNTIME_H_

#include <tvm/ffi/error.h>

#if defined(CUDA_KERNEL)
#include <cuda_runtime.h>
#define GPU(name) cuda##name
#elif defined(ROCM_KERNEL)
#include <hip/hip_runtime.h>
#define GPU(name) hip##name
#endif

namespace relu {

/// Throws a RuntimeError unless the call `what` went well.
inline void Check(GPU(Error_t) error, const char* what) {
  if (error == GPU(Success)) return;
  // Take it back: the runtime would hand it to whoever asks next for the last error.
  static_cast<void>(GPU(GetLastError)());
  TVM_FFI_THROW(RuntimeError) << "relu: " << what << " failed: " << GPU(GetErrorName)(error) << " ("
                              << GPU(GetErrorString)(error) << ")";
}

/// Makes a device the current one, and the former one again at the end.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) : device_(device) {
    Check(GPU(GetDevice)(&former_), "asking for the current device");
    if (device_ != former_) Check(GPU(SetDevice)(device_), "switching to the device of `x`");
  }
  ~DeviceGuard() {
    if (device_ != former_) static_cast<void>(GPU(SetDevice)(former_));
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int device_;
  int former_ = 0;
};

}  // namespace relu

#endif  // RELU_GPU_RUNTIME_H_
