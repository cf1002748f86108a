#include "../scale.h"

namespace @PYTHON@ {

void Run(float* out, const float* x, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i) out[i] = x[i] * factor;
}

}  // namespace @PYTHON@
