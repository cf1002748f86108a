// relu.metal as C++, with the launch that the host code works out, one thread after the other.
#include "metal/launch.h"
#include "relu.h"
// Last, since it makes macros of Metal's keywords.
#include "metal/relu.metal"

/// @return Whether relu is defined for the type.
extern "C" bool relu_metal(char* out, uint64_t out_offset, const char* x, uint64_t x_offset,
                           int64_t numel, int code, int bits) {
  const DLDataType dtype{static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1};
  return relu::VisitDtype(dtype, [&](auto neg_inf) {
    constexpr int64_t kSize = sizeof(neg_inf);
    const relu::Launch launch = relu::MakeLaunch(out_offset, x_offset, numel, kSize, neg_inf);
    const uint32_t threads = relu::Groups(launch, kSize) * relu::kThreads;
    auto* kernel_of = kSize == 2 ? relu_2 : kSize == 4 ? relu_4 : relu_8;
    for (uint32_t i = 0; i < threads; ++i) kernel_of(out, x, launch, i, threads);
  });
}
