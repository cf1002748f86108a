// What the host tells the kernel, in types that C++ and Metal have in common, and how the host
// works it out.
#ifndef RELU_METAL_LAUNCH_H_
#define RELU_METAL_LAUNCH_H_

#if !defined(__METAL_VERSION__)
#include <algorithm>
#include <cstdint>
#endif

namespace relu {

/// Where the elements are, and how they are split: `head` single ones, `vectors` of 16 bytes, then
/// single ones again. Elements that are aligned to bytes only are all single ones.
struct Launch {
  uint64_t out_offset;  // In bytes, from the buffer's start.
  uint64_t x_offset;
  int64_t head;
  int64_t vectors;
  int64_t numel;
  int64_t neg_inf;  // The bits of -infinity (see relu.h).
  uint32_t aligned;
};

#if !defined(__METAL_VERSION__)

constexpr int64_t kThreads = 256;
// Enough for every GPU to be busy. Larger tensors are done in strides, so the number of elements
// has no limit.
constexpr int64_t kMaxGroups = 4096;

/// Splits the elements, of `size` bytes each. A buffer's memory begins at a multiple of 16 and
/// more, so the offsets tell how they are aligned. Vectors need both to be multiples of 16 after
/// the same number of elements.
inline Launch MakeLaunch(uint64_t out_offset, uint64_t x_offset, int64_t numel, int64_t size,
                         int64_t neg_inf) {
  constexpr int64_t kVectorBytes = 16;
  const bool aligned = (out_offset | x_offset) % size == 0;
  Launch launch{out_offset, x_offset, 0, 0, numel, neg_inf, aligned};
  if (aligned && out_offset % kVectorBytes == x_offset % kVectorBytes) {
    const int64_t before = (kVectorBytes - x_offset % kVectorBytes) % kVectorBytes / size;
    launch.head = std::min(before, numel);
    launch.vectors = (numel - launch.head) / (kVectorBytes / size);
  }
  return launch;
}

/// How many groups of kThreads the kernel is run with.
inline int64_t Groups(const Launch& launch, int64_t size) {
  const int64_t single = launch.numel - launch.vectors * (16 / size);
  return std::min((std::max(launch.vectors, single) + kThreads - 1) / kThreads, kMaxGroups);
}

#endif  // !defined(__METAL_VERSION__)

}  // namespace relu

#endif  // RELU_METAL_LAUNCH_H_
