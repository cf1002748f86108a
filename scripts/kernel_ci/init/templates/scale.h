// What a backend of @NAME@ has to provide.
#pragma once

#include <cstdint>

namespace @PYTHON@ {

/// Writes `x[i] * factor` to `out[i]` for `count` elements.
void Run(float* out, const float* x, int64_t count, float factor);

}  // namespace @PYTHON@
