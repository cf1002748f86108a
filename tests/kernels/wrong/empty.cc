// All of it is in relu.cc; a kernel needs a source of its own.
