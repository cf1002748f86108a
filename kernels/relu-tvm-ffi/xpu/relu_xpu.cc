// relu on Intel GPUs: one SYCL kernel, which moves 16 bytes at a time where it can, on the queue
// that the framework works on.
#if !defined(SYCL_LANGUAGE_VERSION)
// On purpose without -fsycl: see device.h.
#define SYCL_DISABLE_FSYCL_SYCLHPP_WARNING
#endif
#include <sycl/sycl.hpp>

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "../relu.h"
#include "device.h"

#if !defined(SYCL_LANGUAGE_VERSION)
#include <mutex>
#include <unordered_map>
#endif

namespace relu {
namespace {

constexpr int64_t kGroup = 256;
// Enough for every GPU to be busy. Larger tensors are done in strides, so the number of elements
// has no limit.
constexpr int64_t kMaxGroups = 4096;
constexpr int64_t kVectorBytes = 16;

/// Vectors need both addresses to be multiples of 16 after the same number of elements.
template <typename Bits>
Split SplitElements(const char* out, const char* x, int64_t numel) {
  const auto out_address = reinterpret_cast<uintptr_t>(out);
  const auto x_address = reinterpret_cast<uintptr_t>(x);
  const bool aligned = (out_address | x_address) % sizeof(Bits) == 0;
  if (!aligned || out_address % kVectorBytes != x_address % kVectorBytes) {
    return {0, 0, numel, aligned};
  }
  const int64_t before = (kVectorBytes - x_address % kVectorBytes) % kVectorBytes / sizeof(Bits);
  const int64_t head = std::min(before, numel);
  constexpr int64_t kPerVector = kVectorBytes / sizeof(Bits);
  return {head, (numel - head) / kPerVector, numel, aligned};
}

#if defined(SYCL_LANGUAGE_VERSION)

template <typename Bits>
void Submit(sycl::queue& queue, sycl::nd_range<1> range, char* out, const char* x, Split split,
            Bits neg_inf) {
  queue.parallel_for(range, [=](sycl::nd_item<1> item) {
    ReluElements(out, x, split, neg_inf, static_cast<int64_t>(item.get_global_linear_id()),
                 static_cast<int64_t>(item.get_global_range(0)));
  });
}

#else  // Compiled when it is first used in a context.

namespace syclex = sycl::ext::oneapi::experimental;

constexpr const char* kHeader = R"(
#include <cstddef>
#include <cstdint>
#include <sycl/sycl.hpp>
namespace syclex = sycl::ext::oneapi::experimental;
)";

/// A kernel for each type, whose name is the size of its elements.
constexpr const char* kKernels = R"(
#define RELU_KERNEL(Bits, name)                                                               \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<1>)) void name(      \
      char* out, const char* x, Split split, Bits neg_inf) {                                 \
    auto item = sycl::ext::oneapi::this_work_item::get_nd_item<1>();                         \
    ReluElements(out, x, split, neg_inf, static_cast<int64_t>(item.get_global_linear_id()),  \
                 static_cast<int64_t>(item.get_global_range(0)));                            \
  }
RELU_KERNEL(int16_t, relu_2)
RELU_KERNEL(int32_t, relu_4)
RELU_KERNEL(int64_t, relu_8)
)";

using Bundle = sycl::kernel_bundle<sycl::bundle_state::executable>;

/// The kernels for a context, compiled once.
Bundle& KernelsOf(const sycl::context& context) {
  static std::mutex mutex;
  // Never destroyed: at the end of the process the SYCL runtime may be gone before this library.
  static auto& bundles = *new std::unordered_map<sycl::context, Bundle>();
  const std::lock_guard<std::mutex> lock(mutex);
  auto found = bundles.find(context);
  if (found == bundles.end()) {
    const std::string source = std::string(kHeader) + kDeviceCode + kKernels;
    auto bundle = syclex::create_kernel_bundle_from_source(
        context, syclex::source_language::sycl, source);
    // The kernels need nothing of SYCL's device libraries, some of which the runtime's wheels
    // lack (intel-sycl-rt 2025.3).
    const syclex::build_options options(std::string("-fno-sycl-device-lib=all"));
    found = bundles.emplace(context, syclex::build(bundle, syclex::properties{options})).first;
  }
  return found->second;
}

template <typename Bits>
void Submit(sycl::queue& queue, sycl::nd_range<1> range, char* out, const char* x, Split split,
            Bits neg_inf) {
  sycl::kernel kernel = KernelsOf(queue.get_context())
                            .ext_oneapi_get_kernel("relu_" + std::to_string(sizeof(Bits)));
  queue.submit([&](sycl::handler& handler) {
    handler.set_args(out, x, split, neg_inf);
    handler.parallel_for(range, kernel);
  });
}

#endif

/// The queue that the framework works on now. Another one would race with it.
sycl::queue& Queue(DLDevice device) {
  auto* queue =
      static_cast<sycl::queue*>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  if (queue == nullptr) {
    TVM_FFI_THROW(RuntimeError)
        << "relu: the framework does not say on which queue it works, as older releases of PyTorch; "
           "set it with tvm_ffi.use_raw_stream(device, <address of the sycl::queue>)";
  }
  if (!queue->is_in_order()) {
    TVM_FFI_THROW(ValueError) << "relu: the queue is out of order; it needs to be in order, since "
                                 "nobody could wait for this kernel otherwise";
  }
  return *queue;
}

/// SYCL knows memory by context; a pointer of another one would only fail on the device.
void CheckPointer(const char* name, tvm::ffi::TensorView tensor, const sycl::queue& queue) {
  const auto type = sycl::get_pointer_type(Data(tensor), queue.get_context());
  if (type != sycl::usm::alloc::unknown) return;
  TVM_FFI_THROW(ValueError) << "relu: `" << name << "` is no USM memory of the context of the "
                               "framework's queue";
}

}  // namespace

void Run(tvm::ffi::TensorView out, tvm::ffi::TensorView x) {
  try {
    sycl::queue& queue = Queue(x.device());
    CheckPointer("x", x, queue);
    CheckPointer("out", out, queue);
    VisitDtype(x.dtype(), [&](auto neg_inf) {
      using Bits = decltype(neg_inf);
      const Split split = SplitElements<Bits>(Data(out), Data(x), x.numel());
      const int64_t single = x.numel() - split.vectors * (kVectorBytes / sizeof(Bits));
      const int64_t groups = (std::max(split.vectors, single) + kGroup - 1) / kGroup;
      const sycl::nd_range<1> range(std::min(groups, kMaxGroups) * kGroup, kGroup);
      Submit(queue, range, Data(out), Data(x), split, neg_inf);
    });
  } catch (const sycl::exception& error) {
    TVM_FFI_THROW(RuntimeError) << "relu: SYCL failed: " << error.what();
  }
}

}  // namespace relu
