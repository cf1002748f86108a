// relu on Apple GPUs. Metal has no double, and needs none: relu compares integers (see relu.h).
#include <metal_stdlib>

#include "launch.h"

namespace relu {

template <typename Bits>
struct alignas(16) Vector {
  Bits element[16 / sizeof(Bits)];
};

template <typename Bits>
inline Bits Relu(Bits bits, Bits neg_inf) {
  return bits > neg_inf ? bits : Bits(0);
}

/// One element at an address that may be no multiple of its size: that needs access by bytes.
template <typename Bits>
inline void ReluUnaligned(device char* out, device const char* x, Bits neg_inf) {
  Bits bits;
  for (uint32_t i = 0; i < sizeof(Bits); ++i) reinterpret_cast<thread char*>(&bits)[i] = x[i];
  bits = Relu(bits, neg_inf);
  for (uint32_t i = 0; i < sizeof(Bits); ++i) out[i] = reinterpret_cast<thread char*>(&bits)[i];
}

/// What one of `step` threads does: every `step`-th vector and single element from `first` on.
/// `out` and `x` may be the same memory: each element is read and written by one thread.
template <typename Bits>
inline void ReluElements(device char* out_buffer, device const char* x_buffer,
                         constant Launch& launch, uint32_t first, uint32_t step) {
  constexpr int64_t kPerVector = 16 / sizeof(Bits);
  const Bits neg_inf = static_cast<Bits>(launch.neg_inf);
  device char* out = out_buffer + launch.out_offset;
  device const char* x = x_buffer + launch.x_offset;
  const int64_t before = launch.head * sizeof(Bits);
  device auto* out_vectors = reinterpret_cast<device Vector<Bits>*>(out + before);
  device auto* x_vectors = reinterpret_cast<device const Vector<Bits>*>(x + before);
  for (int64_t i = first; i < launch.vectors; i += step) {
    Vector<Bits> vector = x_vectors[i];
    for (int64_t j = 0; j < kPerVector; ++j) {
      vector.element[j] = Relu(vector.element[j], neg_inf);
    }
    out_vectors[i] = vector;
  }
  const int64_t in_vectors = launch.vectors * kPerVector;
  for (int64_t i = first; i < launch.numel - in_vectors; i += step) {
    const int64_t at = (i < launch.head ? i : i + in_vectors) * sizeof(Bits);
    if (launch.aligned) {
      *reinterpret_cast<device Bits*>(out + at) =
          Relu(*reinterpret_cast<device const Bits*>(x + at), neg_inf);
    } else {
      ReluUnaligned(out + at, x + at, neg_inf);
    }
  }
}

}  // namespace relu

// A kernel for each type, whose name is the size of its elements.
#define RELU_KERNEL(Bits, name)                                                                   \
  kernel void name(device char* out [[buffer(0)]], device const char* x [[buffer(1)]],            \
                   constant relu::Launch& launch [[buffer(2)]],                                   \
                   uint32_t first [[thread_position_in_grid]], uint32_t step [[threads_per_grid]]) { \
    relu::ReluElements<Bits>(out, x, launch, first, step);                                        \
  }

RELU_KERNEL(int16_t, relu_2)
RELU_KERNEL(int32_t, relu_4)
RELU_KERNEL(int64_t, relu_8)
