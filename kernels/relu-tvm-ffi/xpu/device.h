// What runs on the device, in one of two forms: compiled ahead of time with the rest, by a SYCL
// compiler (icpx -fsycl), or kept as text that the SYCL runtime compiles for the device at hand.
// The second form needs a C++ compiler and the SYCL runtime only.
//
// Nothing of SYCL is used here, and no preprocessor line, since the text is made by a macro.
#ifndef RELU_XPU_DEVICE_H_
#define RELU_XPU_DEVICE_H_

#include <cstdint>

#if defined(SYCL_LANGUAGE_VERSION)
#define RELU_DEVICE_CODE(...) __VA_ARGS__
#else
#define RELU_DEVICE_CODE(...) \
  __VA_ARGS__                 \
  constexpr const char* kDeviceCode = #__VA_ARGS__;
#endif

namespace relu {

// clang-format off
RELU_DEVICE_CODE(

/// How the elements are split: `head` single ones, `vectors` of 16 bytes, then single ones again.
/// Elements that are aligned to bytes only are all single ones.
struct Split {
  int64_t head;
  int64_t vectors;
  int64_t numel;
  bool aligned;
};

template <typename Bits>
struct alignas(16) Vector {
  Bits element[16 / sizeof(Bits)];
};

/// `neg_inf` are the bits of -infinity (see relu.h).
template <typename Bits>
inline Bits Relu(Bits bits, Bits neg_inf) {
  return bits > neg_inf ? bits : Bits{0};
}

/// What one of `step` work items does: every `step`-th vector and single element from `first` on.
/// `out` and `x` may be the same memory: each element is read and written by one work item.
template <typename Bits>
inline void ReluElements(char* out, const char* x, Split split, Bits neg_inf, int64_t first,
                         int64_t step) {
  constexpr int64_t kPerVector = 16 / sizeof(Bits);
  auto* out_vectors = reinterpret_cast<Vector<Bits>*>(out + split.head * sizeof(Bits));
  auto* x_vectors = reinterpret_cast<const Vector<Bits>*>(x + split.head * sizeof(Bits));
  for (int64_t i = first; i < split.vectors; i += step) {
    Vector<Bits> vector = x_vectors[i];
    for (Bits& element : vector.element) element = Relu(element, neg_inf);
    out_vectors[i] = vector;
  }
  const int64_t in_vectors = split.vectors * kPerVector;
  for (int64_t i = first; i < split.numel - in_vectors; i += step) {
    const int64_t at = (i < split.head ? i : i + in_vectors) * sizeof(Bits);
    if (split.aligned) {
      *reinterpret_cast<Bits*>(out + at) = Relu(*reinterpret_cast<const Bits*>(x + at), neg_inf);
      continue;
    }
    Bits bits;
    for (size_t byte = 0; byte < sizeof(Bits); ++byte) {
      reinterpret_cast<char*>(&bits)[byte] = x[at + byte];
    }
    bits = Relu(bits, neg_inf);
    for (size_t byte = 0; byte < sizeof(Bits); ++byte) {
      out[at + byte] = reinterpret_cast<const char*>(&bits)[byte];
    }
  }
}

)
// clang-format on

}  // namespace relu

#endif  // RELU_XPU_DEVICE_H_
